"""Message files are read from where they were read last, and what agents said is counted as it is written, by whomever."""

import sqlalchemy as sa
from alembic import op

from persona_pipeline.base.database.tables import JsonColumn, UtcDateTime

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

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


def _columns(table: str) -> str:
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
        WHERE said.agent_id IS NOT NULL AND ({_columns("old_rows")}) IS DISTINCT FROM ({_columns("new_rows")});
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


def upgrade() -> None:
    schema = _schema()
    for name in ("line", "reading"):
        op.add_column("run_messages", sa.Column(name, sa.Integer(), nullable=True), schema=schema)
    op.create_index(op.f("ix_run_messages_source"), "run_messages", ["source"], schema="persona")
    for column in (
        sa.Column("size", sa.BigInteger(), nullable=True),
        sa.Column("lines", sa.Integer(), server_default="0", nullable=False),
        sa.Column("seen", sa.Text(), nullable=True),
        sa.Column("reading", sa.Integer(), server_default="0", nullable=False),
        sa.Column("unfinished", sa.Boolean(), server_default=sa.false(), nullable=False),
    ):
        op.add_column("message_sources", column, schema=schema)
    _create_tables()
    op.create_index(op.f("ix_message_copies_path"), "message_copies", ["path"], schema="persona")
    op.create_index(op.f("ix_message_changes_agent_id_day"), "message_changes", ["agent_id", "day"], schema="persona")
    for statement in _POSTGRES if schema else _SQLITE:
        op.execute(statement)
    # What is there is counted at the next look, agent by agent; the databases sort this out themselves.
    day = "(created_at AT TIME ZONE 'UTC')::date" if schema else "coalesce(date(created_at), '0001-01-01')"
    dot = f"{schema}." if schema else ""
    op.execute(
        f"INSERT INTO {dot}message_changes (agent_id, day) SELECT DISTINCT agent_id, {day} FROM {dot}run_messages"  # noqa: S608
    )


def downgrade() -> None:
    for name in ("inserted", "deleted", "updated", *(["truncated"] if _schema() else ["replaced"])):
        op.execute(f"DROP TRIGGER count_{name}{' ON persona.run_messages' if _schema() else ''}")
    if _schema():
        op.execute("DROP FUNCTION persona.count_messages()")
    for name in (
        "evaluations_asked",
        "spending_days",
        "remembered",
        "message_totals",
        "message_days",
        "message_changes",
        "message_copies",
    ):
        op.drop_table(name, schema="persona")
    for name in ("unfinished", "reading", "seen", "lines", "size"):
        op.drop_column("message_sources", name, schema=_schema())
    op.drop_index(op.f("ix_run_messages_source"), table_name="run_messages", schema="persona")
    for name in ("reading", "line"):
        op.drop_column("run_messages", name, schema=_schema())


def _create_tables() -> None:
    op.create_table(
        "message_copies",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", "path", name=op.f("pk_message_copies")),
        schema="persona",
    )
    op.create_table(
        "message_changes",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), sa.Identity(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_message_changes")),
        schema="persona",
    )
    op.create_table(
        "message_days",
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("messages", sa.Integer(), nullable=False),
        sa.Column("digest", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("agent_id", "day", name=op.f("pk_message_days")),
        schema="persona",
    )
    op.create_table(
        "message_totals",
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("messages", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.BigInteger(), nullable=False),
        sa.Column("newest", UtcDateTime(), nullable=True),
        sa.Column("unjudged_messages", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("unjudged_digest", sa.BigInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("agent_id", name=op.f("pk_message_totals")),
        schema="persona",
    )
    op.create_table(
        "remembered",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", JsonColumn, nullable=True),
        sa.Column("updated_at", UtcDateTime(), server_default=sa.func.now(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_remembered")),
        schema="persona",
    )
    op.create_table(
        "spending_days",
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("usd", sa.Float(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("day", name=op.f("pk_spending_days")),
        schema="persona",
    )
    op.create_table(
        "evaluations_asked",
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("asked_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("agent_id", name=op.f("pk_evaluations_asked")),
        schema="persona",
    )


def _schema() -> str | None:
    """SQLite has no schemas, and ALTER TABLE is not translated."""
    return None if op.get_bind().dialect.name == "sqlite" else "persona"
