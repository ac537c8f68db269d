"""An OTLP/HTTP endpoint: ``/v1/traces`` and ``/v1/logs``, one writer that answers when all is stored, health and metrics."""

import asyncio
import logging
from collections import Counter as Counts
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from fastapi import FastAPI, Request, Response
from sqlalchemy import event
from sqlalchemy.exc import InterfaceError, OperationalError

from persona_pipeline.base.database.engine import pruning_time
from persona_pipeline.base.http_server import METRICS_TYPE, Access, Boundary
from persona_pipeline.importing.traces.calls import WHY_SILENT, Piece
from persona_pipeline.importing.traces.messages import Kept, forget_pieces, keep_pieces
from persona_pipeline.importing.traces.otlp import JSON, PROTOBUF, NotTakenError, require_otel
from persona_pipeline.importing.traces.reading import ReadingProcess, ReadRequest, RequestBudget
from persona_pipeline.world.world import World

if TYPE_CHECKING:
    from google.protobuf.message import Message as Proto


# Spans of an instrumentation, all without words, that are worth a warning; most instrumentations that are counted separately.
_SILENT_SPANS, _MOST_SCOPES = 20, 100


# What is counted, with what is said of it and its labels.
_COUNTERS = {
    "requests": ("Export requests by status of the answer.", ["status"]),
    "pieces": ("Spans and events: stored, known before, or refused.", ["result"]),
    "messages": ("Messages inserted, updated, removed.", ["change"]),
    "turned_away": ("Requests and connections that were not taken, by reason.", ["reason"]),
    "spans_without_words": (
        "Spans that hold no words though some were looked for, by who wrote them and why.",
        ["scope", "reason"],
    ),
}


class CollectorMetrics:
    """Counts requests by status, pieces of traces, and what became of messages."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge

        self.registry = CollectorRegistry()
        self._counters = {
            name: Counter(f"persona_collect_{name}", about, labels, registry=self.registry)
            for name, (about, labels) in _COUNTERS.items()
        }
        self.waiting = Gauge("persona_collect_waiting", "Requests that are not answered yet.", registry=self.registry)
        self._scopes: dict[str, Counts[str | None]] = defaultdict(Counts)
        self._told: set[str] = set()

    def count(self, name: str, *labels: str, amount: int = 1) -> None:
        """Add to the counter of a name."""
        self._counters[name].labels(*labels).inc(amount)

    def read(self, scopes: Mapping[tuple[str, str | None], int]) -> None:
        """Count spans without words, and warn once of each instrumentation whose spans never have any."""
        for (scope, reason), count in scopes.items():
            if len(self._scopes) >= _MOST_SCOPES and scope not in self._scopes:
                scope = "others"
            self._scopes[scope][reason] += count
            if reason:
                self.count("spans_without_words", scope, reason, amount=count)
        for scope in sorted({scope for scope, _ in scopes} - self._told):
            counts = self._scopes[scope]
            if counts.total() >= _SILENT_SPANS and not counts[None]:
                self._told.add(scope)
                ((reason, _),) = counts.most_common(1)
                why = WHY_SILENT[str(reason)]
                _LOGGER.warning("%d spans of %s %s; see collect --explain", counts.total(), scope, why)

    def kept(self, kept: Kept, given: int) -> None:
        """Count the written and known pieces and the changed messages of ``given`` pieces."""
        self.count("pieces", "stored", amount=kept.pieces)
        self.count("pieces", "known", amount=given - kept.pieces)
        for change in ("inserted", "updated", "removed"):
            self.count("messages", change, amount=getattr(kept.written, change))

    def text(self) -> bytes:
        """Return everything in Prometheus' text format."""
        from prometheus_client import generate_latest

        return generate_latest(self.registry)


_FORGET_SECONDS = 3600.0
_LOGGER = logging.getLogger("persona_pipeline.traces.collector")
# Seconds for which requests wait for others that share their transaction.
_GATHER_SECONDS = 0.005
# Requests that are unpacked and read at once, so that memory is bounded by a few of the largest.
_READ_AT_ONCE = 2
# What gRPC calls the answers (google.rpc.Code).
_CODES = {400: 3, 413: 8, 415: 3, 500: 13, 503: 14}


@dataclass(frozen=True)
class Bounds:
    """What the collector takes.

    Attributes:
        request: the budget of a request.
        waiting: requests that are not answered yet; further ones are asked to try again.
        keep_days: how long pieces of traces wait for what else belongs to them.
    """

    request: RequestBudget = field(default_factory=RequestBudget)
    waiting: int = 64
    keep_days: float = 2.0


# Ends with the reason why pieces are not stored, or None.
_Stored = asyncio.Future[NotTakenError | None]


class _Collector:
    """What the routes share."""

    def __init__(self, world: World, bounds: Bounds) -> None:
        self.world, self.bounds = world, bounds
        self.metrics = CollectorMetrics()
        self._unwritten: asyncio.Queue[tuple[Sequence[Piece], _Stored]] = asyncio.Queue()
        self._readers: asyncio.LifoQueue[ReadingProcess] = asyncio.LifoQueue()
        for _ in range(_READ_AT_ONCE):
            self._readers.put_nowait(ReadingProcess(self.bounds.request))
        self._waiting = 0
        self.metrics.waiting.set_function(lambda: self._waiting)

    async def export(self, request: Request, *, logs: bool) -> Response:
        """Return the answer to an export request: success only when its content is stored."""
        content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        answer_type = JSON if content_type == JSON else PROTOBUF
        self._waiting += 1
        try:
            brought = await self._take(request, content_type, logs)
        except Exception as error:
            from google.rpc.status_pb2 import Status

            refusal = error if isinstance(error, NotTakenError) else _not_stored(error)
            self.metrics.count("requests", str(refusal.status))
            self.metrics.count("turned_away", refusal.reason)
            headers = {"Retry-After": "1"} if refusal.status == 503 else {}
            body = _written(Status(code=_CODES[refusal.status], message=str(refusal)), answer_type)
            return Response(body, refusal.status, headers, answer_type)
        finally:
            self._waiting -= 1
        self.metrics.read(brought.scopes)
        self.metrics.count("requests", "200")
        self.metrics.count("pieces", "refused", amount=brought.refused)
        return Response(_written(_answer(brought, logs), answer_type), media_type=answer_type)

    async def _take(self, request: Request, content_type: str, logs: bool) -> ReadRequest:
        """Store a request's content and return it."""
        if content_type not in (PROTOBUF, JSON):
            raise NotTakenError(f"send {PROTOBUF} or {JSON}", 415, "content_type")
        if self._waiting > self.bounds.waiting:
            raise NotTakenError("too many requests wait to be stored; come again", 503, "busy")
        body, reader = await request.body(), await self._readers.get()
        try:
            brought = await reader.read(body, request.headers.get("content-encoding", ""), content_type, logs=logs)
        finally:
            self._readers.put_nowait(reader)
        if brought.pieces:
            stored: _Stored = asyncio.get_running_loop().create_future()
            self._unwritten.put_nowait((brought.pieces, stored))
            if failure := await stored:
                raise failure
        return brought

    async def write(self) -> None:
        """Store the pieces of requests: those of all requests that wait share a transaction."""
        while True:
            waiting = [await self._unwritten.get()]
            if self._waiting > 1:
                # Others are under way.
                await asyncio.sleep(_GATHER_SECONDS)
            while not self._unwritten.empty():
                waiting.append(self._unwritten.get_nowait())
            await self._write(waiting)

    async def _write(self, waiting: Sequence[tuple[Sequence[Piece], _Stored]]) -> None:
        pieces, failure = [piece for given, _ in waiting for piece in given], None
        try:
            self.metrics.kept(await asyncio.to_thread(keep_pieces, self.world, pieces), len(pieces))
        except Exception as error:
            if len(waiting) > 1:
                # A request that cannot be stored must not fail the others.
                for item in waiting:
                    await self._write([item])
                return
            failure = _not_stored(error)
        for _, stored in waiting:
            if not stored.done():
                stored.set_result(failure)

    async def forget(self) -> None:
        """Drop the pieces of old traces, every hour."""
        while True:
            try:
                older_than = timedelta(days=self.bounds.keep_days)
                await asyncio.to_thread(forget_pieces, self.world.store, older_than, pruning_time())
            except Exception:
                _LOGGER.warning("pieces of old traces could not be dropped", exc_info=True)
            await asyncio.sleep(_FORGET_SECONDS)

    def close(self) -> None:
        """End the processes that read."""
        while not self._readers.empty():
            self._readers.get_nowait().close()


def _not_stored(error: Exception) -> NotTakenError:
    if isinstance(error, OperationalError | InterfaceError):
        _LOGGER.error("not stored: %s", error.orig)
        return NotTakenError(f"the store cannot be written ({error.orig})", 503, "unavailable")
    _LOGGER.error("not stored", exc_info=error)
    return NotTakenError(f"this could not be stored ({type(error).__name__}); the log says more")


def create_app(
    world: World,
    *,
    access: Access | None = None,
    bounds: Bounds | None = None,
) -> FastAPI:
    """Return the application of the collector.

    ``access``: by default no token and localhost only. ConfigError: OpenTelemetry's packages are missing.
    """
    require_otel()
    _flush_every_commit(world)
    collector = _Collector(world, bounds or Bounds())

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(work) for work in (collector.forget(), collector.write())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            collector.close()

    app = FastAPI(
        title="persona-pipeline collector", lifespan=lifespan, openapi_url=None, docs_url=None, redoc_url=None
    )

    # The second is where Langfuse's SDK sends to, given this address as its own.
    @app.post("/v1/traces")
    @app.post("/api/public/otel/v1/traces")
    async def traces(request: Request) -> Response:
        return await collector.export(request, logs=False)

    @app.post("/v1/logs")
    async def logs(request: Request) -> Response:
        return await collector.export(request, logs=True)

    @app.get("/health")
    async def health() -> Response:
        try:
            await asyncio.to_thread(world.store.ping)
        except Exception:
            return Response('{"status":"degraded"}', 503, media_type=JSON)
        return Response('{"status":"ok"}', media_type=JSON)

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(collector.metrics.text(), media_type=METRICS_TYPE)

    app.state.turned_away = partial(collector.metrics.count, "turned_away")
    app.add_middleware(Boundary, access=access or Access())
    return app


def _flush_every_commit(world: World) -> None:
    """Let SQLite write through to the disk before it says that something is stored: a power cut must not take back an answer."""
    if not world.store.is_sqlite:
        return

    @event.listens_for(world.store.engine, "connect")
    def _configure(connection: object, _record: object) -> None:
        connection.execute("PRAGMA synchronous=FULL")  # pyright: ignore[reportAttributeAccessIssue]

    # Connections that were made before have it not.
    world.store.engine.dispose()


def _answer(brought: ReadRequest, logs: bool) -> "Proto":
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

    answer = ExportLogsServiceResponse() if logs else ExportTraceServiceResponse()
    if brought.refused:
        more = brought.refused - len(brought.reasons)
        answer.partial_success.error_message = "; ".join([*brought.reasons, *([f"and {more} more"] if more else [])])
        setattr(answer.partial_success, "rejected_log_records" if logs else "rejected_spans", brought.refused)
    return answer


def _written(message: "Proto", content_type: str) -> bytes:
    if content_type == JSON:
        from google.protobuf.json_format import MessageToJson

        return MessageToJson(message, indent=None).encode("utf-8")
    return message.SerializeToString()
