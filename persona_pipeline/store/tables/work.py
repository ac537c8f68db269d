"""Who works on what just now; a lease that is not renewed runs out."""

import sqlalchemy as sa

from persona_pipeline.store.tables.columns import metadata
from persona_pipeline.store.types import UtcDateTime

leases = sa.Table(
    "leases",
    metadata,
    sa.Column("name", sa.Text(), primary_key=True),
    sa.Column("holder", sa.Text(), nullable=False),
    sa.Column("expires_at", UtcDateTime(), nullable=False),
)
