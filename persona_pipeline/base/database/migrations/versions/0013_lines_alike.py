"""Lines that begin or end as another's do are found without reading what everybody said."""

from alembic import op

from persona_pipeline.base.database.tables import run_messages

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_INDEXES = [item for item in run_messages.indexes if item.name in ("ix_run_messages_opening", "ix_run_messages_ending")]


def upgrade() -> None:
    for index in _INDEXES:
        index.create(op.get_bind())


def downgrade() -> None:
    for index in _INDEXES:
        index.drop(op.get_bind())
