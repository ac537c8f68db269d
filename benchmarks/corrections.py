"""Runtime corrections: what repetition suppression detects, what a check costs, and how long an agent waits.

    python benchmarks/corrections.py [detection] [overhead] [faults] [load]

Without arguments everything runs, in a few minutes. Corpora are generated from a seed, the judge is a local stand-in for the
Messages API; nothing leaves the machine.
"""

import asyncio
import json
import random
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from math import ceil
from pathlib import Path

from pydantic import SecretStr

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT))

from persona_pipeline.corrections.backend import gate_backend  # noqa: E402
from persona_pipeline.corrections.configuration import write_config  # noqa: E402
from persona_pipeline.corrections.gate import ActionGate  # noqa: E402
from persona_pipeline.corrections.interventions import Interventions  # noqa: E402
from persona_pipeline.corrections.statistics import correction_statistics  # noqa: E402
from persona_pipeline.judging.options import AnthropicOptions  # noqa: E402
from persona_pipeline.scoring.text.ngrams import corpus_repetition  # noqa: E402
from persona_pipeline.scoring.text.repetition import find_repetition  # noqa: E402
from persona_pipeline.world import CorrectionSettings, World  # noqa: E402
from tests.corrections.support import TextBackend, answer_gate  # noqa: E402
from tests.support.messages_server import Hang, MessagesServer, Trickle, message  # noqa: E402

WINDOWS = 2000
THRESHOLDS = (0.05, 0.1, 0.15, 0.2, 0.3)
SYLLABLES = [
    a + b for a in ["b", "c", "d", "f", "g", "l", "m", "n", "p", "r", "s", "t", "v"] for b in ["a", "e", "i", "o", "u"]
]
IDIOMS = """i dont know|a lot of|going to be|one of the|i want to|out of the|you have to|be able to|in the morning|i think we|
this is the|what do you|it was a|at the end of the day|some of the|we need to|i have a|to be a|do you want to|all of the|for the
first time|the rest of the|i would like to|as soon as|most of the|on the way|i used to|let me know|as well as|end of the week|
back to the|the fact that|by the way|have to go|part of the|in front of the|i was going to|we should have|because of the|so that
we can""".replace("\n", " ").split("|")
ALL_ON = CorrectionSettings(
    action_gate_enabled=True, anti_convergence_enabled=True, repetition_suppression_enabled=True
)


def quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[ceil(share * len(ordered)) - 1]


class Writer:
    """Writes messages whose words and idioms are as unevenly frequent as in English chat."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.words = ["".join(self.random.choices(SYLLABLES, k=self.random.randint(1, 3))) for _ in range(3000)]
        self.word_weights = [1 / (rank + 3) for rank in range(len(self.words))]
        self.idiom_weights = [1 / (rank + 1) for rank in range(len(IDIOMS))]

    def words_of(self, count: int) -> list[str]:
        return self.random.choices(self.words, self.word_weights, k=count)

    def message(self) -> list[str]:
        """8 to 45 words, an idiom about every nine: intact windows then repeat as much as real dialogue does (p95 about 0.07)."""
        words: list[str] = []
        target = self.random.randint(8, 45)
        while len(words) < target:
            words += self.words_of(self.random.randint(4, 10))
            if self.random.random() < 0.85:
                words += self.random.choices(IDIOMS, self.idiom_weights)[0].split()
        return words[:target]

    def window(self, case: str) -> list[str]:
        messages = [self.message() for _ in range(5)]
        chosen = self.random.sample(range(5), 3)
        phrase = self.words_of(self.random.randint(4, 6))
        if case == "exact duplicate in 5":
            messages[chosen[0]] = messages[chosen[1]]
        elif case == "near duplicate in 5":
            messages[chosen[0]] = [
                word if self.random.random() > 1 / 6 else self.words_of(1)[0] for word in messages[chosen[1]]
            ]
        elif case == "opener in 3 of 5":
            for index in chosen:
                messages[index] = phrase + messages[index]
        elif case == "same phrase in all":
            for message_words in messages:
                place = self.random.randint(0, len(message_words))
                message_words[place:place] = phrase
        elif case == "one template in all":
            half = self.message()
            messages = [half + self.words_of(max(3, len(half) // 2)) for _ in range(5)]
        return [" ".join(words) for words in messages]


CASES = (
    "intact",
    "exact duplicate in 5",
    "near duplicate in 5",
    "opener in 3 of 5",
    "same phrase in all",
    "one template in all",
)


def detection() -> None:
    """Share of five-message windows that fire, by threshold of the cross-message trigram share."""
    writer = Writer(1)
    print(f"\nRepetition in {WINDOWS} generated windows a case: share that fires, in percent")
    heads = "".join(f"{f'> {threshold}':>8}" for threshold in THRESHOLDS)
    print(f"{'case':<24}{'p50':>7}{'p95':>7}{heads}{'Jaccard > 0.3':>16}{'listed':>9}")
    for case in CASES:
        windows = [writer.window(case) for _ in range(WINDOWS)]
        found = [find_repetition(window) for window in windows]
        shares = [item.share for item in found]
        fires = "".join(f"{sum(s > threshold for s in shares) / WINDOWS:>8.1%}" for threshold in THRESHOLDS)
        jaccard = sum(corpus_repetition(window, 3) > 0.3 for window in windows) / WINDOWS
        listed = sum(bool(item.phrases or item.openers) for item in found) / WINDOWS
        print(
            f"{case:<24}{quantile(shares, 0.5):>7.3f}{quantile(shares, 0.95):>7.3f}{fires}{jaccard:>16.1%}{listed:>9.1%}"
        )
    for name, drifted in (("sample world, weeks 1-2", False), ("sample world, drifted", True)):
        shares = sample_shares(drifted)
        fires = "".join(f"{sum(s > threshold for s in shares) / len(shares):>8.1%}" for threshold in THRESHOLDS)
        print(f"{name:<24}{quantile(shares, 0.5):>7.3f}{quantile(shares, 0.95):>7.3f}{fires}   ({len(shares)} windows)")


def sample_shares(drifted: bool) -> list[float]:
    said: dict[str, list[tuple[str, str]]] = {}
    for path in sorted((PROJECT / "messages").glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            if (row["created_at"] >= "2026-06-15") == drifted and (not drifted or row["agent_id"] == "michael"):
                said.setdefault(row["agent_id"], []).append((row["created_at"], row["text"]))
    windows = [
        [text for _, text in sorted(own)][start : start + 5] for own in said.values() for start in range(len(own) - 4)
    ]
    return [find_repetition(window).share for window in windows]


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
            options = AnthropicOptions(base_url=server.url, api_key=SecretStr("none"))
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
        options = AnthropicOptions(base_url=server.url, api_key=SecretStr("none"))
        for name, outcome in (("hang", Hang()), ("trickle", Trickle(message("{}"), 0.05))):
            server.always(outcome)
            gate = ActionGate(world, gate_backend(options=options), breaker_threshold=10_000)
            show(f"judge: {name}, 100 at once", await at_once(gate, 100))
        refused = gate_backend(options=AnthropicOptions(base_url="http://127.0.0.1:1", api_key=SecretStr("none")))
        show("judge: refused, 100 at once", await at_once(ActionGate(world, refused, breaker_threshold=10_000), 100))
        with socket.create_server(("127.0.0.1", 0), backlog=200) as silent:
            from persona_pipeline.store import open_store

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
        options = AnthropicOptions(base_url=judge.url, api_key=SecretStr("none"))
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


def main() -> None:
    parts = {"detection": detection, "overhead": overhead, "faults": faults, "load": load}
    for name in sys.argv[1:] or parts:
        result = parts[name]()
        if result is not None:
            asyncio.run(result)


if __name__ == "__main__":
    main()
