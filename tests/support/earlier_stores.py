"""Stores as earlier releases left them: their steps stand in ``tests/store/unreleased``, each in the words of its time."""

from pathlib import Path

import sqlalchemy as sa
from alembic import command
from sqlalchemy.engine import Connection

from persona_pipeline.base.database.engine import alembic_config

_STEPS = Path(__file__).parents[1] / "store" / "unreleased"


def bring_to(connection: Connection, step: str) -> None:
    """Bring a database to a step, ``0001`` to ``0010``."""
    if connection.dialect.name != "sqlite":
        connection.execute(sa.schema.CreateSchema("persona", if_not_exists=True))
    config = alembic_config(connection)
    config.set_main_option("version_locations", str(_STEPS))
    command.upgrade(config, step)
