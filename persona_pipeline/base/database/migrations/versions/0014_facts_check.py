"""The gate may hold texts against what the agent said of itself: a setting of each agent."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

_TABLE, _NAME = "agent_evaluation_config", "facts_check"


def upgrade() -> None:
    op.add_column(_TABLE, sa.Column(_NAME, sa.Boolean(), nullable=False, server_default=sa.false()), schema=_schema())


def downgrade() -> None:
    op.drop_column(_TABLE, _NAME, schema=_schema())


def _schema() -> str | None:
    """ALTER TABLE knows nothing of the map that takes the schema away on SQLite."""
    return None if op.get_bind().dialect.name == "sqlite" else "persona"
