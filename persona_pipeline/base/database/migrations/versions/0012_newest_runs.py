"""Which run of each agent is the newest is kept, and no longer looked for among all."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

_SCHEMA = "persona"


def upgrade() -> None:
    key = sa.PrimaryKeyConstraint("agent_id", name=op.f("pk_newest_runs"))
    columns = (sa.Column("agent_id", sa.Text(), nullable=False), sa.Column("run_id", sa.Uuid()))
    kept = op.create_table("newest_runs", *columns, key, schema=_SCHEMA)
    order = ("window_end", "whole", "completed_at", "id")
    runs = sa.table("evaluation_runs", *map(sa.column, ("agent_id", "status", "synthetic", *order)), schema=_SCHEMA)
    newest_first = [runs.c[name].desc() for name in order]
    place = sa.func.row_number().over(partition_by=runs.c.agent_id, order_by=newest_first).label("place")
    finished = (runs.c.status == "completed", runs.c.synthetic.is_(sa.false()))
    ranked = sa.select(runs.c.agent_id, runs.c.id, place).where(*finished).subquery()
    newest = sa.select(ranked.c.agent_id, ranked.c.id).where(ranked.c.place == 1)
    op.execute(kept.insert().from_select(["agent_id", "run_id"], newest))


def downgrade() -> None:
    op.drop_table("newest_runs", schema=_SCHEMA)
