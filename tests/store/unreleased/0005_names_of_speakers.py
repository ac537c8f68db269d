"""What a source calls an agent is kept beside whose message it is, and so is what a person took out."""

import sqlalchemy as sa
from alembic import op

from persona_pipeline.base.database.tables import UtcDateTime

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_INDEXES = (["recipient_id"], ["speaker", "agent_id"], ["addressee", "recipient_id"])


def upgrade() -> None:
    for name in ("speaker", "addressee"):
        op.add_column("run_messages", sa.Column(name, sa.Text(), nullable=True), schema=_schema())
    for columns in _INDEXES:
        where = sa.text(f"{columns[0]} IS NOT NULL") if len(columns) > 1 else None
        op.create_index(
            _name(columns), "run_messages", columns, schema="persona", sqlite_where=where, postgresql_where=where
        )
    op.create_table(
        "removed_messages",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("content_hash", sa.Text(), nullable=False),
        sa.Column("created_at", UtcDateTime(), server_default=sa.func.now(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_removed_messages")),
        schema="persona",
    )


def downgrade() -> None:
    op.drop_table("removed_messages", schema="persona")
    for columns in _INDEXES:
        op.drop_index(_name(columns), table_name="run_messages", schema="persona")
    for name in ("speaker", "addressee"):
        op.drop_column("run_messages", name, schema=_schema())


def _name(columns: list[str]) -> str:
    return op.f(f"ix_run_messages_{'_'.join(columns)}")


def _schema() -> str | None:
    """SQLite has no schemas, and ALTER TABLE is not translated."""
    return None if op.get_bind().dialect.name == "sqlite" else "persona"
