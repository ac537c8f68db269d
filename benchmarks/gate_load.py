"""The gate's service under load and abuse: every message back once and unchanged, how soon, and what was shed.

    python -m benchmarks.gate_load [load] [half-open] [statistics] [--seconds 300]

The service runs as a process of its own on SQLite; judge and clients are in this one, and nothing leaves the machine. ``load``
takes as many seconds as it is given, over eight kinds of judge at 1, 50 and 300 messages at once; without arguments all of it runs.
"""

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from math import ceil
from pathlib import Path

import sqlalchemy as sa

from persona_pipeline.corrections.configuration import write_config
from persona_pipeline.store import tables
from persona_pipeline.testing.worlds import write_small_world
from persona_pipeline.world import World
from tests.corrections.support import GATED, answer_gate
from tests.support.messages_server import (
    Call,
    Hang,
    MessagesServer,
    Outcome,
    Reply,
    Reset,
    Trickle,
    message,
    status,
)

LEVELS = (1, 50, 300)
PARTS = ("load", "half-open", "statistics")
CHECKS = 300_000
HUGE = "x" * 2_000_000
MODES: dict[str, Callable[[Call], Outcome]] = {
    "healthy": lambda call: Reply(answer_gate(call).body, delay=0.3),
    "hang": lambda call: Hang(),
    "trickle": lambda call: Trickle(answer_gate(call), interval=0.05),
    "429": lambda call: status(429, "rate_limit_error"),
    "500": lambda call: status(500),
    "malformed": lambda call: message("{" + "not json" * 10),
    "reset": lambda call: Reset(),
    "huge": lambda call: message(json.dumps({"verdicts": HUGE})),
}


@contextmanager
def service(judge: str, *options: str) -> Iterator[tuple[int, int, World]]:
    """Run the service against a judge; yield its port, its process's id and its world."""
    with tempfile.TemporaryDirectory() as folder:
        root = write_small_world(Path(folder) / "world")
        world = World.open(root, f"sqlite:///{root / 'gate.db'}")
        world.sync()
        for agent_id in ("ann", "bob"):
            write_config(world.store, agent_id, GATED)
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        environment = {
            **os.environ,
            "PERSONA_ROOT": str(root),
            "PERSONA_DATABASE_URL": f"sqlite:///{root / 'gate.db'}",
            "ANTHROPIC_BASE_URL": judge,
            "ANTHROPIC_API_KEY": "none",
        }
        code = "from persona_pipeline.cli import main; main()"
        command = [sys.executable, "-c", code, "corrections", "serve", "--port", str(port), *options]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            for _ in range(300):
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    time.sleep(0.1)
            yield port, process.pid, world
        finally:
            process.terminate()
            process.wait(10)
            world.store.close()


class Client:
    """One connection that sends a request after another."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """Return status and body of the answer."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        fields = ("host: localhost", "content-type: application/json", f"content-length: {len(body)}")
        head = "\r\n".join([f"{method} {path} HTTP/1.1", *fields, "", ""])
        writer.write(head.encode("ascii") + body)
        await writer.drain()
        answered = await reader.readuntil(b"\r\n\r\n")
        lines = answered.decode("latin-1").split("\r\n")
        length = next(int(line.split(":")[1]) for line in lines if line.lower().startswith("content-length"))
        return int(lines[0].split(" ")[1]), await reader.readexactly(length)

    def close(self) -> None:
        if self._streams:
            self._streams[1].close()
            self._streams = None


class Told:
    """What came back of a level."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.reasons: Counter[str] = Counter()
        self.wrong: list[str] = []

    def line(self, mode: str, level: int) -> str:
        quantiles = "".join(f"{quantile(self.seconds, share):>8.3f}" for share in (0.5, 0.99, 1.0))
        unchecked = sum(count for reason, count in self.reasons.items() if reason != "checked")
        said = ", ".join(f"{reason} {count}" for reason, count in self.reasons.most_common())
        counts = f"{unchecked / max(1, len(self.seconds)):>9.1%}{len(self.wrong):>7}"
        return f"{mode:<10}{level:>4}{len(self.seconds):>8}{quantiles}{counts}  {said}"


def quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values) or [0.0]
    return ordered[ceil(share * len(ordered)) - 1]


async def send_for(port: int, level: int, seconds: float, label: str) -> Told:
    """Have so many senders send a message after another for a while."""
    told = Told()
    ends = time.monotonic() + seconds

    async def sender(number: int) -> None:
        client = Client(port)
        count = 0
        while time.monotonic() < ends or count == 0:
            text = f"{label} {number}/{count} says hello 8"
            body = json.dumps({"agent_id": "ann", "text": text, "channel": f"room-{number}"}).encode()
            started = time.monotonic()
            try:
                code, answered = await asyncio.wait_for(client.send("POST", "/v1/gate", body), 10)
            except Exception as error:
                told.wrong.append(f"{type(error).__name__}: {text}")
                client.close()
                count += 1
                continue
            told.seconds.append(time.monotonic() - started)
            count += 1
            data = json.loads(answered)
            if code != 200 or data["text"] != text:
                told.wrong.append(f"{code}: {text}")
            else:
                told.reasons[data["reason"] or "checked"] += 1
        client.close()

    await asyncio.gather(*(sender(number) for number in range(level)))
    return told


def load(seconds: float) -> int:
    """Every kind of judge at every level; return how many messages came back changed, twice or not at all."""
    each = seconds / (len(MODES) * len(LEVELS))
    print(
        f"{'judge':<10}{'at once':>4}{'sent':>5}{'p50 s':>8}{'p99 s':>8}{'most s':>8}{'unchecked':>10}{'wrong':>6}  reasons"
    )
    wrong = 0
    for mode, handler in MODES.items():
        for level in LEVELS:
            with MessagesServer(handler) as judge, service(judge.url) as (port, _, _):
                told = asyncio.run(send_for(port, level, each, f"{mode}-{level}"))
            print(told.line(mode, level), flush=True)
            for item in told.wrong[:3]:
                print("   wrong:", item)
            wrong += len(told.wrong)
    return wrong


def half_open() -> int:
    """400 connections that send half a head; return whether /health took longer than a second."""

    async def run(port: int) -> list[float]:
        half = [await asyncio.open_connection("127.0.0.1", port) for _ in range(400)]
        for _, writer in half:
            writer.write(b"POST /v1/gate HTTP/1.1\r\nhost: loc")
        took = []
        for _ in range(20):
            client, started = Client(port), time.monotonic()
            code, _ = await client.send("GET", "/health")
            client.close()
            took.append(time.monotonic() - started)
            assert code == 200
            await asyncio.sleep(0.1)
        for _, writer in half:
            writer.close()
        return took

    with MessagesServer(answer_gate) as judge, service(judge.url) as (port, _, _):
        took = asyncio.run(run(port))
    print(f"400 half-open connections: /health p50 {quantile(took, 0.5) * 1000:.0f} ms, most {max(took) * 1000:.0f} ms")
    return int(max(took) >= 1.0)


def memory(pid: int) -> float:
    """Resident megabytes of a process."""
    fields = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text("ascii").splitlines() if ":" in line
    )
    return int(fields["VmRSS"].split()[0]) / 1024


def statistics() -> int:
    """/v1/statistics on 300,000 checks; return whether it took more than 200 ms or memory grew by more than 50 MB."""
    start = datetime.now(UTC) - timedelta(days=30)
    rows = (
        {
            "agent_id": ("ann", "bob")[number % 2],
            "action_id": f"a{number // 2}" if number % 10 == 9 else f"b{number}",
            "attempt_number": 1,
            "decision": "retry" if number % 12 == 0 else "commit",
            "reason": "timeout" if number % 20 == 0 and number % 12 else None,
            "score": 7.0,
            "latency_ms": float(1 + number * 7919 % 4800),
            "token_usage": {"input_tokens": 900, "output_tokens": 120, "cache_read_tokens": 400},
            "usd": 0.0002,
            "created_at": start + timedelta(seconds=8 * number),
        }
        for number in range(CHECKS)
    )
    with MessagesServer(answer_gate) as judge, service(judge.url) as (port, pid, world):
        before = memory(pid)
        chunk: list[dict[str, object]] = []
        for row in rows:
            chunk.append(row)
            if len(chunk) == 20_000:
                with world.store.begin() as connection:
                    connection.execute(sa.insert(tables.gate_checks), chunk)
                chunk = []
        peak, done = [before], threading.Event()

        def watch() -> None:
            while not done.wait(0.1):
                peak.append(memory(pid))

        threading.Thread(target=watch, daemon=True).start()

        async def ask() -> tuple[list[float], dict]:
            client, took, data = Client(port), [], {}
            while json.loads((await client.send("GET", "/v1/statistics"))[1])["uncounted"]:
                await asyncio.sleep(1)
            for _ in range(30):
                started = time.monotonic()
                code, body = await client.send("GET", "/v1/statistics")
                took.append(time.monotonic() - started)
                data = json.loads(body)
                assert code == 200, body
            client.close()
            return took, data

        took, data = asyncio.run(ask())
        done.set()
    print(
        f"statistics of {data['total']['checks']:,} checks: p50 {quantile(took, 0.5) * 1000:.0f} ms, p95 "
        f"{quantile(took, 0.95) * 1000:.0f} ms, most {max(took) * 1000:.0f} ms; memory {before:.0f} -> {max(peak):.0f} MB"
    )
    return int(quantile(took, 0.95) > 0.2 or max(peak) - before > 50 or data["total"]["checks"] != CHECKS)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--seconds", type=float, default=300.0)
    arguments = parser.parse_args()
    parts = arguments.parts or PARTS
    failed = 0
    if "load" in parts:
        failed += load(arguments.seconds)
    if "half-open" in parts:
        failed += half_open()
    if "statistics" in parts:
        failed += statistics()
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
