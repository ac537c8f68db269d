"""Prometheus metrics of the collector, in a registry of their own."""

from persona_pipeline.traces.keeping import Kept


class CollectorMetrics:
    """Counts requests by status, pieces of traces, and what became of messages."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge

        self.registry = CollectorRegistry()
        self._requests = Counter(
            "persona_collect_requests", "Export requests by status of the answer.", ("status",), registry=self.registry
        )
        self._pieces = Counter(
            "persona_collect_pieces",
            "Spans and events: stored, known before, or refused.",
            ("result",),
            registry=self.registry,
        )
        self._messages = Counter(
            "persona_collect_messages", "Messages inserted, updated, removed.", ("change",), registry=self.registry
        )
        self.waiting = Gauge("persona_collect_waiting", "Requests that are not answered yet.", registry=self.registry)

    def answered(self, status: int) -> None:
        """Count a request."""
        self._requests.labels(str(status)).inc()

    def refused(self, count: int) -> None:
        """Count spans and log records that were not taken."""
        self._pieces.labels("refused").inc(count)

    def kept(self, kept: Kept, given: int) -> None:
        """Count what was written of so many pieces."""
        self._pieces.labels("stored").inc(kept.pieces)
        self._pieces.labels("known").inc(given - kept.pieces)
        for change in ("inserted", "updated", "removed"):
            self._messages.labels(change).inc(getattr(kept.written, change))

    def text(self) -> bytes:
        """Return everything in Prometheus' text format."""
        from prometheus_client import generate_latest

        return generate_latest(self.registry)
