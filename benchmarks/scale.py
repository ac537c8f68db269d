"""A thousand agents and a million messages: what each part takes, and how it grows.

    python benchmarks/scale.py messages [--messages 10000,100000,1000000] [--agents 1000] [--postgres]
    python benchmarks/scale.py cohort   [--agents 100,1000] [--postgres]
    python benchmarks/scale.py report   [--agents 50,1000] [--postgres]
    python benchmarks/scale.py table    [--database sqlite]

``messages``: rooms of ten agents that talk for 400 days, all in one file: bringing it in, one line appended, a look of both sensors
when nothing and when one persona changed, one agent's newest day, and the size of the store.
``cohort``: 20 messages an agent and week for two weeks; `dagster job execute` of evaluate_agent for all of them with recorded
judgments; seconds and memory are those of the whole process.
``report``: the same world with a hundred stored runs an agent; `persona-pipeline report --format html` of everybody.

Every step is a process of its own. ``--python`` names the interpreter of another release, to compare two in one sitting.
"""

import argparse
import itertools
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.postgres import fresh_database, postgres_server
from tests.support.worlds import DIMENSIONS, write_yaml

PROJECT = Path(__file__).resolve().parents[1]
Row = dict[str, float]


def main() -> None:
    if sys.argv[1:2] == ["table"]:
        from benchmarks.scale_table import run_table

        sys.exit(run_table(sys.argv[2:]))
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
            place = Place(folder, stack, postgres=options.postgres, python=options.python)
            rows.append(measure(place, size))
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
    """A folder with a world, a store and an instance of Dagster, in which steps run.

    Attributes:
        log: what the newest process printed.
    """

    def __init__(self, folder: Path, stack: ExitStack, *, postgres: bool, python: str = sys.executable) -> None:
        self.folder, self.root, self.python, self.log = folder, folder / "world", python, folder / "log.txt"
        self.postmaster: int | None = None
        self.url = f"sqlite:///{folder}/store.db"
        if postgres:
            server = folder / "postgres"
            self.url = stack.enter_context(database(server))
            if (server / "postmaster.pid").exists():
                self.postmaster = int((server / "postmaster.pid").read_text(encoding="utf-8").split()[0])
        own = {"PERSONA_ROOT": str(self.root), "PERSONA_DATABASE_URL": self.url, "DAGSTER_HOME": str(folder / "home")}
        # Compiled once, as what is installed is.
        own["PYTHONPYCACHEPREFIX"] = f"{tempfile.gettempdir()}/persona-benchmarks"
        left_out = ("PERSONA_", "DAGSTER_", "PYTHONDONTWRITEBYTECODE")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
        self.environment = {**kept, **own, "OPENBLAS_NUM_THREADS": "1"}
        (folder / "home").mkdir()
        (folder / "home/dagster.yaml").write_text((PROJECT / "dagster.yaml").read_text(encoding="utf-8"), "utf-8")

    def step(self, name: str, *arguments: object) -> dict[str, Any]:
        """Run one step of `scale_steps.py` and return what it measured, and seconds, CPU and memory of its process."""
        row = self.process(str(PROJECT / "benchmarks/scale_steps.py"), name, *map(str, arguments))
        return {**row, **json.loads(self.log.read_text(encoding="utf-8").splitlines()[-1])}

    def job(self, name: str, *more: str) -> Row:
        """Execute a job of Dagster; return what ``process`` returns."""
        return self.process("-m", "dagster", "job", "execute", "-m", "persona_pipeline.definitions", "-j", name, *more)

    def everybody(self) -> Row:
        """Evaluate every agent in one run of Dagster, which knows the agents; return what ``process`` returns."""
        agents = sorted(path.stem for path in (self.root / "personas").glob("*.yaml"))
        code = "import dagster, sys; dagster.DagsterInstance.get().add_dynamic_partitions('agents', sys.argv[1:])"
        self.process("-c", code, *agents)
        names = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")
        tags = dict(zip(names, (agents[0], agents[-1]), strict=True))
        return self.job("evaluate_agent", "--tags", json.dumps(tags))

    def product(self, *command: str, ends: Collection[int] = (0,)) -> Row:
        """Run the command line; return what ``process`` returns."""
        return self.process("-m", "persona_pipeline", *command, ends=ends)

    def process(self, *command: str, ends: Collection[int] = (0,)) -> Row:
        """Run Python; return seconds, CPU seconds and most memory of the whole process.

        The CPU seconds are those of an embedded Postgres too. ``SystemExit``: it ended with another code than ``ends``.
        """
        with self.log.open("wb") as log:
            served, started = self.served(), time.perf_counter()
            process = subprocess.Popen(
                [self.python, "-W", "ignore", *command], env=self.environment, cwd=self.folder, stdout=log, stderr=log
            )
            _, status, usage = os.wait4(process.pid, 0)
            seconds = time.perf_counter() - started
        process.returncode = ended = os.waitstatus_to_exitcode(status)
        if ended not in ends:
            raise SystemExit(f"{' '.join(command)}: {ended}\n{self.log.read_text('utf-8')[-3000:]}")
        cpu = usage.ru_utime + usage.ru_stime + self.served() - served
        return {"seconds": seconds, "CPU seconds": cpu, "MB": usage.ru_maxrss / 1024}

    def served(self) -> float:
        """Return the CPU seconds of the embedded Postgres so far, 0 without one."""
        if self.postmaster is None:
            return 0.0
        children = Path(f"/proc/{self.postmaster}/task/{self.postmaster}/children").read_text(encoding="ascii")
        # Of the postmaster those of its ended children too.
        ticks = sum(_ticks(int(child), 2) for child in children.split()) + _ticks(self.postmaster, 4)
        return ticks / os.sysconf("SC_CLK_TCK")

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
    row = place.everybody()
    events = place.log.read_text(encoding="utf-8").count(" - dagster - ")
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
    counted = place.step("runs", 100)
    page = place.folder / "page.html"
    row = place.product("report", "--format", "html", "--output", str(page))
    return {"runs": counted["runs"], **row, "page, kB": page.stat().st_size / 1000, "store, MB": place.size()}


@contextmanager
def database(folder: Path) -> Iterator[str]:
    """Yield the URL of an empty database; a Postgres of its own is in the folder."""
    with postgres_server(folder) as url, fresh_database(url) as name:
        yield name


def _ticks(process: int, fields: int) -> int:
    """Return a process's own time (``fields``: 2), or that of its ended children too (4)."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
    except FileNotFoundError:
        return 0
    return sum(map(int, stat.rpartition(")")[2].split()[11 : 11 + fields]))


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

# Seeded worlds of many agents and messages, as files: what the measurements of size run on.
END = datetime(2026, 3, 14, tzinfo=UTC)
DAYS = 400
ROOM = 10
WORDS = [
    "kettle", "ledger", "window", "harbour", "copper", "meadow", "signal", "basket", "lantern", "gravel", "ribbon", "thunder",
    "marble", "orchard", "pocket", "saddle", "timber", "velvet", "walnut", "anchor", "blanket", "candle", "dagger", "engine",
]  # fmt: skip


def write_files(
    root: Path, agents: int, messages: int, *, days: int = DAYS, files: int = 1, seed: int = 1
) -> list[str]:
    """Write personas, claims, baselines and messages, and return the agents.

    Rooms of ten; everybody speaks equally often, evenly over the ``days`` before ``END``. Five dimensions with three claims for
    everybody, and two of the agent's own in adherence and fluency.
    """
    names = [f"agent-{number:04}" for number in range(agents)]
    for number, name in enumerate(names):
        persona = {"display_name": name.title(), "persona": f"{name} is {WORDS[number % len(WORDS)]}."}
        write_yaml(root / "personas" / f"{name}.yaml", persona)
        write_yaml(root / "baselines" / f"{name}.json", {"agentId": name, "dimensions": dict.fromkeys(DIMENSIONS, 0)})
        for dimension in ("adherence", "fluency"):
            _write_claims(root, dimension, name, [f"own-{n}" for n in range(2)])
    for dimension in DIMENSIONS:
        _write_claims(root, dimension, "_default", [f"common-{n}" for n in range(3)])
    lines = said(names, messages, days=days, seed=seed)
    folder = root / "messages"
    folder.mkdir(parents=True)
    for number in range(files):
        with (folder / f"part{number:03}.jsonl").open("w", encoding="utf-8") as file:
            for _ in range(messages // files + (number < messages % files)):
                file.write(json.dumps(next(lines)) + "\n")
    return names


def said(names: list[str], count: int, *, days: int = DAYS, seed: int = 1) -> Iterator[dict[str, str]]:
    """Yield messages in order of time: the first ``count`` fill the days, what is taken beyond comes after the end."""
    draw = random.Random(seed)
    number = 0
    while True:
        moment = END + timedelta(days=days) * ((number + 1) / count - 1)
        speaker = number * 7919 % len(names)
        words = " ".join(draw.choice(WORDS) for _ in range(12))
        yield {
            "id": f"m{number}",
            "agent_id": names[speaker],
            "channel": f"room-{speaker // ROOM:04}",
            "text": f"{words.capitalize()}.",
            "created_at": moment.isoformat(timespec="seconds"),
        }
        number += 1


def record_everything(root: Path, database_url: str) -> int:
    """Write a recorded judgment of 7 for every question of an evaluation of all agents; return the number of judgments."""
    from persona_pipeline.base.options import EvaluationRequest
    from persona_pipeline.judging.recordings.writing import RecordingWriter, recording_of
    from persona_pipeline.judging.verdict import Verdict
    from persona_pipeline.world import World
    from tests.support.evaluating import planned_requests

    world, recordings = World.open(root, database_url), []
    names = world.agent_ids()
    # The questions of a thousand agents together are 0.6 GB.
    for start in range(0, len(names), 100):
        for asked in planned_requests(world, EvaluationRequest(agents=names[start : start + 100], as_of=END)):
            verdict = Verdict(asked.proposition_id, 7, reasoning="Recorded.", model="mock", prompt_version="mock")
            recordings.append(recording_of(asked, verdict, recorded_at=END))
    RecordingWriter(root / "recordings").write([recording for recording in recordings if recording is not None])
    world.store.close()
    return len(recordings)


def write_runs(root: Path, database_url: str, runs: int, *, seed: int = 1) -> int:
    """Save finished runs of everybody, a window a week; in the newest one agent of 25 fell. Return how many there are."""
    import sqlalchemy as sa

    from persona_pipeline.base.database import tables
    from persona_pipeline.evaluation.decide import compared
    from persona_pipeline.evaluation.history import rows_of
    from persona_pipeline.guard.gate import GateRules
    from persona_pipeline.world import World
    from persona_pipeline.world.runs import write_runs

    world, draw, table = World.open(root, database_url), random.Random(seed), tables.evaluation_runs
    names = world.agent_ids()
    for number, name in enumerate(names):
        world.sync_persona(name)
        found, baseline = _evaluation(name, draw, low=number % 25 == 7), _baseline(name)
        report = compared(found, baseline, GateRules())
        with world.store.begin() as connection:
            write_runs(connection, [rows_of(report)])
    with world.store.begin() as connection:
        newest = [dict(row._mapping) for row in connection.execute(sa.select(table))]
    for row in newest if runs > 1 else ():
        with world.store.begin() as connection:
            connection.execute(sa.insert(table), [_earlier(row, week, draw) for week in range(1, runs)])
    world.store.close()
    return len(names) * runs


def _earlier(row: dict[str, Any], weeks: int, draw: random.Random) -> dict[str, Any]:
    """Return a stored run as it was so many weeks before."""
    end = row["window_end"] - timedelta(weeks=weeks)
    key = uuid.UUID(int=draw.getrandbits(128))
    score = round(7 + draw.gauss(0, 0.3), 4)
    bounds = {"window_start": end - timedelta(weeks=1), "window_end": end}
    shown = {name: moment.isoformat() for name, moment in bounds.items()}
    return {
        **row,
        **bounds,
        "id": key,
        "overall_score": score,
        "result": {**row["result"], **shown, "run_id": str(key), "overall": score},
        "summary": {**row["summary"], "overall": score},
        "findings": [],
        "regressed": False,
    }


def _evaluation(name: str, draw: random.Random, *, low: bool) -> Any:
    from persona_pipeline.guard.report import AgentEvaluation
    from persona_pipeline.scoring.results import DimensionEvaluation, PropositionResult, QuotedEvidence

    quote, reasoning = " ".join(draw.choices(WORDS, k=15)), " ".join(draw.choices(WORDS, k=40))
    dimensions = {}
    for dimension in DIMENSIONS:
        score = (3.0 if low and dimension == "adherence" else 7.0) + round(draw.gauss(0, 0.2), 3)
        claims = {
            key: PropositionResult(
                id=key, claim=f"{name} shows {key}", score=score, raw=score, weight=1.0, reasoning=reasoning,
                evidence=[QuotedEvidence(message_id="m1", quote=quote, verified=True)],
            )
            for key in (f"{dimension}-common-{n}" for n in range(4))
        }  # fmt: skip
        dimensions[dimension] = DimensionEvaluation(
            dimension=dimension, score=score, n_scored=4, n_expected=4, propositions=claims
        )
    provenance: Any = {"judge_model": "mock", "prompt_version": "mock", "persona_hash": "p", "messages_hash": name}
    return AgentEvaluation(
        run_id=str(uuid.UUID(int=draw.getrandbits(128))), agent_id=name, display_name=name.title(), sample_size=20,
        window_start=END - timedelta(weeks=1), window_end=END, provenance=provenance,
    ).with_dimensions(dimensions)  # fmt: skip


def _baseline(name: str) -> Any:
    from persona_pipeline.guard.baselines.models import Baseline

    return Baseline(agent_id=name, dimensions=dict.fromkeys(DIMENSIONS, 7.0), captured_at=END)


def _write_claims(root: Path, dimension: str, stem: str, ids: list[str]) -> None:
    claims = [{"id": f"{dimension}-{name}", "claim": f"{{{{agent_name}}}} shows {name} of {dimension}"} for name in ids]
    write_yaml(root / "propositions" / dimension / f"{stem}.yaml", {"dimension": dimension, "propositions": claims})


if __name__ == "__main__":
    main()
