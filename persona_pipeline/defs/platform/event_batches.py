"""Events of one asset written together: a row for everybody in one statement, where Dagster writes three for each event."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from persona_pipeline.defs.platform.dagster_internals import MATERIALIZED, OBSERVED, event_log_of


class Batching:
    """What an event log derives from that holds back what is found about one asset until a batch of it is complete.

    Dagster itself writes batches (``store_event_batch``), but only of what an asset returns for many partitions at once, which
    then all have one version. SQLite gains nothing by it.
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
        held = getattr(_holding, "events", None)
        if held is not None and event.is_dagster_event and event.get_dagster_event().event_type in _BATCHED:
            held.append(event)
        else:
            super().store_event(event)  # pyright: ignore[reportAttributeAccessIssue]


@contextmanager
def in_one_batch(instance: dg.DagsterInstance) -> Iterator[None]:
    """Write the events of one asset that are yielded within together, where the instance's storage can."""
    events = event_log_of(instance)
    if isinstance(events, Batching):
        with events.batch():
            yield
    else:
        yield


_BATCHED = (MATERIALIZED, OBSERVED)
_holding = threading.local()
