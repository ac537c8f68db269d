"""The costs that decide how large a fleet can be, each measured in under a minute: `scale.py table`.

    python benchmarks/scale.py table [--database sqlite] [--agents 10000] [--messages 100000000] [--only calls,gate]

One line a cost: what, how much, and which command measures it at length. Each step is a process of its own; CPU seconds are those
of the whole process, and with Postgres of the server too. From them follows what a fleet of so many agents takes a night, with
so many messages a month.
"""

import argparse
import asyncio
import itertools
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import sqlalchemy as sa

from benchmarks.scale import PROJECT, Place, said, write_files

Costs = Iterator[tuple[str, float, str]]
# A run that finds something or cannot tell has done its work too.
ENDS = (0, 1, 3, 4)
ONE = ("evaluate", "--agents", "agent-0003", "--format", "json", "--output", "one.json")
# What one night asks of an agent of the sample world, each claim three times, in dollars of claude-haiku-5-5: docs/how-to/costs.md.
CALLS, DOLLARS = 3804 / 50, 1.08 / 50
NIGHTS = 30


def start(place: Place) -> Costs:
    """The command line on the sample world, and Dagster's definitions."""
    place.environment["PERSONA_ROOT"] = str(PROJECT)
    # The first compiles, and makes the store.
    place.product("evaluate", "--format", "json", "--output", "all.json", ends=ENDS)
    runs = [place.product("evaluate", "--format", "json", "--output", "all.json", ends=ENDS) for _ in range(3)]
    yield "evaluate, sample world", min(run["seconds"] for run in runs), "s"
    yield "evaluate, sample world", statistics.median(run["CPU seconds"] for run in runs), "CPU s"
    yield "evaluate, sample world", max(run["MB"] for run in runs), "MB"
    empty = statistics.median(place.process("-c", "")["CPU seconds"] for _ in range(3))
    for name in ("dagster", "persona_pipeline.definitions"):
        imported = [place.process("-c", f"import {name}")["CPU seconds"] for _ in range(3)]
        yield f"import of {name}", statistics.median(imported) - empty, "CPU s"


def newest(place: Place) -> Costs:
    """The newest run of everybody, with 20,000 behind it."""
    write_files(place.root, 50, 1000, days=14, files=5)
    place.step("sync")
    before = place.size()
    saved = place.step("runs", 400)["runs"]
    yield "newest run of 50 agents of 20,000 runs", _step(place, "newest")["ms"], "ms"
    yield "a saved run in the store", (place.size() - before) * 1000 / saved, "KB"


def messages(place: Place) -> Costs:
    """Messages on their way in."""
    write_files(place.root, 100, 50_000)
    empty, first = place.size() if place.postmaster else 0, place.step("sync")
    yield "messages brought in", 50_000 / first["seconds"], "a second"
    yield "a message brought in", first["cpu"] / 50_000 * 1e6, "CPU us"
    yield "a message in the store", (place.size() - empty) * 1e6 / 50_000, "bytes"


def cohort(place: Place) -> Costs:
    """One run over 100 agents, and a run of one."""
    _recorded(place, 100)
    row = place.everybody()
    alone = place.job("evaluate_agent", "--tags", '{"dagster/partition": "agent-0003"}')["CPU seconds"]
    yield "job of one agent", alone, "CPU s"
    yield "an agent of a cohort of 100", (row["CPU seconds"] - alone) / 99, "CPU s"
    yield "cohort of 100", row["MB"], "MB"
    first = _events(place)
    yield "Dagster's events, an agent's first run", first / 101 / 1000, "KB"
    place.everybody()
    again = _events(place)
    yield "Dagster's events, an agent and night, unchanged", (again - first) / 100 / 1000, "KB"
    with (place.root / "messages/newer.jsonl").open("w", encoding="utf-8") as file:
        agents = [f"agent-{number:04}" for number in range(100)]
        for line in itertools.islice(said(agents, 300, days=1, seed=2), 300):
            file.write(json.dumps(line | {"id": f"newer-{line['id']}"}) + "\n")
    place.step("sync")
    place.step("record")
    place.everybody()
    yield "Dagster's events, an agent and night", (_events(place) - again) / 100 / 1000, "KB"


def looks(place: Place) -> Costs:
    """The sensors at 1,000 agents."""
    write_files(place.root, 1000, 1000, days=14, files=100)
    place.step("sync")
    seen = place.step("look")
    yield "a look at 1,000 agents, nothing changed", seen["idle"], "s"
    yield "the first look at 1,000 agents", seen["first"], "s"


def one(place: Place) -> Costs:
    """One agent in a world of 1,000, and beside 3 others."""
    _recorded(place, 1000)
    # The first reads what everybody is called.
    row = [place.product(*ONE, ends=ENDS) for _ in range(2)][1]
    yield "one agent in a world of 1,000", row["CPU seconds"], "CPU s"
    yield "one agent in a world of 1,000", row["MB"], "MB"


def transactions(place: Place) -> Costs:
    """What one agent's run asks of Postgres."""
    if place.postmaster is None:
        return
    _recorded(place, 4)
    asking = _commits_during(place, lambda: None)
    for name in ("one agent's run", "one agent's run, nothing changed"):
        yield name, _commits_during(place, lambda: place.product(*ONE, ends=ENDS)) - asking, "transactions"


def calls(place: Place) -> Costs:
    """Calls of a judge that answers at once, over a socket."""
    for width in (20, 100):
        told = _step(place, "calls", str(width))
        yield f"calls, {width} at once", told["rate"], "a second"
        yield f"a call, {width} at once", told["cpu"], "CPU ms"


def gate(place: Place) -> Costs:
    """The corrections' gate without a judge, 200 messages at once."""
    told = _step(place, "gate")
    yield "gate, 200 at once, 99 of 100 within", told["p99"], "ms"
    yield "a check of the gate", told["cpu"], "CPU ms"


# What is measured, and what measures it at length.
ROWS: Mapping[str, tuple[Callable[[Place], Costs], str]] = {
    "start": (start, "python -X importtime -m persona_pipeline evaluate"),
    "newest": (newest, "budgets.py --only report"),
    "messages": (messages, "scale.py messages"),
    "cohort": (cohort, "scale.py cohort"),
    "looks": (looks, "scale.py messages"),
    "one": (one, "budgets.py --only evaluate-one"),
    "transactions": (transactions, "scale.py table --only transactions --database postgres"),
    "calls": (calls, "scale.py table --only calls"),
    "gate": (gate, "gate.py checks overhead"),
}


def run_table(arguments: Sequence[str]) -> int:
    """Measure, print, and compute the fleet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--agents", type=int, default=10_000)
    parser.add_argument("--messages", type=int, default=100_000_000, help="a month")
    parser.add_argument("--only", default=",".join(ROWS), help="rows, with commas between; no fleet then")
    told = parser.parse_args(arguments)
    commit = subprocess.run(
        ["git", "-C", str(PROJECT), "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    print(f"{told.database}, commit {commit.stdout.strip() or 'unknown'}, load {os.getloadavg()[0]:.1f}")
    costs: dict[tuple[str, str], float] = {}
    for name in told.only.split(","):
        measure, at_length = ROWS[name]
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            for what, value, unit in measure(Place(folder, stack, postgres=told.database == "postgres")):
                costs[what, unit] = value
                print(f"{what:<44}{value:>12,.4g} {unit:<14}{at_length}", flush=True)
    if told.only == ",".join(ROWS):
        print(f"\n{told.agents:,} agents every night, {told.messages:,} messages a month:")
        for what, value, unit in fleet(costs, told.agents, told.messages):
            print(f"{what:<44}{value:>12,.4g} {unit}")
    return 0


def fleet(costs: Mapping[tuple[str, str], float], agents: int, messages: int) -> Costs:
    """Compute what a fleet takes from what its parts take."""
    calls = agents * CALLS
    yield "evaluating, a night", agents * costs["an agent of a cohort of 100", "CPU s"] / 3600, "CPU hours"
    yield "calls, a night", calls, "calls"
    yield "calling, a night", calls * costs["a call, 20 at once", "CPU ms"] / 1000 / 3600, "CPU hours"
    yield "calling in one process, a night", calls / costs["calls, 100 at once", "a second"] / 3600, "hours"
    yield "judging, a night", agents * DOLLARS, "dollars"
    yield "bringing in, a month", messages * costs["a message brought in", "CPU us"] / 1e6 / 3600, "CPU hours"
    yield "messages, a month", messages * costs["a message in the store", "bytes"] / 1e9, "GB"
    yield "runs, a month", agents * NIGHTS * costs["a saved run in the store", "KB"] / 1e6, "GB"
    yield "Dagster's events, a month", agents * NIGHTS * costs["Dagster's events, an agent and night", "KB"] / 1e6, "GB"


def _recorded(place: Place, agents: int) -> None:
    write_files(place.root, agents, 20 * agents, days=14, files=max(1, agents // 10))
    place.step("sync")
    place.step("record")


def _step(place: Place, name: str, *more: str) -> dict[str, float]:
    """Run a step of this file in a process of its own and return what it printed."""
    place.process(str(Path(__file__).resolve()), name, *more)
    return json.loads(place.log.read_text(encoding="utf-8").splitlines()[-1])


def _commits(place: Place) -> float:
    asked = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
    return _ask(place, asked)


def _commits_during(place: Place, step: Callable[[], object]) -> float:
    before = _commits(place)
    step()
    # The server says so a moment after the session has ended.
    time.sleep(1.5)
    return _commits(place) - before


def _events(place: Place) -> float:
    """Return the bytes of Dagster's own tables."""
    if place.postmaster is None:
        return sum(file.stat().st_size for file in (place.folder / "home").rglob("*.db*"))
    asked = "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
    return _ask(place, asked)


def _ask(place: Place, asked: str) -> float:
    engine = sa.create_engine(place.url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.connect() as connection:
        found = float(connection.scalar(sa.text(asked)) or 0)
    engine.dispose()
    return found


def newest_step() -> dict[str, float]:
    """Ask for the newest runs, often."""
    from persona_pipeline.base.database.engine import open_store
    from persona_pipeline.world.runs import newest_ids

    store, found = open_store(os.environ["PERSONA_DATABASE_URL"]), []
    with store.connect() as connection:
        for _ in range(50):
            began = time.perf_counter()
            connection.execute(newest_ids()).all()
            found.append((time.perf_counter() - began) * 1000)
    store.close()
    return {"ms": statistics.median(found)}


def calls_step(width: str) -> dict[str, float]:
    """Judge 2,000 claims with a server in a process of its own, whose CPU does not count."""
    from persona_pipeline.base.settings import Settings
    from persona_pipeline.judging.open import JudgeOptions, open_judge
    from tests.support.judging import requests, trajectory

    async def seconds(count: int) -> float:
        asked, began = requests(count, trajectory=trajectory()), time.perf_counter()
        told = await judge.judge(asked)
        assert all(verdict.score is not None for verdict in told)
        return time.perf_counter() - began

    async def measured(count: int) -> dict[str, float]:
        async with judge.backend:
            # Connections are made beforehand.
            await seconds(int(width))
            began = time.process_time()
            taken = await seconds(count)
            return {"rate": count / taken, "cpu": (time.process_time() - began) / count * 1000}

    spawning = multiprocessing.get_context("spawn")
    ours, theirs = spawning.Pipe()
    server = spawning.Process(target=_answer_calls, args=(theirs,))
    server.start()
    os.environ["ANTHROPIC_BASE_URL"] = ours.recv()
    judge = open_judge(
        "anthropic", None, JudgeOptions(recorded=False, kept=False), settings=Settings(judge_width=int(width))
    )
    found = asyncio.run(measured(2000))
    ours.send("stop")
    server.join()
    return found


def _answer_calls(pipe: Connection) -> None:
    """Serve the Messages API until the other end of the pipe says something."""
    from tests.support.messages_server import MessagesServer

    with MessagesServer() as server:
        pipe.send(server.url)
        pipe.recv()


def gate_step() -> dict[str, float]:
    """Check 200 messages at once, five times; garbage is looked for as seldom as the command line has it, which serves the gate."""
    import gc

    from benchmarks.gate import TextBackend, at_once, open_world, quantile
    from persona_pipeline.corrections.gate import ActionGate

    gc.set_threshold(100_000, 30, 30)
    with tempfile.TemporaryDirectory() as folder:
        world, found = open_world(folder), []
        asyncio.run(at_once(ActionGate(world, TextBackend()), 200))
        began = time.process_time()
        for _ in range(5):
            found += asyncio.run(at_once(ActionGate(world, TextBackend()), 200))
        spent = time.process_time() - began
        world.store.close()
    return {"p99": quantile(found, 0.99) * 1000, "cpu": spent / len(found) * 1000}


STEPS: Mapping[str, Callable[..., dict[str, float]]] = {"newest": newest_step, "calls": calls_step, "gate": gate_step}

if __name__ == "__main__":
    print(json.dumps(STEPS[sys.argv[1]](*sys.argv[2:])))
