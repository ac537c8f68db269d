"""What a source says of a message beyond what is evaluated is kept beside it."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    schema = _schema()
    op.add_column("run_messages", sa.Column("extras", sa.JSON(none_as_null=True), nullable=True), schema=schema)
    # Lines that were left out for a key nobody knew are messages now: such files are read again.
    sources = sa.table(
        "message_sources",
        *map(sa.column, ("path", "size", "lines", "content_hash", "seen", "reading", "problems")),
        sa.column("unfinished", sa.Boolean()),
        schema=schema,
    )
    copies = sa.table("message_copies", sa.column("path"), schema=schema)
    lost = sa.cast(sources.c.problems, sa.Text()).like("%unknown %")
    op.execute(sa.delete(copies).where(copies.c.path.in_(sa.select(sources.c.path).where(lost))))
    again = {"size": 0, "lines": 0, "content_hash": "", "seen": sa.null(), "unfinished": sa.true()}
    op.execute(sa.update(sources).where(lost).values(reading=sources.c.reading + 1, problems=sa.null(), **again))


def downgrade() -> None:
    op.drop_column("run_messages", "extras", schema=_schema())


def _schema() -> str | None:
    """SQLite has no schemas, and ALTER TABLE is not translated."""
    return None if op.get_bind().dialect.name == "sqlite" else "persona"
