"""Leases: who works on what just now, over all processes and hosts that share the store."""

import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from persona_pipeline.base.database.engine import Store
from persona_pipeline.base.database.tables import leases

# A holder that is killed without a word on another host is waited for this long.
LEASE_TIME = timedelta(seconds=60)
_RENEWED_EVERY = LEASE_TIME.total_seconds() / 4
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0
_SAID_AFTER = 5.0

log = logging.getLogger(__name__)
_held_here: set[str] = set()


@contextmanager
def exclusive(store: Store, names: Collection[str]) -> Iterator[None]:
    """Hold the leases of these names, all or none; waits until whoever holds one of them is done.

    A holder that died is not waited for: at once when it ran on this host, else until its lease runs out.
    """
    holder = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex}"
    _held_here.add(holder)
    _acquire(store, sorted(set(names)), holder)
    done = threading.Event()
    renewal = threading.Thread(target=_renew, args=(store, holder, done), name="lease", daemon=True)
    renewal.start()
    try:
        yield
    finally:
        done.set()
        renewal.join()
        _held_here.discard(holder)
        _release(store, holder)


def is_held(store: Store, name: str) -> bool:
    """Return whether somebody works on this just now."""
    with store.connect() as connection:
        row = connection.execute(sa.select(leases).where(leases.c.name == name)).one_or_none()
    return row is not None and row.expires_at >= datetime.now(UTC) and not _is_dead(row.holder)


def _acquire(store: Store, names: list[str], holder: str) -> None:
    pause, began, said = _FIRST_PAUSE, time.monotonic(), False
    while others := _try(store, names, holder):
        if not said and time.monotonic() - began > _SAID_AFTER:
            log.warning("waiting for %s, held by %s", ", ".join(sorted(others)), next(iter(others.values())))
            said = True
        time.sleep(pause)
        pause = min(_LONGEST_PAUSE, pause * 1.5)


def _try(store: Store, names: list[str], holder: str) -> dict[str, str]:
    """Take all leases, or none and return who holds those that are taken."""
    now = datetime.now(UTC)
    with store.begin() as connection:
        if not store.is_sqlite:
            # One at a time decides; the lock goes with the transaction.
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(sa.func.hashtext("persona leases"))))
        rows = connection.execute(sa.select(leases).where(leases.c.name.in_(names))).all()
        free = [row.name for row in rows if row.expires_at < now or _is_dead(row.holder)]
        taken = {row.name: row.holder for row in rows if row.name not in free}
        if not taken:
            connection.execute(sa.delete(leases).where(leases.c.name.in_(free)))
            rows_to_insert = [{"name": name, "holder": holder, "expires_at": now + LEASE_TIME} for name in names]
            connection.execute(sa.insert(leases), rows_to_insert)
        return taken


def _release(store: Store, holder: str) -> None:
    try:
        with store.begin() as connection:
            connection.execute(sa.delete(leases).where(leases.c.holder == holder))
    except DBAPIError as error:
        # Whatever went wrong inside is the news; nobody waits for a lease that is not held any more.
        log.warning("a lease could not be given back: %s", error.orig)


def _is_dead(holder: str) -> bool:
    host, pid, _ = holder.rsplit(":", 2)
    if host != socket.gethostname():
        return False
    if int(pid) == os.getpid():
        return holder not in _held_here
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def _renew(store: Store, holder: str, done: threading.Event) -> None:
    while not done.wait(_RENEWED_EVERY):
        try:
            with store.begin() as connection:
                own = sa.update(leases).where(leases.c.holder == holder)
                connection.execute(own.values(expires_at=datetime.now(UTC) + LEASE_TIME))
        except DBAPIError as error:
            # The next renewal may reach it; a lease lasts four of them.
            log.warning("a lease could not be renewed: %s", error.orig)
