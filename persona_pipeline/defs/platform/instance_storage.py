"""Dagster's own storage by environment: Postgres when a URL is set, else SQLite. ``dagster.yaml`` names this class."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from dagster import Field, StringSource
from filelock import FileLock
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.pool import NullPool

from persona_pipeline.defs.platform.dagster_internals import (
    ConfigurableClass,
    ConfigurableClassData,
    DagsterSqliteStorage,
    DagsterStorage,
    SqliteEventLogStorage,
    with_event_log,
)

URL_VARIABLES = ("PERSONA_DAGSTER_DATABASE_URL", "PERSONA_DATABASE_URL")


_BUSY_SECONDS = 60


class KeptEventLog(SqliteEventLogStorage):
    """Dagster's event log on SQLite. Dagster makes an engine for each statement: to keep a few saves a third of an event's time."""

    @contextmanager
    def _connect(self, shard: str) -> Iterator[Connection]:
        with self._db_lock:
            engine = _engine(self.conn_string_for_shard(shard))
            if shard not in self._initialized_dbs:
                self._initdb(engine)
                self._initialized_dbs.add(shard)
            with engine.begin() as connection:
                yield connection


@lru_cache(maxsize=8)
def _engine(url: str) -> Engine:
    # It keeps compiled statements and no connection: files of many runs would stay open, and a fork would share them.
    return sa.create_engine(url, poolclass=NullPool, connect_args={"timeout": _BUSY_SECONDS})


class EnvironmentStorage(DagsterStorage, ConfigurableClass):
    """Postgres at PERSONA_DAGSTER_DATABASE_URL, else at PERSONA_DATABASE_URL when that is Postgres, else SQLite.

    A factory: Dagster requires that the class derives from its storage, and never makes an instance of it.
    """

    @classmethod
    def config_type(cls) -> Mapping[str, Field]:
        return {"base_dir": Field(StringSource)}

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]) -> Any:
        url = postgres_url(os.environ)
        if url is not None:
            from dagster_postgres import DagsterPostgresStorage

            return DagsterPostgresStorage(url, should_autocreate_tables=True, inst_data=inst_data)
        folder = Path(os.environ.get("DAGSTER_HOME") or Path.cwd()) / config_value["base_dir"]
        folder.mkdir(parents=True, exist_ok=True)
        # Dagster checks whether its tables exist and then makes them: two processes that start at once would both make them.
        with FileLock(folder / ".lock"):
            return with_event_log(DagsterSqliteStorage.from_local(str(folder), inst_data), KeptEventLog)


def postgres_url(environment: Mapping[str, str]) -> str | None:
    """Return the URL of Dagster's own Postgres with the driver dagster-postgres needs; None: SQLite."""
    from sqlalchemy.engine import make_url

    for name in URL_VARIABLES:
        if environment.get(name):
            url = make_url(environment[name])
            if url.get_backend_name() == "sqlite":
                return None
            # SQLAlchemy 2.1 reads a bare postgresql:// as psycopg 3; dagster-postgres ships psycopg2.
            return url.set(drivername="postgresql+psycopg2").render_as_string(hide_password=False)
    return None
