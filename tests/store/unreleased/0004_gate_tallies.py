"""What the gate did by day, and what went past it."""

import sqlalchemy as sa
from alembic import op

from persona_pipeline.base.database.tables import JsonColumn, UtcDateTime, random_uuid

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    counted = sa.Column("counted", sa.Boolean(), server_default=sa.false(), nullable=False)
    op.add_column("gate_checks", counted, schema=_schema())
    op.create_index(
        op.f("ix_gate_checks_agent_id_action_id"), "gate_checks", ["agent_id", "action_id"], schema="persona"
    )
    op.create_index(
        "ix_gate_checks_uncounted",
        "gate_checks",
        ["created_at"],
        schema="persona",
        sqlite_where=sa.text("counted = 0"),
        postgresql_where=sa.text("NOT counted"),
    )
    op.create_table(
        "gate_days",
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("tally", JsonColumn, nullable=False),
        sa.ForeignKeyConstraint(
            ["agent_id"], ["persona.agents.id"], name=op.f("fk_gate_days_agent_id_agents"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("agent_id", "day", name=op.f("pk_gate_days")),
        schema="persona",
    )
    op.create_table(
        "gate_bypasses",
        sa.Column("id", sa.Uuid(), server_default=random_uuid(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=True),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("created_at", UtcDateTime(), server_default=sa.func.now(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_gate_bypasses")),
        schema="persona",
    )
    op.create_index(op.f("ix_gate_bypasses_created_at"), "gate_bypasses", ["created_at"], schema="persona")


def downgrade() -> None:
    op.drop_table("gate_bypasses", schema="persona")
    op.drop_table("gate_days", schema="persona")
    op.drop_index("ix_gate_checks_uncounted", table_name="gate_checks", schema="persona")
    op.drop_index(op.f("ix_gate_checks_agent_id_action_id"), table_name="gate_checks", schema="persona")
    op.drop_column("gate_checks", "counted", schema=_schema())


def _schema() -> str | None:
    """SQLite has no schemas, and ALTER TABLE is not translated."""
    return None if op.get_bind().dialect.name == "sqlite" else "persona"
