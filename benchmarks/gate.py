"""Runtime corrections: what a check costs, what caching saves, load, and the gate in the way of a model.

**checks**

Runtime corrections: what a check costs, and how long an agent waits.

    python benchmarks/gate.py checks [overhead] [faults] [load]

Without arguments everything runs, in a few minutes. The judge is a local stand-in for the Messages API; nothing leaves the
machine. What the nudges detect is measured on real dialogue by benchmarks/signals.py.

**caching**

What a hundred gate checks of one agent cost with and without persona and claims in the API's cache.

    python benchmarks/gate.py caching [agent]

The judge is a local stand-in for the Messages API that simulates prompt caching and takes four characters for a
token, so sums can be compared with one another and are no bill. Nothing leaves the machine.

**load**

The gate's service under load and abuse: every message back once and unchanged, how soon, and what was shed.

    python benchmarks/gate.py load [load] [half-open] [statistics] [--seconds 300]

The service runs as a process of its own on SQLite; judge and clients are in this one, and nothing leaves the machine. ``load``
takes as many seconds as it is given, over eight kinds of judge at 1, 50 and 300 messages at once; without arguments all of it runs.

**passing**

The gate in the way of a model (``corrections serve --upstream``): what it adds to an answer at 10 at once without a judge, and how
many of 16,600 answers are lost or changed while the upstream, the judge, the store, the client or the gate itself fails.

    python benchmarks/gate.py passing [latency] [faults] [price] [--requests 16600]

The service is a process of its own; model, judge and clients are in this one. Half of the answers are streamed. ``price`` counts
what a streamed message of six sentences takes, by how often the judge rejects: requests, checks, tokens of the model, and dollars
at the price of one check that ``caching`` measures.

**language**

In which language the gate answers: lines of benchmarks/everyday in ten languages, alone, after nine of the same agent, and after
nine in another language.

    python benchmarks/gate.py language

The number of words from which a text is told alone was chosen on the even blocks of sixteen lines; both halves are shown.
"""

import argparse
import asyncio
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import ceil
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import sqlalchemy as sa
import yaml
from pydantic import SecretStr
from scipy.stats import binomtest

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT))

from persona_pipeline.base.database import tables
from persona_pipeline.corrections.configuration import write_config
from persona_pipeline.corrections.gate import (
    ActionGate,
    gate_backend,
)
from persona_pipeline.corrections.interventions import Interventions
from persona_pipeline.corrections.nudges import language_told
from persona_pipeline.corrections.service.app import create_app
from persona_pipeline.corrections.service.passing import ModelUpstream
from persona_pipeline.corrections.statistics import correction_statistics
from persona_pipeline.judging.money import estimated_tokens
from persona_pipeline.judging.providers.base import ModelOptions
from persona_pipeline.judging.verdict import Answer, Backend, Question, Usage
from persona_pipeline.scoring.text.agreement import UNKNOWN
from persona_pipeline.testing.worlds import write_small_world
from persona_pipeline.world import CorrectionSettings, World
from tests.corrections.support import (
    GATED,
    TextBackend,
    answer_gate,
)
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
from tests.support.model_server import ModelServer, Written
from tests.support.serving import serving

ALL_ON = CorrectionSettings(
    action_gate_enabled=True, anti_convergence_enabled=True, repetition_suppression_enabled=True
)


def quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[ceil(share * len(ordered)) - 1]


def open_world(folder: str) -> World:
    world = World.open(PROJECT, f"sqlite:///{folder}/store.db")
    world.sync()
    for agent_id in world.agent_ids():
        write_config(world.store, agent_id, ALL_ON)
    return world


def show(name: str, seconds: Sequence[float]) -> None:
    p50, p99 = (quantile(seconds, share) * 1000 for share in (0.5, 0.99))
    print(f"{name:<52}{len(seconds):>6}{p50:>10.2f}{p99:>10.2f}{max(seconds) * 1000:>10.2f}")


def head(title: str) -> None:
    print(f"\n{title}\n{'':<52}{'n':>6}{'p50 ms':>10}{'p99 ms':>10}{'max ms':>10}")


async def timed(call: Callable[[], Awaitable[object]]) -> float:
    started = time.perf_counter()
    await call()
    return time.perf_counter() - started


async def overhead() -> None:
    """What corrections cost without a judge to wait for, and what a check costs with one."""
    with tempfile.TemporaryDirectory() as folder:
        world = open_world(folder)
        gate = ActionGate(world, TextBackend())
        look = Interventions(world)
        head("Overhead without the judge, sample world on SQLite")
        await gate.check("jim", "warm 7", channel="general")
        show(
            "gate, one after the other",
            [await timed(lambda: gate.check("jim", "x 7", channel="general")) for _ in range(500)],
        )
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(timed(lambda n=n: gate.check("jim", "x 7", channel=f"room-{n}"))) for n in range(200)
            ]
        show("gate, 200 at once", [task.result() for task in tasks])
        off = ActionGate(world, TextBackend(), settings=CorrectionSettings())
        show("gate that is off", [await timed(lambda: off.check("jim", "x", channel="general")) for _ in range(500)])
        show(
            "both interventions",
            [await timed(lambda: look.before_turn("jim", channel="general")) for _ in range(500)],
        )
        with MessagesServer(answer_gate) as server:
            options = ModelOptions(base_url=server.url, api_key=SecretStr("none"))
            async with ActionGate(world, gate_backend(options=options)) as live:
                show(
                    "gate over HTTP to a judge that answers at once",
                    [await timed(lambda: live.check("michael", "Hello team 7", channel="general")) for _ in range(100)],
                )
        gate.flush()
        total = correction_statistics(world.store, agent_ids=["michael"]).total
        claims = len(live._judge._propositions.of("michael").propositions)
        print(
            f"one check of michael ({claims} claims, 15 earlier messages), tokens estimated at four characters each: "
            f"{(total.input_tokens + total.cached_tokens) / total.checks:.0f} in, {total.output_tokens / total.checks:.0f} out, "
            f"{total.usd_per_check:.6f} dollars at claude-haiku-5-5 prices"
        )
        world.store.close()


async def faults() -> None:
    """How long a message waits past a judge or a database that does not answer, the deadline being 5 s."""
    head("Fail-open under faults, deadline 5 s, aim: never above 5050 ms")
    with tempfile.TemporaryDirectory() as folder, MessagesServer() as server:
        world = open_world(folder)
        options = ModelOptions(base_url=server.url, api_key=SecretStr("none"))
        for name, outcome in (("hang", Hang()), ("trickle", Trickle(message("{}"), 0.05))):
            server.always(outcome)
            gate = ActionGate(world, gate_backend(options=options), breaker_threshold=10_000)
            show(f"judge: {name}, 100 at once", await at_once(gate, 100))
        refused = gate_backend(options=ModelOptions(base_url="http://127.0.0.1:1", api_key=SecretStr("none")))
        show("judge: refused, 100 at once", await at_once(ActionGate(world, refused, breaker_threshold=10_000), 100))
        with socket.create_server(("127.0.0.1", 0), backlog=200) as silent:
            from persona_pipeline.base.database.engine import open_store

            stuck = World(
                world.root, open_store(f"postgresql://x@127.0.0.1:{silent.getsockname()[1]}/x", migrate=False)
            )
            gate = ActionGate(stuck, TextBackend(), breaker_threshold=10_000)
            show("database: never answers, 100 at once", await at_once(gate, 100))
        world.store.close()


async def at_once(gate: ActionGate, count: int) -> list[float]:
    async with gate:
        return list(
            await asyncio.gather(
                *(timed(lambda n=n: gate.check("jim", "x 7", channel=f"room-{n}")) for n in range(count))
            )
        )


async def load() -> None:
    """Requests to the service over HTTP, a judge of 300 ms behind it."""
    import httpx2 as httpx
    import uvicorn

    from persona_pipeline.corrections.service.app import create_app

    head("Service over HTTP, judge of 300 ms")
    with tempfile.TemporaryDirectory() as folder, MessagesServer(answer_gate, latency=0.3) as judge:
        world = open_world(folder)
        options = ModelOptions(base_url=judge.url, api_key=SecretStr("none"))
        app = create_app(world, gate_backend(options=options))
        server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        while not server.started:
            await asyncio.sleep(0.05)
        port = server.servers[0].sockets[0].getsockname()[1]
        limits = httpx.Limits(max_connections=100)
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", limits=limits, timeout=30) as client:
            for path, body, count in (
                ("/v1/gate", {"agent_id": "jim", "text": "hello 7", "channel": "general"}, 1000),
                ("/v1/interventions", {"agent_id": "jim", "channel": "general"}, 1000),
            ):
                slots = asyncio.Semaphore(50)

                async def post(path: str = path, body: dict = body, slots: asyncio.Semaphore = slots) -> float:
                    async with slots:
                        return await timed(lambda: client.post(path, json=body))

                started = time.perf_counter()
                seconds = await asyncio.gather(*(post() for _ in range(count)))
                rate = count / (time.perf_counter() - started)
                show(f"{path}, 50 at a time ({rate:.0f} a second)", seconds)
        server.should_exit = True
        thread.join(10)
        world.store.close()


def run_checks() -> None:
    parts = {"overhead": overhead, "faults": faults, "load": load}
    for name in sys.argv[1:] or parts:
        result = parts[name]()
        if result is not None:
            asyncio.run(result)


CHECKS = 100


class Unmarked:
    """Asks every question as if nothing of it came again."""

    name, live = "unmarked", True

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    async def ask(self, questions: Sequence[Question]) -> list[Answer]:
        return await self.backend.ask([replace(question, context_recurs=False) for question in questions])


def texts_of(agent_id: str) -> list[str]:
    files = sorted((PROJECT / "messages").glob("*.jsonl"))
    rows = [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    return [row["text"] for row in rows if row["agent_id"] == agent_id]


async def usage_of(agent_id: str, *, marked: bool) -> Usage:
    """Check the agent's messages of the sample world, each as something new, one after the other."""
    settings = CorrectionSettings(action_gate_enabled=True)
    texts = texts_of(agent_id)
    with tempfile.TemporaryDirectory() as folder, MessagesServer(answer_gate) as server:
        world = World.open(PROJECT, f"sqlite:///{folder}/store.db")
        world.sync()
        async with gate_backend(options=ModelOptions(base_url=server.url, api_key=SecretStr("none"))) as backend:
            gate = ActionGate(world, backend if marked else Unmarked(backend), settings=settings)
            decisions = [
                await gate.check(agent_id, f"{texts[n % len(texts)]} {n}-7", channel="general") for n in range(CHECKS)
            ]
        gate.flush()
        world.store.close()
    assert not server.problems
    assert all(decision.score is not None for decision in decisions)
    return sum((decision.usage for decision in decisions), Usage())


def run_caching() -> None:
    agent_id = sys.argv[1] if len(sys.argv) > 1 else "michael"
    print(f"{CHECKS} checks of {agent_id}, prices of claude-haiku-5-5")
    print(f"{'':<28}{'uncached':>10}{'written':>10}{'read':>10}{'out':>10}{'dollars':>10}")
    for name, marked in (("nothing marked", False), ("persona and claims marked", True)):
        usage = asyncio.run(usage_of(agent_id, marked=marked))
        counts = (usage.input_tokens, usage.cache_creation_tokens, usage.cache_read_tokens, usage.output_tokens)
        print(f"{name:<28}" + "".join(f"{count:>10,}" for count in counts) + f"{usage.usd or 0:>10.5f}")


LEVELS = (1, 50, 300)
PARTS = ("load", "half-open", "statistics")
GATE_CHECKS = 300_000
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
def service(judge: str, *options: str, broken: str = "") -> Iterator[tuple[int, int, World]]:
    """Run the service against a judge; yield its port, its process's id and its world. ``broken``: code that breaks some of it."""
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
        code = f"{broken}\nfrom persona_pipeline.cli import main; main()"
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
        quantiles = "".join(f"{gate_quantile(self.seconds, share):>8.3f}" for share in (0.5, 0.99, 0.999, 1.0))
        unchecked = sum(count for reason, count in self.reasons.items() if reason != "checked")
        said = ", ".join(f"{reason} {count}" for reason, count in self.reasons.most_common())
        counts = f"{unchecked / max(1, len(self.seconds)):>9.1%}{len(self.wrong):>7}"
        return f"{mode:<10}{level:>4}{len(self.seconds):>8}{quantiles}{counts}  {said}"


def gate_quantile(values: Sequence[float], share: float) -> float:
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


def gate_load(seconds: float) -> int:
    """Every kind of judge at every level; return how many messages came back changed, twice or not at all."""
    each = seconds / (len(MODES) * len(LEVELS))
    print(
        f"{'judge':<10}{'at once':>4}{'sent':>5}{'p50 s':>8}{'p99 s':>8}{'p99.9 s':>8}{'most s':>8}"
        f"{'unchecked':>10}{'wrong':>6}  reasons"
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
    print(
        f"400 half-open connections: /health p50 {gate_quantile(took, 0.5) * 1000:.0f} ms, most {max(took) * 1000:.0f} ms"
    )
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
        for number in range(GATE_CHECKS)
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
        f"statistics of {data['total']['checks']:,} checks: p50 {gate_quantile(took, 0.5) * 1000:.0f} ms, p95 "
        f"{gate_quantile(took, 0.95) * 1000:.0f} ms, most {max(took) * 1000:.0f} ms; memory {before:.0f} -> {max(peak):.0f} MB"
    )
    return int(gate_quantile(took, 0.95) > 0.2 or max(peak) - before > 50 or data["total"]["checks"] != GATE_CHECKS)


def run_load() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--seconds", type=float, default=300.0)
    arguments = parser.parse_args()
    parts = arguments.parts or PARTS
    failed = 0
    if "load" in parts:
        failed += gate_load(arguments.seconds)
    if "half-open" in parts:
        failed += half_open()
    if "statistics" in parts:
        failed += statistics()
    return int(failed > 0)


# Of the model's answers; each has three sentences.
FAULTS: dict[str, Written] = {
    "upstream resets": Written(fault="reset"),
    "upstream slow": Written(pause=0.2),
    "half a stream": Written(fault="half"),
    "bad JSON": Written(fault="bad"),
    "gzip": Written(fault="gzip"),
    "429": Written(fault="429"),
    "500": Written(fault="500"),
    **{name: Written() for name in ("judge slow", "judge down", "store down", "client leaves", "gate raises")},
}
JUDGE_FAULTS: dict[str, Callable[[Call], Outcome]] = {
    "judge slow": lambda call: Hang(),
    "judge down": lambda call: status(500),
}
BROKEN = {
    "gate raises": """
from persona_pipeline.corrections.gate import ActionGate
async def raising(*_, **__): raise RuntimeError("broken on purpose")
ActionGate.check = raising
""",
    "store down": """
from persona_pipeline.base.database.engine import Store
from persona_pipeline.corrections.service import app
made = app.create_app
def down(*_, **__): raise OSError("no store")
def create_app(*given, **told):
    found = made(*given, **told)
    Store.connect = Store.begin = Store.row = down
    return found
app.create_app = create_app
""",
}
CHAT = "/v1/chat/completions"


async def model_answer(
    client: Any, url: str, model: str, number: int, *, leaves: bool = False
) -> tuple[int, bytes, bool]:
    """Return status and bytes of an answer, every other one streamed, and whether it came to its end."""
    body = {"model": model, "stream": number % 2 == 1, "messages": [{"role": "user", "content": f"number {number}"}]}
    received, whole = b"", True
    try:
        async with client.stream("POST", url + CHAT, json=body, headers={"authorization": "Bearer k"}) as response:
            async for chunk in response.aiter_raw():
                received += chunk
                if leaves:
                    return response.status_code, received, False
    except httpx2.RemoteProtocolError:
        whole = False
        if not received:
            return 0, b"", False
    return response.status_code, received, whole


def spoken(asked: Any, written: Written) -> Written:
    said = asked.turns[-1]["content"]
    return replace(written, text=f"This is {said} of them all. It says hello to {said}. And that is the end of {said}.")


async def counted_answers(direct: str, through: str, mode: str, count: int) -> Counter[str]:
    """Ask directly and through the gate, 20 at once; return how many answers were the same."""
    found: Counter[str] = Counter()
    places, leaves = asyncio.Semaphore(20), mode == "client leaves"
    async with httpx2.AsyncClient(timeout=60, limits=httpx2.Limits(max_connections=None)) as client:

        async def one(number: int) -> None:
            async with places:
                try:
                    seen = await model_answer(client, through, "ann", number, leaves=leaves)
                    wanted = await model_answer(client, direct, "ann", number)
                except Exception as error:
                    found[f"lost ({type(error).__name__})"] += 1
                    return
            if leaves:
                found["same" if wanted[1].startswith(seen[1]) else "changed"] += 1
            elif wanted[0] == 0:
                found["same" if seen[0] == 502 else "changed"] += 1
            else:
                found["same" if seen == wanted else "changed"] += 1

        await asyncio.gather(*(one(number) for number in range(count)))
    return found


def passing_faults(requests: int) -> int:
    """Every fault; return how many answers were lost or changed."""
    wrong = 0
    each = -(-requests // len(FAULTS))
    for mode, written in FAULTS.items():
        model = ModelServer(lambda asked, written=written: spoken(asked, written))
        judged = JUDGE_FAULTS.get(mode, answer_gate)
        with (
            serving(model) as direct,
            MessagesServer(judged) as judge,
            service(judge.url, "--upstream", direct, "--ask-again", broken=BROKEN.get(mode, "")) as (port, _, world),
        ):
            started = time.monotonic()
            found = asyncio.run(counted_answers(direct, f"http://127.0.0.1:{port}", mode, each))
            took = time.monotonic() - started
            total = correction_statistics(world.store).total
        print(
            f"{mode:<16}{each:>7}{took:>8.1f} s  {dict(found)}, checks {total.checks}, fail-open {total.fail_open}",
            flush=True,
        )
        wrong += found.total() - found["same"]
    print(f"{each * len(FAULTS):,} answers, lost or changed: {wrong}")
    return wrong


async def model_seconds(url: str, model: str, count: int, *, stream: bool) -> list[float]:
    places = asyncio.Semaphore(10)
    async with httpx2.AsyncClient(timeout=60, limits=httpx2.Limits(max_connections=None)) as client:

        async def one(number: int) -> float:
            async with places:
                started = time.perf_counter()
                await model_answer(client, url, model, 2 * number + stream)
                return time.perf_counter() - started

        await asyncio.gather(*(one(number) for number in range(20)))
        return list(await asyncio.gather(*(one(number) for number in range(count))))


def passing_latency() -> int:
    """Answers of a model that takes 100 ms, 10 at once; return whether more than 10 ms is added to p99 where no judge is asked."""
    model = ModelServer(lambda asked: spoken(asked, Written(pause=0.1)))
    added = []
    with (
        serving(model) as direct,
        MessagesServer(answer_gate) as judge,
        service(judge.url, "--upstream", direct, "--ask-again") as (port, _, world),
    ):
        write_config(world.store, "bob", CorrectionSettings())
        ways = {"through, nobody's model": "gpt-5", "through, an agent without a gate": "bob", "through, judged": "ann"}
        for stream in (False, True):
            head(f"A model of 100 ms, 10 at once, {'streamed' if stream else 'whole'}")
            for _ in range(3):
                base = asyncio.run(model_seconds(direct, "gpt-5", 300, stream=stream))
                show("direct", base)
                for name, of in ways.items():
                    seconds = asyncio.run(model_seconds(f"http://127.0.0.1:{port}", of, 300, stream=stream))
                    show(name, seconds)
                    if of != "ann":
                        added.append((quantile(seconds, 0.99) - quantile(base, 0.99)) * 1000)
    print("added to p99 without a judge, ms:", " ".join(f"{item:.1f}" for item in added))
    return int(float(np.median(added)) > 10)


# Of a check of Michael within five minutes of another, as ``caching`` measures it.
CHECK_USD = 0.000212
SIX = " ".join(f"This is number {number} of the six sentences." for number in range(6))


def passing_price(messages: int = 30) -> int:
    """Print what a held message takes at the median and at most, over messages whose sentences are rejected by chance."""
    head("A streamed message of six sentences")
    for share in (0.0, 0.1, 0.3, 0.6, 1.0):
        chance = random.Random(7)

        def judged(question: Question, share: float = share, chance: random.Random = chance) -> Answer:
            score = 1 if chance.random() < share else 8
            claims = json.loads(question.context[-1].partition("\n")[2])["claims"]
            data = {"verdicts": [{"id": claim["id"], "reason": "So it is.", "score": score} for claim in claims]}
            return Answer(data, usage=Usage(calls=1, usd=CHECK_USD), model="m")

        model, judge = ModelServer(lambda asked: Written(SIX)), TextBackend(judged)
        found: list[tuple[int, int, int]] = []
        with tempfile.TemporaryDirectory() as folder, serving(model) as direct:
            world = World.open(write_small_world(Path(folder) / "world"), f"sqlite:///{folder}/gate.db")
            world.sync()
            write_config(world.store, "ann", GATED)
            upstream = ModelUpstream(direct, {"ann": "ann"}, ask_again=True)
            with serving(create_app(world, judge, upstream=upstream)) as url:
                through = url.replace("127.0.0.1", "localhost")
                with httpx2.Client(timeout=60) as client:
                    for _ in range(messages):
                        before = len(model.requests), len(judge.questions)
                        body = {"model": "ann", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
                        client.post(through + CHAT, json=body).raise_for_status()
                        requests, checks = len(model.requests) - before[0], len(judge.questions) - before[1]
                        found.append((requests, checks, requests * estimated_tokens(SIX)))
            world.store.close()
        for name, at in (("median", 0.5), ("most", 1.0)):
            requests, checks, tokens = (quantile([row[place] for row in found], at) for place in range(3))
            told = f"{requests:.0f} requests, {checks:.0f} checks, {tokens:.0f} tokens written"
            print(f"rejected {share:>4.0%}, {name:<7}{told}, ${checks * CHECK_USD:.5f} for checks", flush=True)
    return 0


def run_passing() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", metavar="PART", help="latency, faults, price")
    parser.add_argument("--requests", type=int, default=16_600)
    arguments = parser.parse_args()
    parts = arguments.parts or ("price", "latency", "faults")
    failed = passing_price() if "price" in parts else 0
    failed += passing_latency() if "latency" in parts else 0
    return int(failed + (passing_faults(arguments.requests) if "faults" in parts else 0) > 0)


def run_language() -> None:
    said = {
        path.stem: yaml.safe_load(path.read_text(encoding="utf-8"))["voice"]
        for path in sorted((PROJECT / "benchmarks" / "everyday").glob("*.yaml"))
    }
    names = [*said]
    for half in ("even", "odd"):
        told: dict[str, Counter[str]] = {
            "alone": Counter(),
            "after nine": Counter(),
            "after nine of another": Counter(),
        }
        for language, lines in said.items():
            chosen = [line for place, line in enumerate(lines) if place // 16 % 2 == (half == "odd")]
            for place, line in enumerate(chosen):
                tries = [("alone", []), *([("after nine", chosen[place - 9 : place])] if place >= 9 else [])]
                others = [said[names[(names.index(language) + step) % len(names)]] for step in (1, 3, 7)]
                tries += [("after nine of another", other[place : place + 9]) for other in others]
                for kind, before in tries:
                    found = language_told([line], before)
                    told[kind][{language: "right", UNKNOWN: "unknown"}.get(found, "another")] += 1
        for kind, counts in told.items():
            low, high = binomtest(counts["right"], counts.total()).proportion_ci(method="wilson")
            share = counts["right"] / counts.total()
            print(f"{half} blocks, {kind}: {share:.3f} [{low:.3f}, {high:.3f}] of {counts.total()} {dict(counts)}")


COMMANDS = {
    "language": run_language,
    "checks": run_checks,
    "caching": run_caching,
    "load": run_load,
    "passing": run_passing,
}


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        sys.exit(f"{__doc__}\nname one of {', '.join(COMMANDS)}")
    sys.exit(COMMANDS[sys.argv.pop(1)]())
