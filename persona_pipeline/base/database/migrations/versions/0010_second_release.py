"""Bring a store of the first release to what the second release keeps, in one step."""

import hashlib
import uuid
from typing import Any

import sqlalchemy as sa
from alembic import op

from persona_pipeline.base.database.counting import count_messages
from persona_pipeline.base.database.tables import SCHEMA, JsonColumn, UtcDateTime, metadata

revision = "0010"
down_revision = "0001"
branch_labels = None
depends_on = None

# Documents are kilobytes each: so many are in memory at a time.
_AT_ONCE = 200


def upgrade() -> None:
    _evaluation_runs()
    _message_windows()
    _tables()
    _messages()
    _corrections()


def _schema() -> str | None:
    """ALTER TABLE, and tables that are only named, know nothing of the map that takes the schema away on SQLite."""
    return None if op.get_bind().dialect.name == "sqlite" else SCHEMA


def _table(name: str, *columns: Any) -> sa.TableClause:
    named = (sa.column(column) if isinstance(column, str) else column for column in columns)
    return sa.table(name, *named, schema=_schema())


def _add(table: str, *columns: sa.Column[Any]) -> None:
    for column in columns:
        op.add_column(table, column, schema=_schema())


def _index(table: str, *columns: str, name: str | None = None, **options: Any) -> None:
    found = name or f"ix_{table}_{'_'.join(columns)}"
    op.create_index(op.f(found), table, list(columns), schema=SCHEMA, if_not_exists=True, **options)


def _made(name: str) -> sa.Table:
    """Make a table where there is none, as it is now: a later step that adds a column to one asks first, as ``_add`` does."""
    table = metadata.tables[f"{SCHEMA}.{name}"]
    table.create(op.get_bind(), checkfirst=True)
    return table


def _text(name: str, *, null: bool = False) -> sa.Column[Any]:
    return sa.Column(name, sa.Text(), nullable=null)


def _evaluation_runs() -> None:
    """A run holds its comparison, and what a page of many agents shows of it in columns of its own."""
    _add(
        "evaluation_runs",
        sa.Column("whole", sa.Boolean(), server_default=sa.true(), nullable=False),
        sa.Column("regressed", sa.Boolean(), nullable=True),
        *(sa.Column(name, JsonColumn, nullable=True) for name in ("summary", "comparison", "findings")),
    )
    names = ("outline", "message_scores")
    _add("evaluation_runs", *(sa.Column(name, JsonColumn, nullable=True) for name in names))
    shared = ("regressed", "comparison", "findings")
    runs = _table("evaluation_runs", "id", *shared)
    compared = _table("baseline_comparisons", "evaluation_run_id", *shared)
    own = {
        name: sa.select(compared.c[name]).where(compared.c.evaluation_run_id == runs.c.id).scalar_subquery()
        for name in shared
    }
    op.execute(sa.update(runs).where(runs.c.id.in_(sa.select(compared.c.evaluation_run_id))).values(own))
    op.drop_table("baseline_comparisons", schema=SCHEMA)
    _fill(_summary)
    _fill(_short)
    op.drop_index("ix_evaluation_runs_agent_id_window_end", "evaluation_runs", schema=SCHEMA, if_exists=True)
    shown = ("agent_id", "window_end", "whole", "completed_at", "id", "status", "synthetic", "overall_score")
    _index("evaluation_runs", *shown, name="ix_evaluation_runs_newest")


def _fill(read: Any) -> None:
    """Write columns of runs that are read from their results."""
    typed = (sa.column(name, JsonColumn) for name in ("result", "summary", "outline", "message_scores"))
    runs = _table("evaluation_runs", sa.column("id", sa.Uuid()), *typed)
    connection = op.get_bind()
    query = sa.select(runs.c.id, runs.c.result).where(runs.c.result.is_not(None)).order_by(runs.c.id).limit(_AT_ONCE)
    rows = connection.execute(query).all()
    while rows:
        for row in rows:
            connection.execute(sa.update(runs).where(runs.c.id == row.id).values(read(row.result)))
        rows = connection.execute(query.where(runs.c.id > rows[-1].id)).all()


def _summary(result: dict[str, Any]) -> dict[str, Any]:
    provenance = result.get("provenance", {})
    dimensions = {
        name: {
            "score": item.get("score"),
            "samples": max((len(row.get("samples", ())) for row in item.get("propositions", {}).values()), default=1)
            or 1,
            "claims": item.get("proposition_set_hash"),
        }
        for name, item in result.get("dimensions", {}).items()
    }
    judged = [provenance.get("judge_model"), provenance.get("prompt_version")]
    return {"summary": {"overall": result.get("overall"), "dimensions": dimensions, "judged_by": judged}}


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


def _message_windows() -> None:
    """Windows that were evaluated are kept side by side, and those of runs among them."""
    types = {"agent_id": sa.Text(), "window_start": UtcDateTime(), "window_end": UtcDateTime()}

    def windows_of(table: str) -> Any:
        known = _table(table, *(sa.column(name, kind) for name, kind in types.items()), "synthetic")
        return known, sa.select(*(known.c[name] for name in types))

    (runs, of_runs), (_, kept) = windows_of("evaluation_runs"), windows_of("message_windows")
    wanted = (of_runs.where(runs.c.synthetic.is_(False), runs.c.window_end.is_not(None)), kept)
    found = {tuple(row) for query in wanted for row in op.get_bind().execute(query)}
    op.drop_table("message_windows", schema=SCHEMA)
    rebuilt = _made("message_windows")
    rows = [
        {"id": _window_id(agent_id, start, end), "agent_id": agent_id, "window_start": start, "window_end": end}
        for agent_id, start, end in found
    ]
    if rows:
        op.bulk_insert(rebuilt, rows)


def _window_id(agent_id: str, start: Any, end: Any) -> uuid.UUID:
    # As the world names windows, kept here as it was when this migration was written.
    text = "\x1f".join([agent_id, start.isoformat() if start else "", end.isoformat()])
    return uuid.UUID(bytes=hashlib.sha256(text.encode()).digest()[:16], version=5)


def _messages() -> None:
    """Files are read from where they were read last, all that a source says is kept, and what is said is counted."""
    _add("run_messages", *(_text(name, null=True) for name in ("speaker", "addressee")))
    _add("run_messages", *(sa.Column(name, sa.Integer(), nullable=True) for name in ("line", "reading")))
    _index("run_messages", "recipient_id")
    for name, agent in (("speaker", "agent_id"), ("addressee", "recipient_id")):
        where = sa.text(f"{name} IS NOT NULL")
        _index("run_messages", name, agent, sqlite_where=where, postgresql_where=where)
    _index("run_messages", "source")
    _add(
        "message_sources",
        sa.Column("size", sa.BigInteger(), nullable=True),
        sa.Column("lines", sa.Integer(), server_default="0", nullable=False),
        _text("seen", null=True),
        sa.Column("reading", sa.Integer(), server_default="0", nullable=False),
        sa.Column("unfinished", sa.Boolean(), server_default=sa.false(), nullable=False),
    )
    _count_messages()
    _add("run_messages", sa.Column("extras", sa.JSON(none_as_null=True), nullable=True))
    _read_again()


def _read_again() -> None:
    """Lines that were left out for a key nobody knew are messages now: such files are read again."""
    names = ("path", "size", "lines", "content_hash", "seen", "reading", "problems")
    sources = _table("message_sources", *names, sa.column("unfinished", sa.Boolean()))
    copies = _table("message_copies", "path")
    lost = sa.cast(sources.c.problems, sa.Text()).like("%unknown %")
    op.execute(sa.delete(copies).where(copies.c.path.in_(sa.select(sources.c.path).where(lost))))
    again = {"size": 0, "lines": 0, "content_hash": "", "seen": sa.null(), "unfinished": sa.true()}
    op.execute(sa.update(sources).where(lost).values(reading=sources.c.reading + 1, problems=sa.null(), **again))


def _count_messages() -> None:
    """What agents said is counted as it is written, by whomever."""
    _made("message_changes")
    schema = _schema()
    count_messages(op.get_bind())
    # What is there is counted at the next look, agent by agent; the databases sort this out themselves.
    said = "(created_at AT TIME ZONE 'UTC')::date" if schema else "coalesce(date(created_at), '0001-01-01')"
    dot = f"{schema}." if schema else ""
    op.execute(
        f"INSERT INTO {dot}message_changes (agent_id, day) SELECT DISTINCT agent_id, {said} FROM {dot}run_messages"  # noqa: S608
    )


def _corrections() -> None:
    """What the gate did by day, what went past it, and checks that only watch."""
    flag = sa.Column("counted", sa.Boolean(), server_default=sa.false(), nullable=False)
    _add("gate_checks", flag)
    for table, name in (("agent_evaluation_config", "shadow_mode"), ("gate_checks", "shadow")):
        _add(table, sa.Column(name, sa.Boolean(), nullable=False, server_default=sa.false()))
    _index("gate_checks", "agent_id", "action_id")
    uncounted = {"sqlite_where": sa.text("counted = 0"), "postgresql_where": sa.text("NOT counted")}
    _index("gate_checks", "created_at", name="ix_gate_checks_uncounted", **uncounted)


_NEW = (
    *("leases", "voice_models", "message_days", "message_totals", "remembered", "spending_days", "evaluations_asked"),
    *("trace_pieces", "gate_days", "gate_bypasses", "removed_messages", "message_copies"),
)


def _tables() -> None:
    """Who works on what, learnt voices, sums of messages, what is remembered, spent and asked for, pieces of traces, the gate."""
    for name in _NEW:
        _made(name)
