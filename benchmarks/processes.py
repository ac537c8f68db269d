"""Many processes at once on one Postgres, in pairs on one agent: deadlocks, lost or doubled rows, connections.

    python -m benchmarks.processes [--pairs 4] [--rounds 3] [--kill]

Each process evaluates its agent several times, and reads messages of its own in between. ``--kill``: one process of every pair is
killed without a word in each round and started again. In the end every message whose command ended well stands in the store once,
every agent has one run a window, and nobody holds a lease.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import sqlalchemy as sa

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT))

from persona_pipeline.base.database import tables
from persona_pipeline.base.database.engine import normalise_url, open_store
from persona_pipeline.testing import WorldBuilder
from tests.support.postgres import fresh_database, postgres_server

COMMAND = "from persona_pipeline.cli import main; main()"
START, MESSAGES = datetime(2026, 5, 1, tzinfo=UTC), 2_000


def write_world(root: Path, agents: list[str]) -> None:
    builder = WorldBuilder(root).claim("adherence", "terse", "{{agent_name}} is terse")
    for agent in agents:
        builder.persona(agent, f"{agent} is terse.")
        for number in range(20):
            builder.say(agent, f"{agent} says {number}", at=START + timedelta(minutes=number), channel=agent)


def write_messages(path: Path, agent: str, prefix: str) -> Path:
    with path.open("w", encoding="utf-8") as file:
        for number in range(MESSAGES):
            row = {"id": f"{prefix}-{number}", "agent_id": agent, "channel": agent, "text": f"text {number}"}
            file.write(json.dumps(row | {"created_at": (START + timedelta(seconds=number)).isoformat()}) + "\n")
    return path


class Connections:
    """Counts the connections of a database until it is closed."""

    def __init__(self, url: str) -> None:
        self.engine = sa.create_engine(normalise_url(url), isolation_level="AUTOCOMMIT")
        self.most, self._done = 0, threading.Event()
        self._thread = threading.Thread(target=self._count, daemon=True)
        self._thread.start()

    def _count(self) -> None:
        query = sa.text("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
        with self.engine.connect() as connection:
            while not self._done.wait(0.05):
                self.most = max(self.most, connection.execute(query).scalar_one() - 1)

    def close(self) -> int:
        self._done.set()
        self._thread.join()
        time.sleep(1)
        query = sa.text("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        with self.engine.connect() as connection:
            return connection.execute(query).scalar_one()


def start(root: Path, url: str, *arguments: str) -> subprocess.Popen[str]:
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    environment |= {"PERSONA_ROOT": str(root), "PERSONA_DATABASE_URL": url, "PYTHONPATH": str(PROJECT)}
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", COMMAND, *arguments],
        env=environment,
        cwd=PROJECT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kill", action="store_true")
    options = parser.parse_args()
    agents, wrong = [f"agent{number}" for number in range(options.pairs)], []
    with ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory())
        url = stack.enter_context(fresh_database(stack.enter_context(postgres_server(Path(name) / "postgres"))))
        root, written, killed, began = Path(name) / "world", set[str](), 0, time.monotonic()
        write_world(root, agents)
        connections = Connections(url)
        for number in range(options.rounds):
            under_way = []
            for agent in agents:
                for one in "ab":
                    prefix = f"{agent}{one}{number}"
                    path = write_messages(Path(name) / f"{prefix}.jsonl", agent, prefix)
                    evaluate = ("evaluate", "--agents", agent, "--mock-judge", "--window", "7d")
                    what = ("ingest", str(path)) if one == "b" and number % 2 else evaluate
                    under_way.append((prefix, what, start(root, url, *what)))
            if options.kill:
                time.sleep(1.5 + number / 2)
                for place, (prefix, what, process) in enumerate(under_way):
                    if place % 2:
                        process.send_signal(signal.SIGKILL)
                        process.wait()
                        killed += process.returncode == -signal.SIGKILL
                        under_way[place] = (prefix, what, start(root, url, *what))
            for prefix, what, process in under_way:
                _, said = process.communicate(timeout=480)
                if process.returncode not in (0, 1, 3) or "Traceback" in said:
                    wrong.append(f"{' '.join(what)}: exit {process.returncode} {said[-300:]}")
                elif what[0] == "ingest":
                    written.add(prefix)
        seconds, deadlocks = time.monotonic() - began, connections.close()
        store = open_store(url)
        with store.connect() as connection:
            said, runs = tables.run_messages, tables.evaluation_runs
            stored = connection.execute(sa.select(sa.func.count()).select_from(said)).scalar_one()
            count = sa.func.count()
            windows = connection.execute(
                sa.select(runs.c.agent_id, count).group_by(runs.c.agent_id, runs.c.window_end)
            ).all()
        store.close()
        expected = len(written) * MESSAGES + 20 * len(agents)
        wrong += [f"{stored} messages, {expected} were written"] if stored != expected else []
        wrong += [f"{agent} has {many} runs of one window" for agent, many in windows if many > 1]
        wrong += [f"{deadlocks} deadlocks"] if deadlocks else []
        print(
            f"{2 * len(agents)} processes x {options.rounds} rounds, {killed} killed: {seconds:.0f} s, {deadlocks} deadlocks, "
            f"at most {connections.most} connections, {stored:,} messages, runs of {len(windows)} windows, wrong: {wrong or 0}"
        )
        connections.engine.dispose()
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
