"""What all tables share: their schema, how constraints are named, and the columns that come again and again."""

import uuid
from typing import Any

import sqlalchemy as sa

from persona_pipeline.store.types import UtcDateTime, random_uuid

SCHEMA = "persona"
# On Postgres the tables live in a schema of their own: Dagster has a `runs` table too. SQLite has none; engine.py maps it away.
metadata = sa.MetaData(
    schema=SCHEMA,
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    },
)


def uuid_key() -> sa.Column[uuid.UUID]:
    return sa.Column("id", sa.Uuid(), primary_key=True, default=uuid.uuid4, server_default=random_uuid())


def created_at(name: str = "created_at") -> sa.Column:
    return sa.Column(name, UtcDateTime(), nullable=False, server_default=sa.func.now())


def agent_column(**options: Any) -> sa.Column[str]:
    return sa.Column(
        "agent_id",
        sa.Text(),
        sa.ForeignKey(f"{SCHEMA}.agents.id", ondelete="CASCADE"),
        nullable=False,
        **options,
    )
