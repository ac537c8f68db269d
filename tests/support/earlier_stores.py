"""Stores as the first release wrote them: ``tests/store/first_release`` holds its schema."""

import runpy
from pathlib import Path

import sqlalchemy as sa
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy.engine import Connection

from persona_pipeline.base.database.engine import write_revision

_SCHEMA = Path(__file__).parents[1] / "store" / "first_release" / "0001_first_schema.py"


def write_first_schema(connection: Connection) -> None:
    """Write the tables of the first release."""
    if connection.dialect.name != "sqlite":
        connection.execute(sa.schema.CreateSchema("persona", if_not_exists=True))
    with Operations.context(MigrationContext.configure(connection)):
        runpy.run_path(str(_SCHEMA))["upgrade"]()
    write_revision(connection, "0001")
