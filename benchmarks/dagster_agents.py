"""How Dagster's part grows with the agents: a look of the sensor, and one run over everybody.

    python benchmarks/dagster_agents.py tick   [--agents 10,100,1000]
    python benchmarks/dagster_agents.py cohort [--agents 100,1000] [--postgres]

The world: rooms of ten agents, 20 messages an agent and week for two weeks, five dimensions with three claims for everybody
and two of the agent's own in adherence and fluency. ``cohort`` replays recorded judgments (mock mode) in one
`dagster job execute` of evaluate_cohort on an instance that knows nothing; seconds and memory are those of the whole process.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import itertools
from datetime import UTC, datetime

import dagster as dg

from persona_pipeline.defs.changes import sensors
from persona_pipeline.defs.platform.resources import WorldResource
from persona_pipeline.evaluation import EvaluationRequest
from persona_pipeline.evaluation.run import planned_requests
from persona_pipeline.judging.recorded import recording_of
from persona_pipeline.judging.recordings import write_recordings
from persona_pipeline.judging.verdict import Verdict
from persona_pipeline.world import World
from tests.support.postgres import fresh_database, postgres_server
from tests.support.worlds import DIMENSIONS, write_jsonl, write_yaml

PROJECT = Path(__file__).resolve().parents[1]
DAYS = (2, 3, 4, 5, 6, 9, 10, 11, 12, 13)
WORDS = [
    "kettle",
    "ledger",
    "window",
    "harbour",
    "copper",
    "meadow",
    "signal",
    "basket",
    "lantern",
    "gravel",
    "ribbon",
    "thunder",
]


def write_world(root: Path, count: int) -> World:
    """Write a world of ``count`` agents and return it, everything in its store."""
    agents = [f"agent-{number:04}" for number in range(count)]
    for number, agent in enumerate(agents):
        write_yaml(
            root / "personas" / f"{agent}.yaml",
            {"display_name": agent.title(), "persona": f"{agent} is {WORDS[number % 12]}."},
        )
        write_yaml(root / "baselines" / f"{agent}.json", {"agentId": agent, "dimensions": dict.fromkeys(DIMENSIONS, 0)})
        for dimension in ("adherence", "fluency"):
            write_claims(root, dimension, agent, [f"own-{n}" for n in range(2)])
    for dimension in DIMENSIONS:
        write_claims(root, dimension, "_default", [f"common-{n}" for n in range(3)])
    for room in range(0, count, 10):
        write_jsonl(root / "messages" / f"room{room:04}.jsonl", messages(agents[room : room + 10], f"room-{room:04}"))
    world = World.open(root, f"sqlite:///{root / '.persona/store.db'}")
    world.sync_messages()
    return world


def write_claims(root: Path, dimension: str, stem: str, ids: list[str]) -> None:
    claims = [{"id": f"{dimension}-{name}", "claim": f"{{{{agent_name}}}} shows {name} of {dimension}"} for name in ids]
    write_yaml(root / "propositions" / dimension / f"{stem}.yaml", {"dimension": dimension, "propositions": claims})


def messages(agents: list[str], room: str) -> Iterator[dict[str, str]]:
    for number, agent in enumerate(agents):
        for day in DAYS:
            for turn in range(4):
                words = " ".join(WORDS[(number * 7 + day * 3 + turn * 5 + n * (n + number)) % 12] for n in range(12))
                yield {
                    "id": f"{agent}-{day}-{turn}",
                    "agent_id": agent,
                    "channel": room,
                    "text": f"{words.capitalize()}.",
                    "created_at": f"2026-03-{day:02}T{9 + turn:02}:{number:02}:00Z",
                }


def record_everything(world: World) -> int:
    """Write a recorded judgment for everything an evaluation asks, and return how many there are."""
    requests = planned_requests(world, EvaluationRequest())
    verdict = {"score": 7, "reasoning": "Recorded.", "model": "mock", "prompt_version": "mock"}
    moment = datetime(2026, 3, 14, tzinfo=UTC)
    recorded = (recording_of(item, Verdict(item.proposition_id, **verdict), recorded_at=moment) for item in requests)
    write_recordings(world.root / "recordings", [item for item in recorded if item])
    return len(requests)


def write_instance(home: Path) -> None:
    """Write the project's dagster.yaml."""
    home.mkdir(exist_ok=True)
    (home / "dagster.yaml").write_text((PROJECT / "dagster.yaml").read_text(encoding="utf-8"), encoding="utf-8")


@contextmanager
def opened_instance(home: Path) -> Iterator[dg.DagsterInstance]:
    """Yield the instance of a folder."""
    write_instance(home)
    os.environ["DAGSTER_HOME"] = str(home)
    with dg.DagsterInstance.get() as instance:
        yield instance


def measure_ticks(counts: list[int]) -> None:
    """Print the seconds of a look of both sensors: the first, which asks for everybody, later ones that find nothing, one edit."""
    print(f"{'agents':>7} {'first':>8} {'its events':>11} {'idle':>8} {'worst idle':>11} {'one edit':>9}")
    for count in counts:
        with (
            tempfile.TemporaryDirectory() as folder,
            opened_instance(Path(folder, "home")) as instance,
        ):
            root = Path(folder, "world")
            write_world(root, count).store.close()
            observer, launcher = sensors.source_observations, sensors.world_changes
            first, seen, _ = tick(observer, root, instance)
            instance.add_dynamic_partitions("agents", [f"agent-{number:04}" for number in range(count)])
            written = record(instance, seen)
            asked, result, cursor = tick(launcher, root, instance)
            assert isinstance(result, dg.SensorResult) and result.run_requests
            first += asked
            idle = [tick(observer, root, instance)[0] + tick(launcher, root, instance, cursor)[0] for _ in range(7)]
            persona = root / "personas" / "agent-0003.yaml"
            persona.write_text(persona.read_text(encoding="utf-8") + " ", encoding="utf-8")
            edited, seen, _ = tick(observer, root, instance)
            record(instance, seen)
            asked, result, _ = tick(launcher, root, instance, cursor)
            assert isinstance(result, dg.SensorResult) and len(result.run_requests or ()) == 1
            edited += asked
        print(
            f"{count:7} {first:7.2f}s {written:10.2f}s {statistics.median(idle):7.3f}s {max(idle):10.3f}s {edited:8.3f}s",
            flush=True,
        )


def record(instance: dg.DagsterInstance, seen: dg.SensorResult | dg.SkipReason) -> float:
    """Record what a sensor saw, as the daemon does, and return the seconds it took."""
    assert isinstance(seen, dg.SensorResult)
    started = time.perf_counter()
    for event in seen.asset_events:
        instance.report_runless_asset_event(event)
    return time.perf_counter() - started


def tick(
    sensor: dg.SensorDefinition, root: Path, instance: dg.DagsterInstance, cursor: str | None = None
) -> tuple[float, dg.SensorResult | dg.SkipReason, str | None]:
    """Run the sensor once and return its seconds, result and cursor. Opening the store is part of it, as in the daemon."""
    started = time.perf_counter()
    resources = {"world": WorldResource(root=str(root))}
    with dg.build_sensor_context(instance=instance, resources=resources, cursor=cursor) as context:
        result = sensor(context)
    seconds = time.perf_counter() - started
    assert isinstance(result, dg.SensorResult | dg.SkipReason)
    return seconds, result, result.cursor if isinstance(result, dg.SensorResult) else cursor


def measure_cohorts(counts: list[int], postgres: bool) -> None:
    """Print what one run over everybody takes, and what it grows by."""
    print(f"{'agents':>7} {'judgments':>10} {'seconds':>9} {'of CPU':>8} {'an agent':>9} {'memory':>9} {'events':>8}")
    seen: list[tuple[int, float, float]] = []
    for count in counts:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            environment = dict(os.environ) | {
                "PERSONA_ROOT": str(folder / "world"),
                "DAGSTER_HOME": str(folder / "home"),
            }
            if postgres:
                environment["PERSONA_DATABASE_URL"] = stack.enter_context(database())
            world = write_world(folder / "world", count)
            judgments = record_everything(world)
            world.store.close()
            write_instance(folder / "home")
            seconds, cpu, megabytes, said = run_cohort(environment, folder)
        events = said.count(" - dagster - ")
        seen.append((count, seconds, megabytes))
        print(
            f"{count:7} {judgments:10} {seconds:8.1f}s {cpu:7.1f}s {seconds / count * 1000:7.0f}ms {megabytes:6.0f} MB "
            f"{events:8}",
            flush=True,
        )
    for (few, before, small), (many, after, large) in itertools.pairwise(seen):
        print(
            f"{many / few:.0f} times the agents: {after / before:.1f} times the seconds, {large / small:.1f} times the memory"
        )


def run_cohort(environment: dict[str, str], folder: Path) -> tuple[float, float, float, str]:
    """Run the job and return seconds, seconds of CPU, the most memory in MB, and its output."""
    command = [sys.executable, "-W", "ignore", "-m", "dagster", "job", "execute", "-m", "persona_pipeline.definitions"]
    with (folder / "log.txt").open("wb") as log:
        started = time.perf_counter()
        process = subprocess.Popen(
            [*command, "-j", "evaluate_cohort"], env=environment, cwd=folder, stdout=log, stderr=log
        )
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
    said = (folder / "log.txt").read_text(encoding="utf-8")
    if status:
        raise SystemExit(said[-3000:])
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, said


@contextmanager
def database() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder, postgres_server(Path(folder)) as url, fresh_database(url) as name:
        yield name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["tick", "cohort"])
    parser.add_argument("--agents", help="numbers of agents, separated by commas")
    parser.add_argument(
        "--postgres", action="store_true", help="Postgres instead of SQLite, for the store and for Dagster"
    )
    options = parser.parse_args()
    if options.what == "tick":
        measure_ticks([int(count) for count in (options.agents or "10,100,1000").split(",")])
    else:
        counts = [int(count) for count in (options.agents or "100,1000").split(",")]
        measure_cohorts(counts, options.postgres)


if __name__ == "__main__":
    main()
