"""What is known of traces is kept for a while: what comes later of one may tell whose words they were."""

import sqlalchemy as sa
from alembic import op

from persona_pipeline.base.database.tables import JsonColumn, UtcDateTime

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "trace_pieces",
        sa.Column("trace_id", sa.Text(), nullable=False),
        sa.Column("span_id", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("piece", JsonColumn, nullable=False),
        sa.Column("received_at", UtcDateTime(), nullable=False, server_default=sa.func.now()),
        sa.PrimaryKeyConstraint("trace_id", "span_id", "key", name="pk_trace_pieces"),
        schema="persona",
    )
    op.create_index("ix_trace_pieces_received_at", "trace_pieces", ["received_at"], schema="persona")


def downgrade() -> None:
    op.drop_table("trace_pieces", schema="persona")
