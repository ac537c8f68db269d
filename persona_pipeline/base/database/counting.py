"""What agents said is counted as it is written, by whomever: triggers of the database note whose messages of which day changed."""

import sqlalchemy as sa
from sqlalchemy.engine import Connection

_SQLITE_MARK = """
INSERT INTO message_changes (agent_id, day)
SELECT {agent_id}, coalesce(date({at}), '0001-01-01') {source}
{word} NOT EXISTS (
    SELECT 1 FROM message_changes WHERE agent_id = {agent_id} AND day = coalesce(date({at}), '0001-01-01')
);
"""
_NEW = _SQLITE_MARK.format(agent_id="NEW.agent_id", at="NEW.created_at", source="", word="WHERE")
_OLD = _SQLITE_MARK.format(agent_id="OLD.agent_id", at="OLD.created_at", source="", word="WHERE")
# INSERT OR REPLACE takes the row of its id away without a trigger of its own.
_REPLACED = _SQLITE_MARK.format(
    agent_id="run_messages.agent_id",
    at="run_messages.created_at",
    source="FROM run_messages WHERE run_messages.id = NEW.id",
    word="AND",
)
_SAID = ("id", "agent_id", "channel_id", "recipient_id", "text", "created_at", "synthetic")
_SQLITE = (
    f"CREATE TRIGGER count_replaced BEFORE INSERT ON run_messages BEGIN {_REPLACED} END",
    f"CREATE TRIGGER count_inserted AFTER INSERT ON run_messages BEGIN {_NEW} END",
    f"CREATE TRIGGER count_deleted AFTER DELETE ON run_messages BEGIN {_OLD} END",
    f"CREATE TRIGGER count_updated AFTER UPDATE OF {', '.join(_SAID)} ON run_messages "
    f"WHEN {' OR '.join(f'OLD.{name} IS NOT NEW.{name}' for name in _SAID)} BEGIN {_OLD} {_NEW} END",
)


def _said(table: str) -> str:
    return ", ".join(f"{table}.{name}" for name in _SAID)


# A row for every statement, unique or not: a writer never waits for another one. SECURITY DEFINER: who may write messages need
# not be allowed more.
_POSTGRES = (
    f"""
CREATE FUNCTION persona.count_messages() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO persona.message_changes (agent_id, day)
        SELECT DISTINCT agent_id, (created_at AT TIME ZONE 'UTC')::date FROM new_rows;
    ELSIF TG_OP = 'DELETE' THEN
        INSERT INTO persona.message_changes (agent_id, day)
        SELECT DISTINCT agent_id, (created_at AT TIME ZONE 'UTC')::date FROM old_rows;
    ELSIF TG_OP = 'UPDATE' THEN
        INSERT INTO persona.message_changes (agent_id, day)
        SELECT DISTINCT said.agent_id, (said.created_at AT TIME ZONE 'UTC')::date
        FROM old_rows FULL JOIN new_rows ON old_rows.id = new_rows.id
        CROSS JOIN LATERAL (
            VALUES (old_rows.agent_id, old_rows.created_at), (new_rows.agent_id, new_rows.created_at)
        ) AS said (agent_id, created_at)
        WHERE said.agent_id IS NOT NULL AND ({_said("old_rows")}) IS DISTINCT FROM ({_said("new_rows")});
    ELSE
        INSERT INTO persona.message_changes (agent_id, day) SELECT agent_id, day FROM persona.message_days;
    END IF;
    RETURN NULL;
END $$""",  # noqa: S608
    "CREATE TRIGGER count_inserted AFTER INSERT ON persona.run_messages REFERENCING NEW TABLE AS new_rows "
    "FOR EACH STATEMENT EXECUTE FUNCTION persona.count_messages()",
    "CREATE TRIGGER count_deleted AFTER DELETE ON persona.run_messages REFERENCING OLD TABLE AS old_rows "
    "FOR EACH STATEMENT EXECUTE FUNCTION persona.count_messages()",
    "CREATE TRIGGER count_updated AFTER UPDATE ON persona.run_messages REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows "
    "FOR EACH STATEMENT EXECUTE FUNCTION persona.count_messages()",
    "CREATE TRIGGER count_truncated AFTER TRUNCATE ON persona.run_messages "
    "FOR EACH STATEMENT EXECUTE FUNCTION persona.count_messages()",
)


def count_messages(connection: Connection) -> None:
    """Create the triggers."""
    for statement in _SQLITE if connection.dialect.name == "sqlite" else _POSTGRES:
        connection.execute(sa.text(statement))
