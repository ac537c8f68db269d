"""What all hosts know of one another: who works on what, what is spent, what was asked for and last counted."""

import sqlalchemy as sa

from persona_pipeline.store.tables.columns import created_at, metadata
from persona_pipeline.store.types import JsonColumn, UtcDateTime

# A lease that is not renewed runs out.
leases = sa.Table(
    "leases",
    metadata,
    sa.Column("name", sa.Text(), primary_key=True),
    sa.Column("holder", sa.Text(), nullable=False),
    sa.Column("expires_at", UtcDateTime(), nullable=False),
)

remembered = sa.Table(
    "remembered",
    metadata,
    # Short facts about the store itself: what its names were brought in line with, and its last full count.
    sa.Column("name", sa.Text(), primary_key=True),
    sa.Column("value", JsonColumn),
    created_at("updated_at"),
)

spending_days = sa.Table(
    "spending_days",
    metadata,
    # US dollars all live judges together spent or set aside on a UTC day.
    sa.Column("day", sa.Date(), primary_key=True),
    sa.Column("usd", sa.Float(), nullable=False, server_default="0"),
)

evaluations_asked = sa.Table(
    "evaluations_asked",
    metadata,
    # When a sensor, on whatever host, last asked for an agent's evaluation.
    sa.Column("agent_id", sa.Text(), primary_key=True),
    sa.Column("asked_at", UtcDateTime(), nullable=False),
)
