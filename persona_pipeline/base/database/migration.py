"""Bring a store of release 0.2 to the current schema by adding missing tables, columns and indexes."""

import sqlalchemy as sa
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy.engine import Connection

from persona_pipeline.base.database.tables import (
    SCHEMA,
    evaluation_runs,
    message_days,
    message_revisions,
    metadata,
    newest_runs,
    run_messages,
)
from persona_pipeline.base.database.triggers import create_triggers


def migrate(connection: Connection) -> None:
    """Change the schema and the rows of a store of release 0.2."""
    _drop_counts(connection)
    _add_missing(connection)
    _find_newest_runs(connection)
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


def _drop_counts(connection: Connection) -> None:
    """Drop counts and copies of messages of earlier releases, and their triggers."""
    if schema := _schema(connection):
        connection.execute(sa.text(f"DROP FUNCTION IF EXISTS {schema}.count_messages CASCADE"))
    else:
        for what in ("replaced", "inserted", "deleted", "updated"):
            connection.execute(sa.text(f"DROP TRIGGER IF EXISTS count_{what}"))
    for name in ("message_changes", "message_copies", "message_days", "message_totals"):
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
