"""Corrections may only watch: a setting of each agent, and a mark on the checks that changed nothing."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_COLUMNS = {"agent_evaluation_config": "shadow_mode", "gate_checks": "shadow"}


def upgrade() -> None:
    for table, name in _COLUMNS.items():
        column = sa.Column(name, sa.Boolean(), nullable=False, server_default=sa.false())
        op.add_column(table, column, schema=_schema())


def downgrade() -> None:
    for table, name in _COLUMNS.items():
        op.drop_column(table, name, schema=_schema())


def _schema() -> str | None:
    """SQLite has no schemas, and ALTER TABLE is not translated."""
    return None if op.get_bind().dialect.name == "sqlite" else "persona"
