"""Runtime corrections: what a check costs, what caching saves, and the gate between an agent and a model.

    python benchmarks/gate.py checks
    python benchmarks/gate.py caching [agent]
    python benchmarks/gate.py load [--seconds 300]
    python benchmarks/gate.py passing [latency] [price]

The judge is a local stand-in for the Messages API; nothing leaves the machine.

``checks``: milliseconds of a check without a judge, and with a judge that answers at once.
``caching``: dollars of a hundred checks of one agent, with and without persona and claims in the API's cache. The stand-in
takes four characters for a token, so the sums can be compared with one another but are not a bill.
``load``: the service as a process of its own, with eight kinds of judge at 1, 50 and 300 messages at once: each message must come
back once and unchanged.
``passing``: the gateway (``corrections serve --upstream``) as a process of its own: the time it adds to an answer, and what a
streamed message of six sentences costs by how often the judge rejects. Half of the answers are streamed.
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
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
from pydantic import SecretStr

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT))

from persona_pipeline.corrections.configuration import write_config
from persona_pipeline.corrections.gate import (
    ActionGate,
    gate_backend,
)
from persona_pipeline.corrections.interventions import Interventions
from persona_pipeline.corrections.service.app import create_app
from persona_pipeline.corrections.service.passing import ModelUpstream
from persona_pipeline.corrections.statistics import correction_statistics
from persona_pipeline.judging.money import estimated_tokens
from persona_pipeline.judging.providers.base import ModelOptions
from persona_pipeline.judging.verdict import Answer, Backend, Question, Usage
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
    ordered = sorted(values) or [0.0]
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
                seconds = [await timed(lambda: live.check("michael", "Hello 7", channel="general")) for _ in range(100)]
            show("gate over HTTP to a judge that answers at once", seconds)
        gate.flush()
        total = correction_statistics(world.store, agent_ids=["michael"]).total
        print(
            "one check of michael, tokens estimated at four characters each: "
            f"{(total.input_tokens + total.cached_tokens) / total.checks:.0f} in, {total.output_tokens / total.checks:.0f} out, "
            f"{total.usd_per_check:.6f} dollars at claude-haiku-5-5 prices"
        )
        world.store.close()


async def at_once(gate: ActionGate, count: int) -> list[float]:
    async with gate:
        return list(
            await asyncio.gather(
                *(timed(lambda n=n: gate.check("jim", "x 7", channel=f"room-{n}")) for n in range(count))
            )
        )


def run_checks() -> None:
    asyncio.run(overhead())


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
        backend = gate_backend(options=ModelOptions(base_url=server.url, api_key=SecretStr("none")))
        async with ActionGate(world, backend if marked else Unmarked(backend), settings=settings) as gate:
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


class Told:
    """What came back of a level."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.reasons: Counter[str] = Counter()
        self.wrong: list[str] = []

    def line(self, mode: str, level: int) -> str:
        quantiles = "".join(f"{quantile(self.seconds, share):>8.3f}" for share in (0.5, 0.99, 0.999, 1.0))
        unchecked = sum(count for reason, count in self.reasons.items() if reason != "checked")
        said = ", ".join(f"{reason} {count}" for reason, count in self.reasons.most_common())
        counts = f"{unchecked / max(1, len(self.seconds)):>9.1%}{len(self.wrong):>7}"
        return f"{mode:<10}{level:>4}{len(self.seconds):>8}{quantiles}{counts}  {said}"


async def send_for(port: int, level: int, seconds: float, label: str) -> Told:
    """Have so many senders send a message after another for a while."""
    told = Told()
    ends = time.monotonic() + seconds

    async def sender(number: int) -> None:
        count = 0
        while time.monotonic() < ends or count == 0:
            text = f"{label} {number}/{count} says hello 8"
            count += 1
            started = time.monotonic()
            try:
                body = {"agent_id": "ann", "text": text, "channel": f"room-{number}"}
                response = await client.post(f"http://127.0.0.1:{port}/v1/gate", json=body)
            except httpx2.HTTPError as error:
                told.wrong.append(f"{type(error).__name__}: {text}")
                continue
            told.seconds.append(time.monotonic() - started)
            data = response.json()
            if response.status_code != 200 or data["text"] != text:
                told.wrong.append(f"{response.status_code}: {text}")
            else:
                told.reasons[data["reason"] or "checked"] += 1

    async with httpx2.AsyncClient(timeout=10, limits=httpx2.Limits(max_connections=None)) as client:
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


def run_load() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=300.0)
    return int(gate_load(parser.parse_args().seconds) > 0)


CHAT = "/v1/chat/completions"


async def model_answer(client: Any, url: str, model: str, number: int) -> None:
    """Read an answer to its end; every other one is streamed."""
    body = {"model": model, "stream": number % 2 == 1, "messages": [{"role": "user", "content": f"number {number}"}]}
    async with client.stream("POST", url + CHAT, json=body, headers={"authorization": "Bearer k"}) as response:
        async for _ in response.aiter_raw():
            pass


def spoken(asked: Any, written: Written) -> Written:
    said = asked.turns[-1]["content"]
    return replace(written, text=f"This is {said} of them all. It says hello to {said}. And that is the end of {said}.")


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
    parser.add_argument("parts", nargs="*", metavar="PART", help="latency, price")
    arguments = parser.parse_args()
    parts = arguments.parts or ("price", "latency")
    failed = passing_price() if "price" in parts else 0
    return int(failed + (passing_latency() if "latency" in parts else 0) > 0)


COMMANDS = {
    "checks": run_checks,
    "caching": run_caching,
    "load": run_load,
    "passing": run_passing,
}


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        sys.exit(f"{__doc__}\nname one of {', '.join(COMMANDS)}")
    sys.exit(COMMANDS[sys.argv.pop(1)]())
