"""Leases: one holder at a time, over threads, processes and databases."""

import os
import socket
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from persona_pipeline.base.database import engine, tables
from persona_pipeline.base.database.engine import Store, exclusive
from tests.support.clock import LONG
from tests.support.waiting import wait_until

ELSEWHERE = "another-host:1:x"


def _held(store: Store) -> dict[str, str]:
    with store.connect() as connection:
        return {row.name: row.holder for row in connection.execute(sa.select(tables.leases))}


def _take(store: Store, name: str, holder: str, *, seconds: float = LONG) -> datetime:
    """Give somebody a lease and return when it expires."""
    row = {"name": name, "holder": holder, "expires_at": datetime.now(UTC) + timedelta(seconds=seconds)}
    with store.begin() as connection:
        connection.execute(sa.insert(tables.leases).values(row))
    return row["expires_at"]


def test_two_who_want_the_same_take_turns(store: Store) -> None:
    inside, most = 0, 0
    counting = threading.Lock()

    def work() -> None:
        nonlocal inside, most
        for _ in range(3):
            with exclusive(store, ["ann", "bob"]):
                with counting:
                    inside += 1
                    most = max(most, inside)
                time.sleep(0.01)
                with counting:
                    inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    assert _held(store) == {}


def test_those_who_want_different_things_do_not_wait(store: Store) -> None:
    with exclusive(store, ["ann"]), exclusive(store, ["bob"]):
        assert _held(store).keys() == {"ann", "bob"}


def test_all_are_held_or_none(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_RENEWED_EVERY", 0.1)
    expires_at = _take(store, "bob", ELSEWHERE, seconds=0.3)
    with exclusive(store, ["ann", "bob"]):
        assert datetime.now(UTC) > expires_at
        assert len(set(_held(store).values())) == 1
    assert _held(store) == {}


def test_an_error_inside_gives_the_leases_back(store: Store) -> None:
    with pytest.raises(ValueError, match="broken"), exclusive(store, ["ann"]):
        raise ValueError("broken")
    assert _held(store) == {}


def test_a_process_that_was_killed_is_not_waited_for(store: Store) -> None:
    done = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    expires_at = _take(store, "ann", f"{socket.gethostname()}:{int(done.stdout)}:x")
    with exclusive(store, ["ann"]):
        assert datetime.now(UTC) < expires_at


def test_a_holder_that_works_long_keeps_its_lease(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_RENEWED_EVERY", 0.05)

    def expires_at() -> datetime:
        with store.connect() as connection:
            return connection.execute(sa.select(tables.leases.c.expires_at)).scalar_one()

    with exclusive(store, ["ann"]):
        for _ in range(2):
            before = expires_at()
            wait_until(lambda before=before: expires_at() > before, pause=0.02)
        assert f":{os.getpid()}:" in _held(store)["ann"]


def test_a_lease_that_could_not_be_given_back_is_not_waited_for(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The database went away while it was held: the retry in the same process goes on at once."""

    class Broken:
        is_sqlite = store.is_sqlite

        def begin(self):
            raise sa.exc.OperationalError("DELETE", {}, Exception("server gone"))

    release = engine._release
    monkeypatch.setattr(engine, "_release", lambda _, holder: release(Broken(), holder))  # type: ignore[arg-type]
    with pytest.raises(KeyError, match="inside"), exclusive(store, ["ann"]):
        raise KeyError("inside")
    assert "server gone" in caplog.text
    assert _held(store).keys() == {"ann"}
    monkeypatch.undo()
    with store.connect() as connection:
        expires_at = connection.execute(sa.select(tables.leases.c.expires_at)).scalar_one()
    with exclusive(store, ["ann"]):
        assert datetime.now(UTC) < expires_at
