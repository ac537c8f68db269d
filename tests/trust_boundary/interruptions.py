"""Commands that are killed, or whose disk fills up, at random points: is anything corrupt, is anything lost?"""

import contextlib
import json
import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from persona_pipeline.guard.baselines.golden import load_baseline
from persona_pipeline.judging.recordings.replay import load_recordings
from tests.support.messages_server import MessagesServer
from tests.support.waiting import PATIENCE

PROJECT = Path(__file__).parents[2]
SAMPLE = ("personas", "propositions", "messages", "recordings", "baselines", "suites")
COMMAND = "from persona_pipeline.cli import main; main()"
WHEN = ("--as-of", "2026-06-14T23:59:59Z")
BATCH = """
import sys
from pydantic import SecretStr
from persona_pipeline.judging.claims import questions_of
from persona_pipeline.judging.batches import collect_batches, submit_batch
from persona_pipeline.judging.providers.base import ModelOptions
from persona_pipeline.base.database.engine import default_url, open_store
from persona_pipeline.base.settings import Settings
from tests.support.judging import requests
from persona_pipeline.cli import machine_failure
options = ModelOptions(base_url=sys.argv[2], api_key=SecretStr("k"))
try:
    store = open_store(default_url(Settings()))
    if sys.argv[1] == "submit":
        submit_batch(store, options, [question for _, question in questions_of(requests(60), max_tokens=500)])
    else:
        collect_batches(store, options)
except Exception as error:
    if machine_failure(error) is None:
        raise
    sys.exit(3)
"""
INGESTED = 20_000


@dataclass
class Scene:
    """A world of its own with a judge to ask."""

    root: Path
    server: MessagesServer
    problems: list[str] = field(default_factory=list)

    @property
    def store(self) -> Path:
        return self.root / "store.db"

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        # A file that may not grow would be a compiled module too, cut off and believed by whoever imports it next.
        kept["PYTHONDONTWRITEBYTECODE"] = "1"
        return kept | {
            "PERSONA_ROOT": str(self.root),
            "PERSONA_DATABASE_URL": f"sqlite:///{self.store}",
            "ANTHROPIC_BASE_URL": self.server.url,
            "ANTHROPIC_API_KEY": "k",
            "PYTHONPATH": str(PROJECT),
        }

    def start(self, task: "Task", *, most_bytes: int | None = None) -> subprocess.Popen[str]:
        def limit() -> None:
            if most_bytes is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))

        command = [sys.executable, "-c", *task.arguments(self)]
        return subprocess.Popen(
            command,
            env=self.environment,
            cwd=self.root,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=limit,
        )

    def check(self, what: str) -> None:
        """Note what is corrupt: a database that is not sound, a recording or a baseline that does not load, a torn result."""
        try:
            if self.store.exists():
                with sqlite3.connect(self.store, timeout=PATIENCE) as connection:
                    (said,) = connection.execute("PRAGMA integrity_check").fetchone()
                    if said != "ok":
                        self.problems.append(f"{what}: the database says {said}")
            load_recordings(self.root / "recordings", None)
            for path in (self.root / "baselines").glob("*.json"):
                load_baseline(path)
        except Exception as error:
            self.problems.append(f"{what}: {type(error).__name__}: {error}")


@dataclass(frozen=True)
class Task:
    """A command, and what there is when it is through. ``exits``: its exit codes when nothing disturbs it."""

    name: str
    arguments: Callable[[Scene], Sequence[str]]
    outcome: Callable[[Scene], object]
    exits: tuple[int, ...] = (0,)
    before: Callable[[Scene], None] = lambda scene: None


def cli(*arguments: str) -> Callable[[Scene], Sequence[str]]:
    return lambda scene: [COMMAND, *arguments]


def _forget_recordings(scene: Scene) -> None:
    shutil.rmtree(scene.root / "recordings")


def _recorded(scene: Scene) -> object:
    found = load_recordings(scene.root / "recordings", None).values()
    return sorted((item.key, item.score, item.unscored, item.reasoning) for item in found)


def _forget_baselines(scene: Scene) -> None:
    shutil.rmtree(scene.root / "baselines")


def _baselines(scene: Scene) -> object:
    texts = sorted((scene.root / "baselines").glob("*.json"))
    return [{**json.loads(path.read_text("utf-8")), "capturedAt": None} for path in texts]


def _write_messages(scene: Scene) -> None:
    start = datetime(2026, 5, 1, tzinfo=UTC)
    with (scene.root / "more.jsonl").open("w", encoding="utf-8") as stream:
        for number in range(INGESTED):
            moment = (start + timedelta(seconds=number)).isoformat()
            row = {
                "id": f"x{number}",
                "agent_id": "zoe",
                "channel": "c",
                "text": f"text {number}",
                "created_at": moment,
            }
            stream.write(json.dumps(row) + "\n")


def _count(scene: Scene, query: str) -> object:
    with sqlite3.connect(scene.store) as connection:
        return connection.execute(query).fetchone()[0]


def _submit_all(scene: Scene) -> None:
    task = next(item for item in TASKS if item.name == "batch submit")
    scene.start(task).wait(PATIENCE)


def _aged(scene: Scene) -> None:
    """What was being submitted when it was killed is looked after once it is old."""
    if scene.store.exists():
        with contextlib.suppress(sqlite3.OperationalError), sqlite3.connect(scene.store) as connection:
            # There is no such table where it was interrupted before.
            connection.execute("UPDATE judge_batches SET created_at = '2026-01-01 00:00:00.000000'")


def _submitted(scene: Scene) -> object:
    _aged(scene)
    submit, collect = (item for item in TASKS if item.name.startswith("batch"))
    for task in (submit, collect):
        scene.start(task).wait(PATIENCE)
    return _count(scene, "SELECT count(*) FROM judgments")


TASKS = (
    Task(
        "record",
        cli(
            "evaluate",
            "--agents",
            "jim",
            "--dimensions",
            "adherence,fluency",
            "--judge",
            "anthropic",
            "--record",
            *WHEN,
        ),
        _recorded,
        (0, 1, 3),
        _forget_recordings,
    ),
    Task("baseline", cli("baseline", *WHEN), _baselines, (0, 1, 3), _forget_baselines),
    Task(
        "ingest",
        cli("ingest", "more.jsonl"),
        lambda scene: _count(scene, "SELECT count(*) FROM run_messages WHERE agent_id = 'zoe'"),
        (0,),
        _write_messages,
    ),
    Task(
        "suite",
        cli("suite", "run", "suites/order-desk.eval.yaml", "--allow-code", "--save", "--output", "rows.jsonl"),
        lambda scene: len((scene.root / "rows.jsonl").read_text("utf-8").splitlines()),
    ),
    Task("batch submit", lambda scene: [BATCH, "submit", scene.server.url], _submitted),
    Task(
        "batch collect",
        lambda scene: [BATCH, "collect", scene.server.url],
        lambda scene: _count(scene, "SELECT count(*) FROM judgments"),
        before=_submit_all,
    ),
)


def scene_at(folder: Path, server: MessagesServer, task: Task) -> Scene:
    """Return a scene in which a task can begin."""
    for name in SAMPLE:
        shutil.copytree(PROJECT / name, folder / name)
    scene = Scene(folder, server)
    task.before(scene)
    return scene


@dataclass
class Interrupted:
    """What came of one task: seconds undisturbed, how often it was really interrupted, and what was wrong."""

    task: str
    seconds: float
    times: int
    interrupted: int
    problems: list[str]


def killed(task: Task, folder: Path, times: int, dice: random.Random) -> Interrupted:
    """Kill a task so many times at random points, run it to its end, and compare with an undisturbed run."""

    def disturb(scene: Scene, seconds: float) -> bool:
        # What is through before the blow is hit earlier the next time.
        for share in (1.0, 0.7, 0.5, 0.3):
            process = scene.start(task)
            time.sleep(dice.uniform(0.0, share * seconds))
            process.send_signal(signal.SIGKILL)
            process.communicate()
            if process.returncode == -signal.SIGKILL:
                return True
        return False

    return _disturbed(task, folder, times, disturb)


def starved(task: Task, folder: Path, sizes: Iterable[int]) -> Interrupted:
    """Let no file of a task grow beyond each of these sizes, run it to its end, and compare with an undisturbed run."""
    given = list(sizes)
    left = iter(given)

    def disturb(scene: Scene, seconds: float) -> bool:
        size = next(left)
        process = scene.start(task, most_bytes=size)
        _, said = process.communicate(timeout=PATIENCE)
        if process.returncode not in (3, *task.exits):
            scene.problems.append(f"{task.name} with files of {size} bytes: exit {process.returncode}: {said[-300:]}")
        if "Traceback" in said:
            scene.problems.append(f"{task.name} with files of {size} bytes: a traceback: {said[-300:]}")
        return process.returncode not in task.exits or process.returncode == 3

    return _disturbed(task, folder, len(given), disturb)


def _disturbed(task: Task, folder: Path, times: int, disturb: Callable[[Scene, float], bool]) -> Interrupted:
    with MessagesServer(latency=0.02) as server:
        calm = scene_at(folder / "calm", server, task)
        started = time.monotonic()
        process = calm.start(task)
        process.communicate(timeout=PATIENCE)
        seconds = time.monotonic() - started
        expected = task.outcome(calm)
    with MessagesServer(latency=0.02) as server:
        scene = scene_at(folder / "disturbed", server, task)
        interrupted = 0
        for number in range(times):
            interrupted += disturb(scene, seconds)
            scene.check(f"{task.name}, after interruption {number + 1}")
        if task.name.startswith("batch"):
            _aged(scene)
        last = scene.start(task)
        _, said = last.communicate(timeout=PATIENCE)
        if last.returncode not in task.exits:
            scene.problems.append(f"{task.name} does not go on: exit {last.returncode}: {said[-300:]}")
        elif (found := task.outcome(scene)) != expected:
            scene.problems.append(f"{task.name} lost something: {str(found)[:150]} instead of {str(expected)[:150]}")
    return Interrupted(task.name, seconds, times, interrupted, scene.problems)
