"""A run keeps its verdict, and the newest run of an agent is the newest of any status."""

import sqlalchemy as sa
from alembic import op

from persona_pipeline.base.database.tables import JsonColumn

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

_FINISHED = ("completed", "failed")


def upgrade() -> None:
    op.add_column("evaluation_runs", sa.Column("verdict", JsonColumn), schema=_schema())
    columns = ("id", "agent_id", "status", "synthetic", "window_end", "whole", "completed_at")
    runs = sa.table("evaluation_runs", *map(sa.column, columns), schema=_schema())
    newest = sa.table("newest_runs", sa.column("agent_id"), sa.column("run_id"), schema=_schema())
    finished = runs.c.status.in_(_FINISHED)
    order = (runs.c.window_end, runs.c.whole, finished, runs.c.completed_at, runs.c.id)
    place = sa.func.row_number().over(partition_by=runs.c.agent_id, order_by=[item.desc() for item in order])
    ranked = (
        sa.select(runs.c.agent_id, runs.c.id, place.label("place")).where(runs.c.synthetic.is_(sa.false())).subquery()
    )
    counting = sa.select(ranked.c.agent_id, ranked.c.id).where(ranked.c.place == 1)
    op.execute(newest.delete())
    op.execute(newest.insert().from_select(["agent_id", "run_id"], counting))


def downgrade() -> None:
    op.drop_column("evaluation_runs", "verdict", schema=_schema())


def _schema() -> str | None:
    """ALTER TABLE and named tables do not see the map that removes the schema on SQLite."""
    return None if op.get_bind().dialect.name == "sqlite" else "persona"
