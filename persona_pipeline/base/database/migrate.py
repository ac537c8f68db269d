"""Bringing a database to the newest schema, once, whoever else opens it at the same time."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from persona_pipeline.base.database.tables import SCHEMA
from persona_pipeline.base.errors import ConfigError

MIGRATIONS = Path(__file__).parent / "migrations"
# Read without importing Alembic, which every start would pay for; a test holds it equal to Alembic's own head.
HEAD = "0010"
# Steps that were never released; the second release takes a store from wherever among them it stands.
_UNRELEASED = tuple(f"000{step}" for step in range(2, 10))
_ADVISORY_LOCK = 0x706572736F6E61


def current_revision(connection: Connection) -> str | None:
    """Return the schema's revision, None for an empty database."""
    schema = None if connection.dialect.name == "sqlite" else SCHEMA
    if not sa.inspect(connection).has_table("alembic_version", schema=schema):
        return None
    table = sa.table("alembic_version", sa.column("version_num"), schema=schema)
    return connection.execute(sa.select(table.c.version_num)).scalar()


def upgrade(engine: Engine) -> None:
    """Run the pending migrations; does nothing when there is none.

    Raises:
        ConfigError: the database was written by a newer version of this package.
    """
    with engine.connect() as connection:
        revision = current_revision(connection)
    if revision == HEAD:
        return
    if revision is not None and revision > HEAD:
        raise ConfigError(
            f"the store's schema is {revision}, newer than this version's {HEAD}; upgrade persona-pipeline"
        )
    from alembic import command

    with _exclusive(engine) as connection:
        if current_revision(connection) in _UNRELEASED:
            schema = None if connection.dialect.name == "sqlite" else SCHEMA
            connection.execute(
                sa.table("alembic_version", sa.column("version_num"), schema=schema).update().values(version_num="0001")
            )
        command.upgrade(alembic_config(connection), "head")


def alembic_config(connection: Connection):
    """Return Alembic's configuration bound to a connection."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    return config


@contextmanager
def _exclusive(engine: Engine) -> Iterator[Connection]:
    """One migration at a time: a lock file beside SQLite's file, an advisory lock on Postgres."""
    if engine.dialect.name != "sqlite":
        with engine.begin() as connection:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_ADVISORY_LOCK)))
            connection.execute(sa.schema.CreateSchema(SCHEMA, if_not_exists=True))
            yield connection
        return
    database = engine.url.database
    if not database or database == ":memory:":
        with engine.begin() as connection:
            yield connection
        return
    from filelock import FileLock

    with FileLock(f"{database}.lock"), engine.execution_options(writes=True).begin() as connection:
        yield connection
