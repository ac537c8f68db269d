"""Connections of Dagster's event log that stay open: Dagster opens one or more for every event, which costs most of its time."""

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import lru_cache
from typing import Any

import dagster as dg
import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import Connection, Engine

from persona_pipeline.defs.platform.dagster_internals import INDEX_SHARD_NAME, SqliteEventLogStorage

# The index and the runs that are written to: a run's process has one, the daemon and a server those they start.
_MOST_KEPT = 5
_BUSY_SECONDS = 60


class KeptEventLog(SqliteEventLogStorage):
    """Dagster's event log on SQLite, with the files it writes to kept open: the index and those of the newest runs.

    Dagster makes an engine for every statement, so each is compiled anew, and closes the only connection after it, at which
    SQLite carries its log over into the file and deletes it. A commit is not waited for until it is on the disk: a killed
    process loses nothing, a power cut at most the last events.
    """

    def __init__(self, base_dir: str) -> None:
        # An engine belongs to the process that made it: a fork must not share it.
        self._kept: OrderedDict[tuple[int, str], Engine] = OrderedDict()
        self._turn = threading.RLock()
        self._tables: set[str] = set()
        super().__init__(base_dir)

    def store_event(self, event: dg.EventLogEntry) -> None:
        """Store an event, and tell those who follow the run: they watch its file, which a commit alone does not change."""
        self._keep(event.run_id)
        super().store_event(event)
        with suppress(FileNotFoundError):
            os.utime(self.path_for_shard(event.run_id))

    def run_connection(self, run_id: str | None = None) -> Any:
        """Return the connection to a run's events; only that of a run that is being written to is kept."""
        kept = self._kept.get((os.getpid(), run_id or ""))
        return super().run_connection(run_id) if kept is None else self._connection(kept)

    def index_connection(self) -> AbstractContextManager[Connection]:
        """Return the connection to the events of all assets."""
        return self._connection(self._keep(INDEX_SHARD_NAME))

    def has_table(self, table_name: str) -> bool:
        """Return whether there is a table; Dagster asks at every check, and a table that is there stays."""
        if table_name not in self._tables and super().has_table(table_name):
            self._tables.add(table_name)
        return table_name in self._tables

    def wipe(self) -> None:
        """Delete every event."""
        self._forget(0)
        super().wipe()

    def dispose(self) -> None:
        """Close what is open."""
        self._forget(0)
        super().dispose()

    @contextmanager
    def _connection(self, engine: Engine) -> Iterator[Connection]:
        with self._turn, engine.begin() as connection:
            yield connection

    def _keep(self, shard: str) -> Engine:
        key = (os.getpid(), shard)
        with self._turn:
            if key not in self._kept:
                # Makes the tables of a file that has none.
                with super().run_connection(shard):
                    pass
                self._kept[key] = _sqlite_engine(self.conn_string_for_shard(shard))
            # The index is asked for at every event, so it never is the one to go.
            self._kept.move_to_end(key)
            self._forget(_MOST_KEPT)
            return self._kept[key]

    def _forget(self, most: int) -> None:
        with self._turn:
            while len(self._kept) > most:
                self._kept.popitem(last=False)[1].dispose()


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
    return sa.create_engine(url, isolation_level="AUTOCOMMIT", pool_size=2, max_overflow=100, pool_pre_ping=True)
