"""Texts that go out unchecked and leave no check behind: counted by reason, and written down every few seconds."""

import logging
import threading
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa

from persona_pipeline.corrections.background import DaemonPool
from persona_pipeline.store import Store, tables
from persona_pipeline.world.canonical import storable

_TABLE = tables.gate_bypasses
# Reasons and agents told apart between two writes; a caller that makes names up fills no memory.
_MOST_KINDS = 200
_OTHER = "(other)"
_LONGEST_NAME = 64
_LONGEST_PAUSE = 300.0
_LOGGER = logging.getLogger(__name__)


class Bypasses:
    """Counts bypasses and writes them to ``gate_bypasses``, a row for each reason and agent at a time, never holding up anybody.

    Args:
        observer: told of every bypass by its reason.
        seconds: between two writes.
    """

    def __init__(self, store: Store, *, observer: Callable[[str], None] | None = None, seconds: float = 10.0) -> None:
        self._store, self._observer, self._seconds = store, observer, seconds
        self._pause = seconds
        self._waiting: Counter[tuple[str, str | None]] = Counter()
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._pool = DaemonPool(1, "gate-bypass")

    def count(self, reason: str, agent_id: str | None = None) -> None:
        """Count one text that went out unchecked."""
        name = None if agent_id is None else storable(agent_id)[:_LONGEST_NAME]
        with self._lock:
            key = (reason, name)
            if key not in self._waiting and len(self._waiting) >= _MOST_KINDS:
                key = (reason, _OTHER)
            self._waiting[key] += 1
            self._start_timer()
        try:
            if self._observer:
                self._observer(reason)
        except Exception:
            _LOGGER.exception("the observer of bypasses failed")

    def flush(self) -> None:
        """Write down what has been counted; what cannot be written waits for the next time."""
        with self._lock:
            waiting, self._waiting, self._timer = self._waiting, Counter(), None
        if not waiting:
            return
        now = datetime.now(UTC)
        rows = [
            {"reason": reason, "agent_id": agent_id, "count": count, "created_at": now}
            for (reason, agent_id), count in waiting.items()
        ]
        try:
            with self._store.begin() as connection:
                connection.execute(sa.insert(_TABLE), rows)
        except Exception as error:
            _LOGGER.warning("%d bypasses are not written down yet: %s", waiting.total(), type(error).__name__)
            with self._lock:
                self._waiting.update(waiting)
                self._pause = min(2 * self._pause, _LONGEST_PAUSE)
                self._start_timer()
        else:
            self._pause = self._seconds

    def _start_timer(self) -> None:
        # A forked process has its parent's timer without the thread that waits.
        if self._timer is None or not self._timer.is_alive():
            timer = threading.Timer(self._pause, lambda: self._pool.submit(self.flush))
            timer.daemon = True
            try:
                timer.start()
            except RuntimeError:
                # No thread to spare: the next bypass, or the end, tries again.
                return
            self._timer = timer


def bypass_counts(store: Store, since: timedelta | None = None) -> dict[str, int]:
    """Return how many texts went past the gate, by reason; ``since``: only that far back from now."""
    query = (
        sa.select(_TABLE.c.reason, sa.func.sum(_TABLE.c["count"])).group_by(_TABLE.c.reason).order_by(_TABLE.c.reason)
    )
    if since is not None:
        query = query.where(_TABLE.c.created_at > datetime.now(UTC) - since)
    with store.connect() as connection:
        return {row[0]: int(row[1]) for row in connection.execute(query)}
