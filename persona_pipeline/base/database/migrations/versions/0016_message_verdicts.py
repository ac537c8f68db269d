"""A verdict for each message: in character, out of character, or unclear."""

from alembic import op

from persona_pipeline.base.database.tables import message_verdicts

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    message_verdicts.create(op.get_bind())


def downgrade() -> None:
    message_verdicts.drop(op.get_bind())
