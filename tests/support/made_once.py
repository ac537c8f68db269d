"""What a process makes once and thousands of tests would make anew: commands, compiled statements, connections."""

import functools
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import Engine
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.pool import QueuePool
from sqlalchemy.util import LRUCache


@contextmanager
def made_once() -> Iterator[None]:
    """Keep from test to test what depends on none."""
    with pytest.MonkeyPatch.context() as patched:
        _commands(patched)
        _statements(patched)
        if "dagster" in sys.modules:
            _connections(patched)
        yield


def _commands(patched: pytest.MonkeyPatch) -> None:
    """Typer builds all commands anew for every call."""
    import typer.main
    import typer.testing

    built = functools.cache(typer.main.get_command)
    patched.setattr(typer.main, "get_command", built)
    patched.setattr(typer.testing, "_get_command", built)


def _statements(patched: pytest.MonkeyPatch) -> None:
    """Each engine compiles every statement for itself; those of one kind of database write the same SQL."""
    compiled: LRUCache[Any, Any] = LRUCache(5000)
    patched.setattr(Engine, "_compiled_cache", property(lambda _: compiled, lambda _, value: None), raising=False)
    patched.setattr(DefaultDialect, "__hash__", lambda dialect: hash(type(dialect)))
    patched.setattr(DefaultDialect, "__eq__", lambda one, other: _written_alike(one) == _written_alike(other))


def _written_alike(dialect: Any) -> tuple[Any, ...] | None:
    """What the SQL of a dialect and the reading of its rows rest on."""
    if not isinstance(dialect, DefaultDialect):
        return None
    names = ("server_version_info", "paramstyle", "default_schema_name", "_json_serializer", "_json_deserializer")
    return (type(dialect), *(getattr(dialect, name, None) for name in names))


def _connections(patched: pytest.MonkeyPatch) -> None:
    """An instance of Dagster in memory opens a connection for each thing it looks up, and prepares it each time."""
    from dagster._core.storage.event_log import in_memory as events
    from dagster._core.storage.runs import in_memory as runs

    def create_engine(url: str, **_: Any) -> Engine:
        made = sa.create_engine(url, poolclass=QueuePool, connect_args={"check_same_thread": False})
        event.listen(made, "connect", lambda connection, _: connection.execute("PRAGMA foreign_keys=ON"))
        return made

    @contextmanager
    def connect(storage: Any) -> Iterator[sa.Connection]:
        with getattr(storage, "_db_lock", nullcontext()), storage._engine.begin() as connection:
            yield connection

    for module in (events, runs):
        patched.setattr(module, "create_engine", create_engine)
        # The revision of its tables, of which nothing in memory is ever upgraded.
        patched.setattr(module, "stamp_alembic_rev", lambda *_: None)
    patched.setattr(events.InMemoryEventLogStorage, "_connect", connect)
    patched.setattr(runs.InMemoryRunStorage, "connect", connect)
