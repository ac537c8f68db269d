"""Stores as the first release wrote them: ``tests/store/first_release`` holds its schema."""

from pathlib import Path

import sqlalchemy as sa
from alembic import command
from sqlalchemy.engine import Connection

from persona_pipeline.base.database.engine import alembic_config

_STEPS = Path(__file__).parents[1] / "store" / "first_release"


def write_first_schema(connection: Connection) -> None:
    """Write the tables of the first release."""
    if connection.dialect.name != "sqlite":
        connection.execute(sa.schema.CreateSchema("persona", if_not_exists=True))
    config = alembic_config(connection)
    config.set_main_option("version_locations", str(_STEPS))
    command.upgrade(config, "0001")
