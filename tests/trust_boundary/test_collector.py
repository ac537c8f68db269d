"""Requests and connections that are to take the collector down: each ends within its budget, and /health answers meanwhile."""

import gzip
import json
import os
import resource
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from persona_pipeline.importing.traces.collector import Bounds, create_app
from persona_pipeline.importing.traces.otlp import JSON, PROTOBUF, TooLargeError, read_request
from persona_pipeline.importing.traces.reading import ReadingProcess, RequestBudget, TooSlowError, read_body
from persona_pipeline.testing.worlds import WorldBuilder
from persona_pipeline.world import World
from tests.corrections.test_server import closed, health
from tests.support.clock import LONG
from tests.support.otlp_relay import post
from tests.support.serving import serving
from tests.support.spans import agent, chat, request
from tests.support.waiting import wait_until
from tests.traces.test_collector import Process
from tests.traces.test_otlp import as_json

SPANS = request(chat(2, ["Hi"], "Yes?", parent=1), agent(1, "ann", "c"))


@pytest.fixture
def world(tmp_path) -> World:
    return WorldBuilder(tmp_path).persona("ann", "Ann is dry.").open()


def varint(number: int) -> bytes:
    found = b""
    while number > 127:
        found, number = found + bytes([number & 127 | 128]), number >> 7
    return found + bytes([number])


def within(number: int, inner: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(inner)) + inner


PAIR = within(1, b"k") + within(2, within(1, b"v"))
NESTED = within(5, within(1, b"") * 40_000)


def hostile() -> Iterator[tuple[str, bytes]]:
    """Yield requests that are small on the wire, or small to send, and large to hold."""
    yield "empty spans", within(1, within(2, b"\x12\x00" * 1_500_000))
    yield "empty resources", b"\x0a\x00" * 300_000
    yield "empty scopes", within(1, b"\x12\x00" * 300_000)
    yield "attributes", within(1, within(2, within(2, within(9, PAIR) * 120_000)))
    yield "attributes of the resource", within(1, within(1, within(1, PAIR) * 120_000))
    yield "values in a value", within(1, within(2, within(2, within(9, within(1, b"k") + within(2, NESTED)) * 6)))
    yield "events", within(1, within(2, within(2, b"\x5a\x00" * 300_000)))
    yield "fields nobody knows", b"\xf8\x01\x01" * 300_000


@pytest.mark.parametrize(("name", "body"), hostile(), ids=lambda value: value if isinstance(value, str) else "")
def test_21_what_a_request_holds_is_counted_before_it_is_decoded(name: str, body: bytes) -> None:
    budget = RequestBudget(fields=RequestBudget().fields // 10)
    with pytest.raises(TooLargeError, match="send smaller batches"):
        read_body(gzip.compress(body, 1, mtime=0), "gzip", PROTOBUF, budget, logs=False)


def test_21_attributes_of_a_scope_are_counted_like_those_of_a_span() -> None:
    for body in (within(2, within(1, within(3, PAIR) * 60)), within(2, within(2, within(9, PAIR) * 60))):
        with pytest.raises(TooLargeError, match="send smaller batches"):
            read_body(within(1, body), "", PROTOBUF, RequestBudget(fields=200), logs=False)


def test_21_json_is_counted_too() -> None:
    spans = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [{}] * 60_000}]}]}).encode()
    pairs = b'{"resourceSpans": [' + b"[]," * 2_100_000 + b"[]]}"
    for body in (spans, pairs):
        with pytest.raises(TooLargeError, match="send smaller batches"):
            read_body(body, "", JSON, RequestBudget(), logs=False)


@pytest.mark.parametrize("content_type", [PROTOBUF, JSON])
def test_21_an_ordinary_request_is_read_whole(content_type: str) -> None:
    body = SPANS.SerializeToString() if content_type == PROTOBUF else json.dumps(as_json(SPANS)).encode()
    brought = read_body(body, "", content_type, RequestBudget(), logs=False)
    assert (len(brought.pieces), brought.refused) == (len(read_request(body, content_type)), 0)


def test_21_a_span_of_too_many_attributes_is_refused_and_the_others_taken(world: World) -> None:
    wide = chat(3, ["Hi"], "No.")
    for number in range(1_100):
        wide.attributes.add(key=f"k{number}").value.string_value = "v"
    body = request(wide, *SPANS.resource_spans[0].scope_spans[0].spans).SerializeToString()
    with serving(create_app(world)) as url:
        status, _, answer = post(f"{url}/v1/traces", body)
        metrics = post_get(url, "/metrics")
    assert status == 200 and b"more than 1,000" in answer
    assert 'persona_collect_pieces_total{result="refused"} 1.0' in metrics


def post_get(url: str, path: str) -> str:
    from urllib.request import urlopen

    with urlopen(url + path, timeout=LONG) as response:
        return response.read().decode()


def test_21_a_reading_that_takes_too_long_is_ended_and_the_next_is_read() -> None:
    import asyncio

    body = SPANS.SerializeToString()
    several = request(chat(2, ["Hi " * 9000], "Yes?")).SerializeToString()
    large = within(1, within(2, b"\x12\x00" * 40_000))

    async def run() -> tuple[int, int]:
        reader = ReadingProcess(RequestBudget(seconds=LONG))
        try:
            for small, encoding in ((body, " Identity "), (gzip.compress(body), "gzip")):
                assert (await reader.read(small, encoding, PROTOBUF, logs=False)).pieces
            assert reader._pool is None, "what is small unpacked needs no process"
            first = await reader.read(gzip.compress(several), "gzip", PROTOBUF, logs=False)
            assert reader._pool is not None
            (child,) = reader._pool._processes.values()
            assert child.pid is not None
            object.__setattr__(reader._budget, "seconds", 0.2)
            os.kill(child.pid, signal.SIGSTOP)
            with pytest.raises(TooSlowError, match="longer than"):
                await reader.read(large, "", PROTOBUF, logs=False)
            # The pool waits for it too: who comes second is told for a moment that it lives.
            wait_until(lambda: not child.is_alive())
            object.__setattr__(reader._budget, "seconds", LONG)
            again = await reader.read(gzip.compress(several), "gzip", PROTOBUF, logs=False)
            return len(first.pieces), len(again.pieces)
        finally:
            reader.close()

    assert len({*asyncio.run(run())}) == 1


def test_21_a_bomb_over_the_wire_is_refused_while_health_answers(world: World) -> None:
    bomb = gzip.compress(within(1, within(2, b"\x12\x00" * 15_700_000)), 9, mtime=0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with serving(create_app(world, bounds=Bounds())) as url:
        status, _, answer = post(f"{url}/v1/traces", bomb, {"content-encoding": "gzip"})
        assert (status, b"send smaller batches" in answer) == (413, True)
        assert "ok" in post_get(url, "/health")
        assert 'persona_collect_turned_away_total{reason="too_large"} 1.0' in post_get(url, "/metrics")
        assert post(f"{url}/v1/traces", SPANS.SerializeToString())[0] == 200
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown < 300


def test_22_slow_heads_make_room_for_who_asks(world: World) -> None:
    collector = Process(world)
    port, process = int(collector.url.split(":")[2].partition("/")[0]), collector.process
    with ExitStack() as stack:
        stack.callback(process.kill)
        half = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(200)]
        for connection in half:
            connection.sendall(b"POST /v1/traces HTT")
        # The deadline of heads is far away: they make room.
        assert health(port) < LONG
        assert sum(closed(connection, 0.01) for connection in half) >= 180
        assert b'turned_away_total{reason="connections"}' in _metrics(port)
        process.send_signal(signal.SIGTERM)
        assert process.wait(LONG) is not None


def _metrics(port: int) -> bytes:
    return post_get(f"http://127.0.0.1:{port}", "/metrics").encode()
