"""A run holds its comparison, windows are kept side by side, and leases say who works on what."""

import hashlib
import uuid

import sqlalchemy as sa
from alembic import op

from persona_pipeline.base.database.tables import JsonColumn, UtcDateTime

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

SCHEMA = "persona"


def upgrade() -> None:
    schema = _schema()
    for column in (
        sa.Column("whole", sa.Boolean(), server_default=sa.true(), nullable=False),
        sa.Column("regressed", sa.Boolean(), nullable=True),
        sa.Column("summary", JsonColumn, nullable=True),
        sa.Column("comparison", JsonColumn, nullable=True),
        sa.Column("findings", JsonColumn, nullable=True),
    ):
        op.add_column("evaluation_runs", column, schema=schema)
    op.create_index(
        op.f("ix_evaluation_runs_agent_id_window_end"), "evaluation_runs", ["agent_id", "window_end"], schema=SCHEMA
    )
    op.create_table(
        "leases",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("expires_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_leases")),
        schema=SCHEMA,
    )
    _carry_comparisons()
    _summarise_runs()
    op.drop_table("baseline_comparisons", schema=SCHEMA)
    _rebuild_windows()


def _schema() -> str | None:
    # ALTER TABLE, and tables that are only named, know nothing of the map that takes the schema away on SQLite.
    return None if op.get_bind().dialect.name == "sqlite" else SCHEMA


def _carry_comparisons() -> None:
    runs = sa.table(
        "evaluation_runs",
        sa.column("id", sa.Uuid()),
        sa.column("regressed"),
        sa.column("comparison"),
        sa.column("findings"),
        schema=_schema(),
    )
    compared = sa.table(
        "baseline_comparisons",
        sa.column("evaluation_run_id", sa.Uuid()),
        sa.column("regressed"),
        sa.column("comparison"),
        sa.column("findings"),
        schema=_schema(),
    )
    columns = ("regressed", "comparison", "findings")
    own = {
        name: sa.select(compared.c[name]).where(compared.c.evaluation_run_id == runs.c.id).scalar_subquery()
        for name in columns
    }
    op.get_bind().execute(sa.update(runs).where(runs.c.id.in_(sa.select(compared.c.evaluation_run_id))).values(own))


def _summarise_runs() -> None:
    connection = op.get_bind()
    runs = sa.table(
        "evaluation_runs",
        sa.column("id", sa.Uuid()),
        sa.column("result", JsonColumn),
        sa.column("summary", JsonColumn),
        schema=_schema(),
    )
    known = connection.execute(sa.select(runs.c.id).where(runs.c.result.is_not(None))).scalars().all()
    for run_id in known:
        result = connection.execute(sa.select(runs.c.result).where(runs.c.id == run_id)).scalar_one()
        provenance = result.get("provenance", {})
        dimensions = {
            name: {
                "score": item.get("score"),
                "samples": max(
                    (len(row.get("samples", ())) for row in item.get("propositions", {}).values()), default=1
                )
                or 1,
                "claims": item.get("proposition_set_hash"),
            }
            for name, item in result.get("dimensions", {}).items()
        }
        judged = [provenance.get("judge_model"), provenance.get("prompt_version")]
        summary = {"overall": result.get("overall"), "dimensions": dimensions, "judged_by": judged}
        connection.execute(sa.update(runs).where(runs.c.id == run_id).values(summary=summary))


def _rebuild_windows() -> None:
    connection = op.get_bind()
    columns = ("agent_id", "window_start", "window_end")

    def bounds() -> list[sa.ColumnClause]:
        types = (sa.Text(), UtcDateTime(), UtcDateTime())
        return [sa.column(name, kind) for name, kind in zip(columns, types, strict=True)]

    runs = sa.table("evaluation_runs", *bounds(), sa.column("synthetic", sa.Boolean()), schema=_schema())
    windows = sa.table("message_windows", *bounds(), schema=_schema())
    found = {
        tuple(row)
        for query in (
            sa.select(*(runs.c[name] for name in columns)).where(
                runs.c.synthetic.is_(False), runs.c.window_end.is_not(None)
            ),
            sa.select(*(windows.c[name] for name in columns)),
        )
        for row in connection.execute(query)
    }
    op.drop_table("message_windows", schema=SCHEMA)
    rebuilt = op.create_table(
        "message_windows",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("window_start", UtcDateTime(), nullable=True),
        sa.Column("window_end", UtcDateTime(), nullable=False),
        sa.Column("touched_at", UtcDateTime(), nullable=True),
        sa.Column("updated_at", UtcDateTime(), server_default=sa.func.now(), nullable=False),
        sa.ForeignKeyConstraint(
            ["agent_id"], ["persona.agents.id"], name=op.f("fk_message_windows_agent_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_message_windows")),
        schema=SCHEMA,
    )
    for columns_of_index in (["agent_id", "window_end"], ["window_end"]):
        name = op.f(f"ix_message_windows_{'_'.join(columns_of_index)}")
        op.create_index(name, "message_windows", columns_of_index, schema=SCHEMA)
    rows = [
        {"id": _window_id(agent_id, start, end), "agent_id": agent_id, "window_start": start, "window_end": end}
        for agent_id, start, end in found
    ]
    if rows:
        op.bulk_insert(rebuilt, rows)


def _window_id(agent_id: str, start: object, end: object) -> uuid.UUID:
    # As world.stored_windows names them, kept here as it was when this migration was written.
    text = "\x1f".join([agent_id, start.isoformat() if start else "", end.isoformat()])  # pyright: ignore
    return uuid.UUID(bytes=hashlib.sha256(text.encode()).digest()[:16], version=5)
