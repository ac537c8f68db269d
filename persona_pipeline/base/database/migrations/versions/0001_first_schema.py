"""Where stores of the first release stand. New ones are made as the tables say; tests have the schema as it was."""

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    raise NotImplementedError
