"""A thousand agents and a million messages: what each part takes, and how it grows.

    python benchmarks/scale.py messages [--messages 10000,100000,1000000] [--agents 1000] [--postgres]
    python benchmarks/scale.py cohort   [--agents 100,1000] [--postgres]
    python benchmarks/scale.py report   [--agents 50,1000] [--postgres]

``messages``: rooms of ten agents that talk for 400 days, all in one file: bringing it in, one line appended, a look of both sensors
when nothing and when one persona changed, one agent's newest day, and the size of the store.
``cohort``: 20 messages an agent and week for two weeks; `dagster job execute` of evaluate_cohort with recorded judgments, on an
instance that knows nothing; seconds and memory are those of the whole process.
``report``: the same world with a hundred stored runs an agent; `persona-pipeline report --format html` of everybody.

Every step is a process of its own. ``--python`` names the interpreter of another release, to compare two in one sitting.
"""

import argparse
import itertools
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.scale_world import said, write_files
from tests.support.postgres import fresh_database, postgres_server

PROJECT = Path(__file__).resolve().parents[1]
Row = dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=MEASURED)
    parser.add_argument("--messages", help="numbers of messages, separated by commas", default="10000,100000,1000000")
    parser.add_argument("--agents", help="numbers of agents, separated by commas (messages: one)")
    parser.add_argument("--postgres", action="store_true", help="Postgres instead of SQLite, for store and Dagster")
    parser.add_argument("--python", default=sys.executable, help="interpreter of the release to measure")
    options = parser.parse_args()
    axis, sizes, measure = MEASURED[options.what](options)
    rows: list[Row] = []
    for size in sizes:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            rows.append(measure(Place(folder, options, stack), size))
        print(f"{axis} {size:,}", *(f"  {name:<24}{shown(value):>12}" for name, value in rows[-1].items()), sep="\n")
        sys.stdout.flush()
    for (few, before), (many, after) in itertools.pairwise(zip(sizes, rows, strict=True)):
        grown = {
            name: math.log(after[name] / before[name]) / math.log(many / few)
            for name in after
            if before.get(name, 0) > 0 and after[name] > 0
        }
        print(f"from {few:,} to {many:,} {axis}, grows as n to the", {k: round(v, 2) for k, v in grown.items()})


class Place:
    """A folder with a world, a store and an instance of Dagster, in which steps run."""

    def __init__(self, folder: Path, options: argparse.Namespace, stack: ExitStack) -> None:
        self.folder, self.root, self.python = folder, folder / "world", options.python
        self.url = stack.enter_context(database()) if options.postgres else f"sqlite:///{folder}/store.db"
        own = {"PERSONA_ROOT": str(self.root), "PERSONA_DATABASE_URL": self.url, "DAGSTER_HOME": str(folder / "home")}
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PERSONA_", "DAGSTER_"))}
        self.environment = {**kept, **own, "OPENBLAS_NUM_THREADS": "1"}
        (folder / "home").mkdir()
        (folder / "home/dagster.yaml").write_text((PROJECT / "dagster.yaml").read_text(encoding="utf-8"), "utf-8")

    def step(self, name: str) -> dict[str, Any]:
        """Run one step of `scale_steps.py` and return what it measured."""
        command = [self.python, "-W", "ignore", str(PROJECT / "benchmarks/scale_steps.py"), name]
        done = subprocess.run(
            command, env=self.environment, cwd=self.folder, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"{name}:\n{done.stderr[-3000:]}")
        return json.loads(done.stdout.splitlines()[-1])

    def job(self, name: str) -> tuple[Row, str]:
        """Execute a job of Dagster; return what ``whole`` returns."""
        return self.whole("dagster", "job", "execute", "-m", "persona_pipeline.definitions", "-j", name)

    def whole(self, *command: str) -> tuple[Row, str]:
        """Run a module as a process; return seconds, CPU and memory of the whole process, and what it printed."""
        with (self.folder / "log.txt").open("wb") as log:
            started = time.perf_counter()
            process = subprocess.Popen(
                [self.python, "-W", "ignore", "-m", *command],
                env=self.environment,
                cwd=self.folder,
                stdout=log,
                stderr=log,
            )
            _, status, usage = os.wait4(process.pid, 0)
            seconds = time.perf_counter() - started
        printed = (self.folder / "log.txt").read_text(encoding="utf-8")
        if status:
            raise SystemExit(printed[-3000:])
        return {
            "seconds": seconds,
            "CPU seconds": usage.ru_utime + usage.ru_stime,
            "MB": usage.ru_maxrss / 1024,
        }, printed

    def size(self) -> float:
        """Return the megabytes of the store (on Postgres with Dagster's tables, which are in the same database)."""
        if self.url.startswith("sqlite"):
            return sum(file.stat().st_size for file in self.folder.glob("store.db*")) / 1e6
        with sa.create_engine(self.url.replace("postgresql:", "postgresql+psycopg:")).connect() as connection:
            return connection.scalar(sa.text("SELECT pg_database_size(current_database())")) / 1e6


def measure_messages(place: Place, agents: int, count: int) -> Row:
    """Return what messages take on their way in, and what looking at them costs."""
    names = write_files(place.root, agents, count)
    first = place.step("sync")
    row = {"ingest, messages a second": count / first["seconds"], "ingest, MB": first["megabytes"]}
    row |= {"ingest, a CPU second": count / first["cpu"]}
    file = place.root / "messages/part000.jsonl"
    with file.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(next(itertools.islice(said(names, count), count, None))) + "\n")
    appended, again = place.step("sync"), place.step("sync")
    row |= {"one line more, CPU s": appended["cpu"], "one line more, MB": appended["megabytes"]}
    row |= {"no line more, CPU s": again["cpu"]}
    looked = place.step("look")
    row |= {"first look, s": looked["first"], "idle look, s": looked["idle"], "one edit, s": looked["edited"]}
    row |= {"idle look, CPU s": looked["idle cpu"], "one edit, CPU s": looked["edited cpu"]}
    row |= {"looking, MB": looked["megabytes"], "a day's questions, s": place.step("day")["seconds"]}
    return {**row, "store, MB": place.size()}


def measure_cohort(place: Place, agents: int) -> Row:
    """Return what one run over everybody takes."""
    write_files(place.root, agents, 40 * agents, days=14, files=max(1, agents // 10))
    place.step("sync")
    judgments = place.step("record")["judgments"]
    row, printed = place.job("evaluate_cohort")
    events = printed.count(" - dagster - ")
    return {
        "judgments": judgments,
        **row,
        "ms an agent": row["seconds"] / agents * 1000,
        "events an agent": events / agents,
    }


def measure_report(place: Place, agents: int) -> Row:
    """Return what the page of everybody takes, a hundred runs each."""
    write_files(place.root, agents, 40 * agents, days=14, files=max(1, agents // 10))
    place.step("sync")
    counted = place.step("runs")
    page = place.folder / "page.html"
    row, _ = place.whole("persona_pipeline", "report", "--format", "html", "--output", str(page))
    return {"runs": counted["runs"], **row, "page, kB": page.stat().st_size / 1000, "store, MB": place.size()}


@contextmanager
def database() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder, postgres_server(Path(folder)) as url, fresh_database(url) as name:
        yield name


def numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


MEASURED: Mapping[str, Any] = {
    "messages": lambda options: (
        "messages",
        numbers(options.messages),
        lambda place, count: measure_messages(place, int(options.agents or 1000), count),
    ),
    "cohort": lambda options: ("agents", numbers(options.agents or "100,1000"), measure_cohort),
    "report": lambda options: ("agents", numbers(options.agents or "50,1000"), measure_report),
}

if __name__ == "__main__":
    main()
