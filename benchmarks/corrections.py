"""Runtime corrections: what a check costs, and how long an agent waits.

    python benchmarks/corrections.py [overhead] [faults] [load]

Without arguments everything runs, in a few minutes. The judge is a local stand-in for the Messages API; nothing leaves the
machine. What the nudges detect is measured on real dialogue by benchmarks/signals.py.
"""

import asyncio
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
from persona_pipeline.judging.model.options import ModelOptions  # noqa: E402
from persona_pipeline.world import CorrectionSettings, World  # noqa: E402
from tests.corrections.support import TextBackend, answer_gate  # noqa: E402
from tests.support.messages_server import Hang, MessagesServer, Trickle, message  # noqa: E402

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


def main() -> None:
    parts = {"overhead": overhead, "faults": faults, "load": load}
    for name in sys.argv[1:] or parts:
        result = parts[name]()
        if result is not None:
            asyncio.run(result)


if __name__ == "__main__":
    main()
