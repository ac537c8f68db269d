"""Hostile requests against a collector as a process: how it answers each, how long that takes, its memory, and /health meanwhile.

    python -m benchmarks.collect_hostile

Every request goes over a socket of its own; /health is asked all the time. In the end an ordinary request must be taken.
"""

import gzip
import json
import socket
import statistics
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.collect import Collector
from persona_pipeline.testing.worlds import WorldBuilder
from tests.support.otlp_relay import post
from tests.support.spans import agent, chat, request
from tests.trust_boundary.test_collector import hostile, within

PROTOBUF, JSON, MOST_SECONDS = "application/x-protobuf", "application/json", 60
ORDINARY = request(chat(2, ["Hi"], "Yes?", parent=1), agent(1, "ann", "c")).SerializeToString()


def head(length: int | str, *more: str, kind: str = PROTOBUF, path: str = "/v1/traces") -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Type: {kind}", f"Content-Length: {length}", *more]
    return "\r\n".join([*lines, "Connection: close", "", ""]).encode()


def sent(body: bytes, *more: str, kind: str = PROTOBUF, path: str = "/v1/traces") -> bytes:
    return head(len(body), *more, kind=kind, path=path) + body


def requests() -> Iterator[tuple[str, bytes]]:
    """Yield requests with their names."""
    gz, deflate = "Content-Encoding: gzip", "Content-Encoding: deflate"
    for name, body in hostile():
        yield f"{name}, gzip", sent(gzip.compress(body, 1), gz)
        yield f"{name}, logs", sent(gzip.compress(body, 1), gz, path="/v1/logs")
    bomb = within(1, within(2, b"\x12\x00" * 15_700_000))
    yield "15.7 M spans", sent(gzip.compress(bomb, 9), gz)
    yield "3.3 M attributes", sent(gzip.compress(within(1, within(2, within(2, b"\x4a\x00" * 3_300_000))), 9), gz)
    yield "15.7 M spans, deflate", sent(zlib.compress(bomb, 9), deflate)
    yield "a gigabyte of zeros", sent(gzip.compress(bytes(1 << 30), 9), gz)
    yield "gzip in gzip", sent(gzip.compress(gzip.compress(bomb, 9)), gz)
    yield "gzip cut off", sent(gzip.compress(ORDINARY)[:-12], gz)
    yield "no gzip at all", sent(ORDINARY, gz)
    yield "an encoding nobody knows", sent(ORDINARY, "Content-Encoding: zstd")
    yield "random bytes", sent(bytes(range(256)) * 4096)
    yield "a length that never ends", sent(b"\x0a" + b"\xff" * 100)
    yield "deep nesting", sent(b"\x0a\x7f" * 5000)
    for name, text in {
        "JSON of 200,000 spans": json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [{}] * 200_000}]}]}),
        "JSON of brackets": "[" * 1_000_000,
        "JSON of a long number": '{"resourceSpans": ' + "9" * 2_000_000 + "}",
        "JSON twice the same key": '{"resourceSpans": [], "resourceSpans": [{}]}',
        "JSON of lone surrogates": '{"resourceSpans": [{"schemaUrl": "' + "\\ud800" * 100_000 + '"}]}',
        "JSON that is no object": "null",
    }.items():
        yield name, sent(text.encode(), kind=JSON)
    yield "a body of 17 MB", sent(bytes(17 * 1024**2))
    yield "says 10 GB, sends nothing", head(10 * 1024**3)
    yield "a negative length", head(-1)
    yield "a length that is no number", head("9e9")
    yield "two lengths", head(5, "Content-Length: 500000") + b"\x00" * 5
    yield "chunked and a length", head(5, "Transfer-Encoding: chunked") + b"5\r\n\x00\x00\x00\x00\x00\r\n0\r\n\r\n"
    yield "a head of 1 MB", head(0, "X-Long: " + "a" * 1_000_000)
    yield "10,000 headers", head(0, *(f"X-{number}: a" for number in range(10_000)))


def answer(port: int, data: bytes) -> str:
    with socket.create_connection(("127.0.0.1", port), MOST_SECONDS) as connection:
        connection.settimeout(MOST_SECONDS)
        with suppress(ConnectionError):
            connection.sendall(data)
        try:
            line = connection.recv(200).partition(b"\r\n")[0].decode("latin-1")
        except (TimeoutError, ConnectionError) as error:
            return type(error).__name__
    return line.partition(" ")[2] or "closed"


def memory(process: psutil.Process) -> int:
    found = 0
    for each in (process, *process.children(recursive=True)):
        with suppress(psutil.Error):
            found += each.memory_info().rss
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        WorldBuilder(Path(folder)).persona("ann", "Ann is dry.").open()
        collector = Collector(Path(folder))
        process, done, waited, most = psutil.Process(collector.process.pid), threading.Event(), [0.0], [0]
        first = memory(process)

        def watch() -> None:
            while not done.wait(0.05):
                began = time.perf_counter()
                with urlopen(f"{collector.url}/health", timeout=MOST_SECONDS) as asked:
                    asked.read()
                waited.append(time.perf_counter() - began)
                most[0] = max(most[0], memory(process))

        watcher = threading.Thread(target=watch)
        watcher.start()
        sent_all = list(requests())
        for name, data in sent_all:
            began = time.perf_counter()
            said = answer(collector.port, data)
            print(f"{name:<34} {len(data):>11,} bytes {time.perf_counter() - began:6.2f} s  {said}", flush=True)
        done.set()
        watcher.join()
        alive = post(f"{collector.url}/v1/traces", ORDINARY)[0]
        print(
            f"\n{len(sent_all)} requests; memory {first / 2**20:.0f} MB before, {most[0] / 2**20:.0f} MB at most (with its reader)"
        )
        print(f"/health: median {statistics.median(waited):.3f} s, slowest {max(waited):.2f} s of {len(waited)}")
        print(f"an ordinary request: {alive}")
        collector.kill()


if __name__ == "__main__":
    main()
