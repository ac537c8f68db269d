"""Bounded reading of untrusted requests: items are counted before decoding, in a process that can be ended."""

import asyncio
import multiprocessing
import resource
import signal
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from persona_pipeline.importing.traces.calls import Piece, RefusedError, piece_of, why_silent
from persona_pipeline.importing.traces.otlp import JSON, TooLargeError, read_request, unpack

# Refusals that are reported one by one; further ones are counted.
MOST_NAMED = 5
# Bytes of an unpacked body that can hold nothing large: they are read without the other process.
_SMALL = 16_384
# Memory of the process in bytes.
_MEMORY = 2 * 1024**3
_DEEPEST = 1_000
# Field numbers of OpenTelemetry's protobuf, as far as they hold other messages: resources, scopes, spans or log records, and what
# is in those.
_PAIR: dict[int, Any] = {}
_VALUE: dict[int, Any] = {5: {}, 6: {1: _PAIR}}
_VALUE[5][1] = _VALUE
_PAIR[2] = _VALUE
_SPAN = {9: _PAIR, 11: {3: _PAIR}, 13: {4: _PAIR}}
_LOG = {5: _VALUE, 6: _PAIR}


@dataclass(frozen=True)
class RequestBudget:
    """Limits of a request.

    Attributes:
        unpacked: bytes of its body without content encoding.
        items: resources, scopes, and spans or log records together.
        attributes: of a span or log record; a record with more is refused, and the others are taken.
        fields: fields of all messages in it, nested ones too.
        seconds: for all of the reading.
    """

    unpacked: int = 64 * 1024 * 1024
    items: int = 50_000
    attributes: int = 1_000
    fields: int = 2_000_000
    seconds: float = 20.0


@dataclass
class ReadRequest:
    """The content of a request: pieces of traces, the number of refused items, and the first reasons.

    ``scopes``: spans of each instrumentation by why they have no words; None: they have some.
    """

    pieces: list[Piece] = field(default_factory=list)
    refused: int = 0
    reasons: list[str] = field(default_factory=list)
    scopes: Counter[tuple[str, str | None]] = field(default_factory=Counter)

    def refuse(self, why: str) -> None:
        """Count a refused item."""
        self.refused += 1
        if len(self.reasons) < MOST_NAMED:
            self.reasons.append(why)


class TooSlowError(TooLargeError):
    """Reading took longer, or more memory, than a request may take."""

    reason = "too_slow"


def read_body(body: bytes, encoding: str, content_type: str, budget: RequestBudget, *, logs: bool) -> ReadRequest:
    """Return what a request brings.

    Raises:
        UnreadableError: it is not an export request.
        TooLargeError: it is beyond its budget.
    """
    body = unpack(body, encoding, budget.unpacked)
    if content_type == JSON:
        # Each field and each element but the first of its kind comes after one of these.
        if body.count(b",") + body.count(b"{") + body.count(b"[") > budget.fields:
            raise _too_many(budget)
    elif len(body) // 2 > min(budget.items, budget.fields):
        # A field has two bytes at least.
        _count_protobuf(body, budget, logs=logs)
    brought = ReadRequest()
    found = read_request(body, content_type, logs=logs)
    if len(found) > budget.items:
        raise _too_many(budget)
    for item in found:
        if len(item.record.attributes) > budget.attributes:
            brought.refuse(f"has {len(item.record.attributes):,} attributes, more than {budget.attributes:,}")
            continue
        try:
            piece = piece_of(item)
        except RefusedError as error:
            brought.refuse(str(error))
        else:
            brought.pieces += [] if piece is None else [piece]
            reason = why_silent(item, piece)
            if reason or (piece and piece.outputs):
                brought.scopes[item.scope, reason] += 1
    return brought


def _count_protobuf(body: bytes, budget: RequestBudget, *, logs: bool) -> None:
    """Count a request's fields without decoding it; errors are left to the decoder."""
    record = _LOG if logs else _SPAN
    scope = {1: {3: _PAIR}, 2: record}
    request = {1: {1: {1: _PAIR}, 2: scope}}
    waiting: list[tuple[int, int, Mapping[int, Any]]] = [(0, len(body), request)]
    items = fields = 0
    # What nests deeper no decoder takes.
    while waiting and len(waiting) < _DEEPEST:
        at, end, known = waiting.pop()
        while at < end:
            fields += 1
            if fields > budget.fields:
                raise _too_many(budget)
            tag, at = _varint(body, at, end)
            kind, number = tag & 7, tag >> 3
            if kind == 0:
                _, at = _varint(body, at, end)
            elif kind in (1, 5):
                at += 8 if kind == 1 else 4
            elif kind == 2:
                size, at = _varint(body, at, end)
                inner = known.get(number)
                if inner is not None:
                    items += known is request or inner is scope or inner is record
                    if items > budget.items:
                        raise _too_many(budget)
                    waiting += [(at + size, end, known), (at, min(at + size, end), inner)]
                    break
                at += size
            else:
                return


def _varint(body: bytes, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end and shift < 70:
        byte = body[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    # Cut off, or no number at all: nothing after it can be read.
    return 0, end


def _too_many(budget: RequestBudget) -> TooLargeError:
    said = f"the request holds more than {budget.items:,} items or {budget.fields:,} fields; send smaller batches"
    return TooLargeError(said)


class ReadingProcess:
    """Reads requests in a separate process, which is ended when one takes too long and restarted for the next."""

    def __init__(self, budget: RequestBudget) -> None:
        self._budget = budget
        self._pool: ProcessPoolExecutor | None = None

    async def read(self, body: bytes, encoding: str, content_type: str, *, logs: bool) -> ReadRequest:
        """Return what a request brings; raises like ``read_body``, and ``TooSlowError``."""
        with suppress(TooLargeError):
            return read_body(unpack(body, encoding, _SMALL), "", content_type, self._budget, logs=logs)
        if self._pool is None:
            self._pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _begin)
            # The start does not count for the request's time.
            await asyncio.wrap_future(self._pool.submit(len, ()))
        reading = self._pool.submit(read_body, body, encoding, content_type, self._budget, logs=logs)
        try:
            async with asyncio.timeout(self._budget.seconds):
                return await asyncio.wrap_future(reading)
        except (TimeoutError, BrokenProcessPool, MemoryError, asyncio.CancelledError) as error:
            self.close()
            if isinstance(error, asyncio.CancelledError):
                raise
            what = f"longer than {self._budget.seconds:g} s" if isinstance(error, TimeoutError) else "too much memory"
            raise TooSlowError(f"reading took {what}; send smaller batches") from error

    def close(self) -> None:
        """End the process, whatever it does."""
        pool, self._pool = self._pool, None
        if pool is not None:
            for process in list(pool._processes.values()):
                process.kill()
            pool.shutdown(wait=False, cancel_futures=True)


def _begin() -> None:
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2  # noqa: F401 -- so that no request waits for it

    # The parent ends this process; signals to the whole group are ignored.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
