"""Dagster's own storage by environment: SQLite, or Postgres when a URL is set; what one asset is said is written in batches."""

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from pathlib import Path
from typing import Any

import dagster as dg
import sqlalchemy as sa
from dagster import Field, StringSource
from filelock import FileLock
from sqlalchemy import event
from sqlalchemy.engine import Connection, Engine

from persona_pipeline.base.database.engine import ask_when_idle
from persona_pipeline.defs.platform.dagster_internals import (
    CHECKED,
    INDEX_SHARD_NAME,
    MATERIALIZED,
    OBSERVED,
    ConfigurableClass,
    ConfigurableClassData,
    DagsterStorage,
    SqlEventLogStorageTable,
    SqliteEventLogStorage,
    event_log_of,
    postgres_storage,
    sqlite_storage,
)

_BUSY_SECONDS = 60


class Batching:
    """What an event log derives from that holds back what is found about one asset until a batch of it is complete.

    Dagster itself writes batches (``store_event_batch``), but only of what an asset returns for many partitions at once, which
    then all have one version.
    """

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Hold back the materializations and observations of one asset that this thread writes, and write them at the end."""
        held: list[dg.EventLogEntry] = []
        _holding.events = held
        try:
            yield
        finally:
            _holding.events = None
            if held:
                self.store_event_batch(held)  # pyright: ignore[reportAttributeAccessIssue]

    def store_event(self, event: dg.EventLogEntry) -> None:
        """Store an event, or hold it back."""
        event, held = said_once(event), getattr(_holding, "events", None)
        if held is not None and event.dagster_event_type in _BATCHED:
            held.append(event)
        else:
            super().store_event(event)  # pyright: ignore[reportAttributeAccessIssue]


def said_once(event: dg.EventLogEntry) -> dg.EventLogEntry:
    """Return what is said of an asset without what the event says a second time: its message, and its step, as four more objects.

    They are half of it. Dagster reads neither: an event that no step yielded has none of them.
    """
    if event.dagster_event_type not in (*_BATCHED, CHECKED):
        return event
    told = event.get_dagster_event()._replace(logging_tags={}, step_handle=None, node_handle=None)
    return event._replace(dagster_event=told, user_message="")


class OneFileEventLog(SqliteEventLogStorage):
    """Dagster's event log on SQLite in one file that is kept open, the index.

    Dagster writes a file a run and what is about assets twice, makes an engine for every statement, so each is compiled anew, and
    closes the only connection after it, at which SQLite carries its log over into the file and deletes it. A commit is not waited
    for until it is on the disk: a killed process loses nothing, a power cut at most the last events. A run of an earlier release
    stays in the file it has.
    """

    def __init__(self, base_dir: str) -> None:
        # An engine belongs to the process that made it: a fork must not share it.
        self._engines: dict[int, Engine] = {}
        self._turn = threading.RLock()
        self._there: set[str] = set()
        super().__init__(base_dir)

    def store_event(self, event: dg.EventLogEntry) -> None:
        """Store an event, and tell those who follow the run: they watch its file, which a commit alone does not change."""
        if self._has_own_file(event.run_id):
            super().store_event(event)
        else:
            super(SqliteEventLogStorage, self).store_event(event)
        os.utime(self.path_for_shard(event.run_id))

    def store_event_batch(self, events: Sequence[dg.EventLogEntry]) -> None:
        """Store what was found about one asset in one transaction."""
        if any(self._has_own_file(event.run_id) for event in events):
            super().store_event_batch(events)
            return
        with self.index_connection() as connection:
            statement = SqlEventLogStorageTable.insert().returning(
                SqlEventLogStorageTable.c.id, sort_by_parameter_order=True
            )
            ids = list(connection.execute(statement, [self._event_to_row(event) for event in events]).scalars())
            self._store_asset_event_tags(connection, events, ids)
            self._store_asset_event(connection, events[-1], ids[-1])
        os.utime(self.path_for_shard(INDEX_SHARD_NAME))

    def _has_own_file(self, run_id: str | None) -> bool:
        return bool(run_id) and run_id != INDEX_SHARD_NAME and Path(super().path_for_shard(run_id or "")).exists()

    def path_for_shard(self, run_id: str) -> str:
        """Return the file that holds a run's events."""
        return super().path_for_shard(run_id if self._has_own_file(run_id) else INDEX_SHARD_NAME)

    def run_connection(self, run_id: str | None = None) -> Any:
        return super().run_connection(run_id) if self._has_own_file(run_id) else self.index_connection()

    def get_event_records(self, event_records_filter: Any, limit: int | None = None, ascending: bool = False) -> Any:
        """Return records of all runs; Dagster would ask run by run, and the index holds them all."""
        return super(SqliteEventLogStorage, self).get_event_records(event_records_filter, limit, ascending)

    @contextmanager
    def index_connection(self) -> Iterator[Connection]:
        with self._turn:
            engine = self._engines.get(os.getpid())
            if engine is None:
                # Makes the tables of a file that has none.
                with super().index_connection():
                    pass
                url = self.conn_string_for_shard(INDEX_SHARD_NAME)
                engine = self._engines[os.getpid()] = _sqlite_engine(url)
            with engine.begin() as connection:
                yield connection

    def has_table(self, table_name: str) -> bool:
        """Return whether there is a table; Dagster asks at every check, and a table that is there stays."""
        if table_name not in self._there and super().has_table(table_name):
            self._there.add(table_name)
        return table_name in self._there

    def dispose(self) -> None:
        for engine in self._engines.values():
            engine.dispose()
        self._engines.clear()
        super().dispose()


class KeptEventLog(Batching, OneFileEventLog):
    """The event log on SQLite as ``dagster.yaml`` has it."""


def _sqlite_engine(url: str) -> Engine:
    engine = sa.create_engine(url, pool_size=1, connect_args={"timeout": _BUSY_SECONDS})

    @event.listens_for(engine, "connect")
    def _set(connection: Any, _: object) -> None:
        connection.execute("PRAGMA synchronous=NORMAL")

    return engine


def kept_engine(url: str) -> Engine:
    """Return this process's engine for Dagster's event log on Postgres; one whose server restarted connects anew."""
    return _engine_of(url, os.getpid())


@lru_cache
def _engine_of(url: str, process: int) -> Engine:
    # However many instances a process opens, they share it; more connections than two are closed after use.
    return ask_when_idle(sa.create_engine(url, isolation_level="AUTOCOMMIT", pool_size=2, max_overflow=100))


@contextmanager
def in_one_batch(instance: dg.DagsterInstance) -> Iterator[None]:
    """Write the events of one asset that are yielded within together, where the instance's storage can."""
    events = event_log_of(instance)
    with events.batch() if isinstance(events, Batching) else nullcontext():
        yield


_BATCHED = (MATERIALIZED, OBSERVED)
_holding = threading.local()

URL_VARIABLES = ("PERSONA_DAGSTER_DATABASE_URL", "PERSONA_DATABASE_URL")


class EnvironmentStorage(DagsterStorage, ConfigurableClass):
    """Postgres at PERSONA_DAGSTER_DATABASE_URL, else at PERSONA_DATABASE_URL when that is Postgres, else SQLite.

    A factory: Dagster asks that the class derives from its storage, and never makes an instance of it.
    """

    @classmethod
    def config_type(cls) -> Mapping[str, Field]:
        return {"base_dir": Field(StringSource)}

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]) -> Any:
        url = postgres_url(os.environ)
        if url is None:
            folder = Path(os.environ.get("DAGSTER_HOME") or Path.cwd()) / config_value["base_dir"]
            folder.mkdir(parents=True, exist_ok=True)
            # Dagster looks whether its tables are there and then makes them: two processes that start at once would both make them.
            with FileLock(folder / ".lock"):
                return sqlite_storage(folder, inst_data, KeptEventLog)
        return postgres_storage(url, inst_data, Batching, kept_engine(url))


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
