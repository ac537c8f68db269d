"""The FastAPI application: ``/v1/traces`` and ``/v1/logs`` as OTLP/HTTP has them, health and metrics."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import sqlalchemy as sa
from fastapi import FastAPI, Request, Response
from sqlalchemy import event

from persona_pipeline.corrections.service.boundary import Access, Boundary
from persona_pipeline.traces.collector.metrics import CollectorMetrics
from persona_pipeline.traces.collector.writer import StoreUnavailableError, Writer
from persona_pipeline.traces.otlp import JSON, PROTOBUF, TooLargeError, UnreadableError, read_request, unpack
from persona_pipeline.traces.pieces import Piece, RefusedError, piece_of
from persona_pipeline.world.world import World

if TYPE_CHECKING:
    from google.protobuf.message import Message as Proto

_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_RETRY_SECONDS = "1"
# Requests that are unpacked and read at once, so that memory is bounded by a few of the largest.
_READ_AT_ONCE = 2
_MOST_NAMED = 5
# What gRPC calls the answers (google.rpc.Code).
_CODES = {400: 3, 413: 8, 415: 3, 500: 13, 503: 14}


@dataclass(frozen=True)
class Bounds:
    """What the collector takes.

    Attributes:
        unpacked: bytes of a request's body without its content encoding.
        waiting: requests that are not answered yet; more are told to come again.
        keep_days: how long pieces of traces wait for what else belongs to them.
    """

    unpacked: int = 64 * 1024 * 1024
    waiting: int = 64
    keep_days: float = 2.0


class _NotTakenError(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Collector:
    """What the routes share."""

    def __init__(self, world: World, bounds: Bounds) -> None:
        self.world, self.bounds = world, bounds
        self.metrics = CollectorMetrics()
        self.writer = Writer(world, self.metrics, bounds.keep_days)
        self._reading = asyncio.Semaphore(_READ_AT_ONCE)
        self._waiting = 0

    async def export(self, request: Request, *, logs: bool) -> Response:
        """Return the answer to an export request: success only when what it brought is stored."""
        content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        answer_type = JSON if content_type == JSON else PROTOBUF
        try:
            if content_type not in (PROTOBUF, JSON):
                raise _NotTakenError(415, f"send {PROTOBUF} or {JSON}")
            refused = await self._take(request, content_type, logs)
        except _NotTakenError as refusal:
            self.metrics.answered(refusal.status)
            headers = {"Retry-After": _RETRY_SECONDS} if refusal.status == 503 else {}
            body = _status(refusal.status, str(refusal))
            return Response(_written(body, answer_type), refusal.status, headers, answer_type)
        self.metrics.answered(200)
        self.metrics.refused(len(refused))
        return Response(_written(_answer(refused, logs), answer_type), media_type=answer_type)

    async def _take(self, request: Request, content_type: str, logs: bool) -> Sequence[str]:
        """Store what a request brings and return why items of it were refused."""
        if self._waiting >= self.bounds.waiting:
            raise _NotTakenError(503, "too many requests wait to be stored; come again")
        self._waiting += 1
        self.metrics.waiting.set(self._waiting)
        try:
            body = await request.body()
            async with self._reading:
                encoding = request.headers.get("content-encoding", "")
                pieces, refused = await asyncio.to_thread(self._read, body, encoding, content_type, logs)
            if pieces:
                await self.writer.store(pieces)
            return refused
        except TooLargeError as error:
            raise _NotTakenError(413, str(error)) from error
        except UnreadableError as error:
            raise _NotTakenError(400, str(error)) from error
        except StoreUnavailableError as error:
            raise _NotTakenError(503, str(error)) from error
        except Exception as error:
            raise _NotTakenError(
                500, f"this could not be stored ({type(error).__name__}); the log says more"
            ) from error
        finally:
            self._waiting -= 1
            self.metrics.waiting.set(self._waiting)

    def _read(self, body: bytes, encoding: str, content_type: str, logs: bool) -> tuple[list[Piece], list[str]]:
        pieces, refused = [], []
        for item in read_request(unpack(body, encoding, self.bounds.unpacked), content_type, logs=logs):
            try:
                piece = piece_of(item)
            except RefusedError as error:
                refused.append(str(error))
            else:
                pieces += [] if piece is None else [piece]
        return pieces, refused


def create_app(world: World, *, access: Access | None = None, bounds: Bounds | None = None) -> FastAPI:
    """Return the application.

    Args:
        access: by default no token and localhost only.
    """
    _flush_every_commit(world)
    collector = _Collector(world, bounds or Bounds())

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with collector.writer:
            yield

    app = FastAPI(
        title="persona-pipeline collector", lifespan=lifespan, openapi_url=None, docs_url=None, redoc_url=None
    )

    @app.post("/v1/traces")
    async def traces(request: Request) -> Response:
        return await collector.export(request, logs=False)

    @app.post("/v1/logs")
    async def logs(request: Request) -> Response:
        return await collector.export(request, logs=True)

    @app.get("/health")
    async def health() -> Response:
        try:
            await asyncio.to_thread(_ping, world)
        except Exception:
            return Response('{"status":"degraded"}', 503, media_type=JSON)
        return Response('{"status":"ok"}', media_type=JSON)

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(collector.metrics.text(), media_type=_METRICS_TYPE)

    app.add_middleware(Boundary, access=access or Access())
    return app


def _ping(world: World) -> None:
    with world.store.connect() as connection:
        connection.execute(sa.select(1))


def _flush_every_commit(world: World) -> None:
    """Let SQLite write through to the disk before it says that something is stored: a power cut must not take back an answer."""
    if not world.store.is_sqlite:
        return

    @event.listens_for(world.store.engine, "connect")
    def _configure(connection: object, _record: object) -> None:
        connection.execute("PRAGMA synchronous=FULL")  # pyright: ignore[reportAttributeAccessIssue]

    # Connections that were made before have it not.
    world.store.engine.dispose()


def _answer(refused: Sequence[str], logs: bool) -> "Proto":
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

    answer = ExportLogsServiceResponse() if logs else ExportTraceServiceResponse()
    if refused:
        more = f"; and {len(refused) - _MOST_NAMED} more" if len(refused) > _MOST_NAMED else ""
        answer.partial_success.error_message = "; ".join(refused[:_MOST_NAMED]) + more
        if isinstance(answer, ExportLogsServiceResponse):
            answer.partial_success.rejected_log_records = len(refused)
        else:
            answer.partial_success.rejected_spans = len(refused)
    return answer


def _status(status: int, message: str) -> "Proto":
    from google.rpc.status_pb2 import Status

    return Status(code=_CODES[status], message=message)


def _written(message: "Proto", content_type: str) -> bytes:
    if content_type == JSON:
        from google.protobuf.json_format import MessageToJson

        return MessageToJson(message, indent=None).encode("utf-8")
    return message.SerializeToString()
