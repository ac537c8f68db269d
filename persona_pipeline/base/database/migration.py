"""Bring a store of release 0.1 or 0.2 to the schema of the tables: what is missing is added, and moved rows are moved."""

import hashlib
import uuid
from typing import Any

import sqlalchemy as sa
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy.engine import Connection

from persona_pipeline.base.database.tables import (
    SCHEMA,
    UtcDateTime,
    evaluation_runs,
    message_copies,
    message_days,
    message_revisions,
    message_sources,
    message_windows,
    metadata,
    newest_runs,
    run_messages,
)
from persona_pipeline.base.database.triggers import create_triggers

FIRST_RELEASE = "0001"
# From this revision on, an agent's newest run may have any status.
_ANY_STATUS = "0015"
# From this revision on, changes of messages are counted, and no longer the messages.
_REVISIONS = "0017"
# Documents are kilobytes each: this many are in memory at a time.
_AT_ONCE = 200


def migrate(connection: Connection, revision: str) -> None:
    """Change the schema and the rows of a store of an earlier revision."""
    windows = _windows_of_first_release(connection) if revision == FIRST_RELEASE else []
    if revision < _REVISIONS:
        _drop_counts(connection)
    _add_missing(connection)
    if revision == FIRST_RELEASE:
        if windows:
            connection.execute(sa.insert(message_windows), windows)
        _keep_comparisons_with_runs(connection)
        _fill_from_results(connection)
        _read_again(connection)
    if revision < _ANY_STATUS:
        _find_newest_runs(connection)
    if revision < _REVISIONS:
        _begin_revisions(connection)


def _add_missing(connection: Connection) -> None:
    """Create the tables, columns and indexes that the store does not have."""
    known, schema = sa.inspect(connection), _schema(connection)
    operations = Operations(MigrationContext.configure(connection))
    there = set(known.get_table_names(schema))
    metadata.create_all(connection)
    for table in metadata.sorted_tables:
        if table.name not in there:
            continue
        names = {column["name"] for column in known.get_columns(table.name, schema)}
        for column in table.columns:
            if column.name not in names:
                operations.add_column(table.name, column._copy(), schema=schema)
        for index in table.indexes:
            connection.execute(sa.schema.CreateIndex(index, if_not_exists=True))


def _schema(connection: Connection) -> str | None:
    """Return the schema of tables that are only named: the map that removes it on SQLite does not apply to them."""
    return None if connection.dialect.name == "sqlite" else SCHEMA


def _keep_comparisons_with_runs(connection: Connection) -> None:
    """Move each comparison with a baseline into its run."""
    shared = ("regressed", "comparison", "findings")
    compared = sa.table(
        "baseline_comparisons", *map(sa.column, ("evaluation_run_id", *shared)), schema=_schema(connection)
    )
    runs = evaluation_runs
    of_run = compared.c.evaluation_run_id == runs.c.id
    own = {name: sa.select(compared.c[name]).where(of_run).scalar_subquery() for name in shared}
    connection.execute(sa.update(runs).where(runs.c.id.in_(sa.select(compared.c.evaluation_run_id))).values(own))
    operations = Operations(MigrationContext.configure(connection))
    operations.drop_table("baseline_comparisons", schema=_schema(connection))
    index = "ix_evaluation_runs_agent_id_window_end"
    operations.drop_index(index, "evaluation_runs", schema=_schema(connection), if_exists=True)


def _fill_from_results(connection: Connection) -> None:
    """Write the columns of runs that are read from their results."""
    runs = evaluation_runs
    query = sa.select(runs.c.id, runs.c.result).where(runs.c.result.is_not(None)).order_by(runs.c.id).limit(_AT_ONCE)
    rows = connection.execute(query).all()
    while rows:
        for row in rows:
            connection.execute(sa.update(runs).where(runs.c.id == row.id).values(_columns_of(row.result)))
        rows = connection.execute(query.where(runs.c.id > rows[-1].id)).all()


def _columns_of(result: dict[str, Any]) -> dict[str, Any]:
    provenance, dimensions = result.get("provenance", {}), result.get("dimensions", {})
    points = {
        name: {
            "score": item.get("score"),
            "samples": max((len(row.get("samples", ())) for row in item.get("propositions", {}).values()), default=1)
            or 1,
            "claims": item.get("proposition_set_hash"),
        }
        for name, item in dimensions.items()
    }
    judged = [provenance.get("judge_model"), provenance.get("prompt_version")]
    short = {
        name: {key: value for key, value in item.items() if key not in ("propositions", "statistics")}
        for name, item in dimensions.items()
    }
    claims = dimensions.get("adherence", {}).get("propositions", {}).values()
    return {
        "summary": {"overall": result.get("overall"), "dimensions": points, "judged_by": judged},
        "outline": {**result, "dimensions": short},
        "message_scores": _message_scores(claims) or None,
    }


def _message_scores(claims: Any) -> dict[str, float]:
    """Return the weighted mean of the claims about each message that was judged alone, turned where a claim is inverted."""
    found: dict[str, list[tuple[float, float]]] = {}
    for claim in claims:
        weight = claim.get("weight", 1.0)
        for part in claim.get("parts", ()):
            if part.get("raw") is not None and weight > 0:
                score = 9 - float(part["raw"]) if claim.get("inverted") else float(part["raw"])
                found.setdefault(str(part["part"]), []).append((score, weight))
    return {key: sum(s * w for s, w in pairs) / sum(w for _, w in pairs) for key, pairs in found.items()}


def _windows_of_first_release(connection: Connection) -> list[dict[str, Any]]:
    """Return the windows that agents were evaluated on, and drop the table that kept only the newest of each."""
    schema = _schema(connection)
    bounds = {"agent_id": sa.Text(), "window_start": UtcDateTime(), "window_end": UtcDateTime()}
    runs, kept = (
        sa.table(name, *(sa.column(key, kind) for key, kind in bounds.items()), sa.column("synthetic"), schema=schema)
        for name in ("evaluation_runs", "message_windows")
    )
    counted = (runs.c.synthetic.is_(sa.false()), runs.c.window_end.is_not(None))
    queries = (
        sa.select(*(runs.c[name] for name in bounds)).where(*counted),
        sa.select(*(kept.c[name] for name in bounds)),
    )
    found = {tuple(row) for query in queries for row in connection.execute(query)}
    Operations(MigrationContext.configure(connection)).drop_table("message_windows", schema=schema)
    return [{"id": _window_id(*row), **dict(zip(bounds, row, strict=True))} for row in found]


def _window_id(agent_id: str, start: Any, end: Any) -> uuid.UUID:
    # The id that the world gives to windows, copied here: migrated windows keep it when the world changes it.
    text = "\x1f".join([agent_id, start.isoformat() if start else "", end.isoformat()])
    return uuid.UUID(bytes=hashlib.sha256(text.encode()).digest()[:16], version=5)


def _drop_counts(connection: Connection) -> None:
    """Drop what earlier releases counted of messages, and the triggers for it."""
    if schema := _schema(connection):
        connection.execute(sa.text(f"DROP FUNCTION IF EXISTS {schema}.count_messages CASCADE"))
    else:
        for what in ("replaced", "inserted", "deleted", "updated"):
            connection.execute(sa.text(f"DROP TRIGGER IF EXISTS count_{what}"))
    for name in ("message_changes", "message_days", "message_totals"):
        connection.execute(sa.schema.DropTable(sa.Table(name, sa.MetaData(schema=schema)), if_exists=True))


def _begin_revisions(connection: Connection) -> None:
    """Create the triggers that note changes of messages. Every agent with messages begins at 1: it is looked at once more."""
    create_triggers(connection)
    said, utc = run_messages.c, sa.func.timezone("UTC", run_messages.c.created_at)
    day = (
        sa.cast(utc, sa.Date())
        if _schema(connection)
        else sa.func.coalesce(sa.func.date(said.created_at), "0001-01-01")
    )
    days = sa.select(said.agent_id, day, sa.literal(0)).distinct()
    connection.execute(sa.insert(message_days).from_select(["agent_id", "day", "revision"], days))
    agents = sa.select(said.agent_id, sa.literal(1), sa.literal(1)).distinct()
    connection.execute(sa.insert(message_revisions).from_select(["agent_id", "revision", "judged"], agents))


def _read_again(connection: Connection) -> None:
    """Have files read again of which lines were left out for an unknown key: such lines are messages now."""
    sources, copies = message_sources, message_copies
    lost = sa.cast(sources.c.problems, sa.Text()).like("%unknown %")
    connection.execute(sa.delete(copies).where(copies.c.path.in_(sa.select(sources.c.path).where(lost))))
    again = {"size": 0, "lines": 0, "content_hash": "", "seen": sa.null(), "unfinished": True, "problems": sa.null()}
    connection.execute(sa.update(sources).where(lost).values(reading=sources.c.reading + 1, **again))


def _find_newest_runs(connection: Connection) -> None:
    """Note each agent's newest run of any status."""
    runs = evaluation_runs
    finished = runs.c.status.in_(("completed", "failed"))
    order = (runs.c.window_end, runs.c.whole, finished, runs.c.completed_at, runs.c.id)
    place = sa.func.row_number().over(partition_by=runs.c.agent_id, order_by=[item.desc() for item in order])
    ranked = (
        sa.select(runs.c.agent_id, runs.c.id, place.label("place")).where(runs.c.synthetic.is_(sa.false())).subquery()
    )
    newest = sa.select(ranked.c.agent_id, ranked.c.id).where(ranked.c.place == 1)
    connection.execute(sa.delete(newest_runs))
    connection.execute(sa.insert(newest_runs).from_select(["agent_id", "run_id"], newest))
