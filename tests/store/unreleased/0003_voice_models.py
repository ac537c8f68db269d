"""Learnt voices, for the voice alarm."""

import sqlalchemy as sa
from alembic import op

from persona_pipeline.base.database.tables import JsonColumn, UtcDateTime

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "voice_models",
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("persona_hash", sa.Text(), nullable=False),
        sa.Column("since", UtcDateTime(), nullable=True),
        sa.Column("model", JsonColumn, nullable=True),
        sa.Column("updated_at", UtcDateTime(), server_default=sa.func.now(), nullable=False),
        sa.ForeignKeyConstraint(
            ["agent_id"], ["persona.agents.id"], name=op.f("fk_voice_models_agent_id_agents"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("agent_id", name=op.f("pk_voice_models")),
        schema="persona",
    )


def downgrade() -> None:
    op.drop_table("voice_models", schema="persona")
