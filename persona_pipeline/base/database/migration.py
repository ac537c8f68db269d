"""Bring a store of release 0.2 to the current schema by adding missing tables, columns and indexes."""

import sqlalchemy as sa
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy.engine import Connection

from persona_pipeline.base.database.tables import SCHEMA, message_revisions, metadata, run_messages
from persona_pipeline.base.database.triggers import create_triggers


def migrate(connection: Connection) -> None:
    """Change the schema and the rows of a store of release 0.2."""
    _drop_counts(connection)
    _add_missing(connection)
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
    """Drop counts and copies of messages, claims and newest runs of earlier releases, and their triggers."""
    if schema := _schema(connection):
        connection.execute(sa.text(f"DROP FUNCTION IF EXISTS {schema}.count_messages CASCADE"))
    else:
        for what in ("replaced", "inserted", "deleted", "updated"):
            connection.execute(sa.text(f"DROP TRIGGER IF EXISTS count_{what}"))
    for name in (
        "message_changes",
        "message_copies",
        "message_days",
        "message_totals",
        "newest_runs",
        "proposition_sets",
    ):
        connection.execute(sa.schema.DropTable(sa.Table(name, sa.MetaData(schema=schema)), if_exists=True))


def _begin_revisions(connection: Connection) -> None:
    """Create the triggers that note changes of messages. Every agent with messages begins at 1: it is looked at once more."""
    create_triggers(connection)
    agents = sa.select(run_messages.c.agent_id, sa.literal(1)).distinct()
    connection.execute(sa.insert(message_revisions).from_select(["agent_id", "revision"], agents))
