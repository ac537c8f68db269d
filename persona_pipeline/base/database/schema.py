"""A store's schema beyond its tables: triggers that note changes of messages, and what brings a store of release 0.2 up to date."""

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from persona_pipeline.base.database.tables import SCHEMA, message_revisions, metadata, run_messages

_SAID = ("id", "agent_id", "channel_id", "recipient_id", "text", "created_at", "synthetic")
# A runtime may write times in another form, or no time at all.
_TIME = "coalesce(strftime('%Y-%m-%d %H:%M:%f000', {row}.created_at), '0001-01-01 00:00:00.000000')"


def _sqlite_note(row: str, source: str = "", where: str = "TRUE") -> str:
    at = _TIME.format(row=row)
    note = f"SELECT {row}.agent_id, {at} {source} WHERE NOT {row}.synthetic AND ({where});"
    return f"INSERT INTO message_changes (agent_id, said_at) {note}"


# INSERT OR REPLACE removes the old row without a trigger. Where agent and time stay, the new row's note suffices.
_REPLACED = _sqlite_note(
    "run_messages",
    "FROM run_messages",
    "run_messages.id = NEW.id AND (run_messages.agent_id IS NOT NEW.agent_id "
    "OR run_messages.created_at IS NOT NEW.created_at OR NEW.synthetic)",
)
_CHANGED = " OR ".join(f"OLD.{name} IS NOT NEW.{name}" for name in _SAID)
_SQLITE = {
    "note_replaced": f"BEFORE INSERT ON run_messages BEGIN {_REPLACED} END",
    "note_inserted": f"AFTER INSERT ON run_messages BEGIN {_sqlite_note('NEW')} END",
    "note_deleted": f"AFTER DELETE ON run_messages BEGIN {_sqlite_note('OLD')} END",
    "note_updated": f"AFTER UPDATE OF {', '.join(_SAID)} ON run_messages WHEN {_CHANGED} "
    f"BEGIN {_sqlite_note('OLD')} {_sqlite_note('NEW')} END",
}


def _said(table: str) -> str:
    return ", ".join(f"{table}.{name}" for name in _SAID)


# Each note is a separate row, so a writer never waits for another. SECURITY DEFINER: writers of messages need no other rights.
_FUNCTION = f"""
CREATE FUNCTION persona.note_messages() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO persona.message_changes (agent_id, said_at)
        SELECT agent_id, created_at FROM new_rows WHERE NOT synthetic;
    ELSIF TG_OP = 'DELETE' THEN
        INSERT INTO persona.message_changes (agent_id, said_at)
        SELECT agent_id, created_at FROM old_rows WHERE NOT synthetic;
    ELSIF TG_OP = 'UPDATE' THEN
        INSERT INTO persona.message_changes (agent_id, said_at)
        SELECT said.agent_id, said.created_at
        FROM old_rows FULL JOIN new_rows ON old_rows.id = new_rows.id
        CROSS JOIN LATERAL (
            VALUES (old_rows.agent_id, old_rows.created_at, old_rows.synthetic),
                (new_rows.agent_id, new_rows.created_at, new_rows.synthetic)
        ) AS said (agent_id, created_at, synthetic)
        WHERE NOT said.synthetic AND ({_said("old_rows")}) IS DISTINCT FROM ({_said("new_rows")});
    ELSE
        -- The rows are gone: each window that an agent was evaluated on has changed, and each agent once.
        INSERT INTO persona.message_changes (agent_id, said_at)
        SELECT agent_id, window_end FROM persona.message_windows
        UNION ALL SELECT agent_id, now() FROM persona.message_revisions;
    END IF;
    RETURN NULL;
END $$"""  # noqa: S608
_POSTGRES = {
    "note_inserted": "INSERT ON persona.run_messages REFERENCING NEW TABLE AS new_rows",
    "note_deleted": "DELETE ON persona.run_messages REFERENCING OLD TABLE AS old_rows",
    "note_updated": "UPDATE ON persona.run_messages REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows",
    "note_truncated": "TRUNCATE ON persona.run_messages",
}


def create_triggers(connection: Connection) -> None:
    """Create the triggers that note agent and time of each message written, edited or removed, in the writer's transaction."""
    if connection.dialect.name == "sqlite":
        statements = [f"CREATE TRIGGER {name} {what}" for name, what in _SQLITE.items()]
    else:
        each = "FOR EACH STATEMENT EXECUTE FUNCTION persona.note_messages()"
        statements = [_FUNCTION, *(f"CREATE TRIGGER {name} AFTER {what} {each}" for name, what in _POSTGRES.items())]
    for statement in statements:
        connection.exec_driver_sql(statement)


def migrate(connection: Connection) -> None:
    """Change the schema and the rows of a store of release 0.2."""
    _drop_counts(connection)
    _add_missing(connection)
    create_triggers(connection)
    # Every agent with messages begins at 1: it is looked at once more.
    agents = sa.select(run_messages.c.agent_id, sa.literal(1)).distinct()
    connection.execute(sa.insert(message_revisions).from_select(["agent_id", "revision"], agents))


def _add_missing(connection: Connection) -> None:
    """Create the tables, columns and indexes that the store does not have."""
    from alembic.migration import MigrationContext
    from alembic.operations import Operations

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
