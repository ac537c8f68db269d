"""What a page of many agents shows of a run stands in columns of its own, so that no stored document is read for it."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from persona_pipeline.base.database.tables import JsonColumn

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_NAMES = ("outline", "message_scores")
_OLD, _NEWEST = "ix_evaluation_runs_agent_id_window_end", "ix_evaluation_runs_newest"
_COLUMNS = ["agent_id", "window_end", "whole", "completed_at", "id", "status", "synthetic", "overall_score"]
# Documents are kilobytes each: so many are in memory at a time.
_AT_ONCE = 200


def upgrade() -> None:
    for name in _NAMES:
        op.add_column("evaluation_runs", sa.Column(name, JsonColumn, nullable=True), schema=_schema())
    _fill()
    op.drop_index(_OLD, table_name="evaluation_runs", schema="persona")
    op.create_index(_NEWEST, "evaluation_runs", _COLUMNS, schema="persona")


def downgrade() -> None:
    op.drop_index(_NEWEST, table_name="evaluation_runs", schema="persona")
    op.create_index(_OLD, "evaluation_runs", ["agent_id", "window_end"], schema="persona")
    for name in _NAMES:
        op.drop_column("evaluation_runs", name, schema=_schema())


def _fill() -> None:
    runs = sa.table(
        "evaluation_runs",
        sa.column("id", sa.Uuid()),
        sa.column("result", JsonColumn),
        *(sa.column(name, JsonColumn) for name in _NAMES),
        schema=_schema(),
    )
    connection = op.get_bind()
    change = sa.update(runs).where(runs.c.id == sa.bindparam("run")).values({n: sa.bindparam(n) for n in _NAMES})
    query = sa.select(runs.c.id, runs.c.result).where(runs.c.result.is_not(None)).order_by(runs.c.id).limit(_AT_ONCE)
    rows = connection.execute(query).all()
    while rows:
        connection.execute(change, [{"run": row.id, **_short(row.result)} for row in rows])
        rows = connection.execute(query.where(runs.c.id > rows[-1].id)).all()


def _short(result: dict[str, Any]) -> dict[str, Any]:
    dimensions = {
        name: {key: value for key, value in item.items() if key not in ("propositions", "statistics")}
        for name, item in result.get("dimensions", {}).items()
    }
    claims = result.get("dimensions", {}).get("adherence", {}).get("propositions", {}).values()
    return {"outline": {**result, "dimensions": dimensions}, "message_scores": _message_scores(claims) or None}


def _message_scores(claims: Any) -> dict[str, float]:
    """Return the weighted mean of the claims about each message that was judged by itself, turned where a claim is inverted."""
    found: dict[str, list[tuple[float, float]]] = {}
    for claim in claims:
        weight = claim.get("weight", 1.0)
        for part in claim.get("parts", ()):
            if part.get("raw") is not None and weight > 0:
                score = 9 - float(part["raw"]) if claim.get("inverted") else float(part["raw"])
                found.setdefault(str(part["part"]), []).append((score, weight))
    return {key: sum(s * w for s, w in pairs) / sum(w for _, w in pairs) for key, pairs in found.items()}


def _schema() -> str | None:
    """SQLite has no schemas, and ALTER TABLE is not translated."""
    return None if op.get_bind().dialect.name == "sqlite" else "persona"
