"""Commands that are killed, or whose disk fills up: nothing is corrupt, nothing is lost."""

import json
import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import pytest

from persona_pipeline.guard.baselines.golden import load_baseline
from persona_pipeline.judging.recordings.replay import load_recordings
from tests.support.forking import forked_python
from tests.support.messages_server import MessagesServer
from tests.support.waiting import PATIENCE
from tests.support.worlds import PROJECT

SAMPLE = ("personas", "propositions", "messages", "recordings", "baselines")
COMMAND = "from persona_pipeline.cli import main; main()"
WHEN = ("--as-of", "2026-06-14T23:59:59Z")
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

    def start(self, task: "Task", *, most_bytes: int | None = None) -> subprocess.Popen[str]:
        def limit() -> None:
            if most_bytes is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))

        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        environment = kept | {
            # A file that may not grow would be a compiled module too, cut off and believed by whoever imports it next.
            "PYTHONDONTWRITEBYTECODE": "1",
            "PERSONA_ROOT": str(self.root),
            "PERSONA_DATABASE_URL": f"sqlite:///{self.store}",
            "ANTHROPIC_BASE_URL": self.server.url,
            "ANTHROPIC_API_KEY": "k",
        }
        return subprocess.Popen(
            [forked_python(), "-c", COMMAND, *task.arguments],
            env=environment,
            cwd=self.root,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=limit,
        )

    def check(self, what: str) -> None:
        """Note what is corrupt: a database that is not sound, a recording or a baseline that does not load."""
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

    arguments: tuple[str, ...]
    outcome: Callable[[Scene], object]
    exits: tuple[int, ...] = (0, 1, 3)
    before: Callable[[Scene], None] = lambda scene: None


def _recorded(scene: Scene) -> object:
    found = load_recordings(scene.root / "recordings", None).values()
    return sorted((item.key, item.score, item.unscored, item.reasoning) for item in found)


def _baselines(scene: Scene) -> object:
    texts = sorted((scene.root / "baselines").glob("*.json"))
    return [{**json.loads(path.read_text("utf-8")), "capturedAt": None} for path in texts]


def _write_messages(scene: Scene) -> None:
    start = datetime(2026, 5, 1, tzinfo=UTC)
    with (scene.root / "more.jsonl").open("w", encoding="utf-8") as stream:
        for number in range(INGESTED):
            moment = (start + timedelta(seconds=number)).isoformat()
            row = {"id": f"x{number}", "agent_id": "zoe", "channel": "c", "text": str(number), "created_at": moment}
            stream.write(json.dumps(row) + "\n")


def _ingested(scene: Scene) -> object:
    with sqlite3.connect(scene.store) as connection:
        return connection.execute("SELECT count(*) FROM run_messages WHERE agent_id = 'zoe'").fetchone()[0]


RECORD = ("evaluate", "--agents", "jim", "--dimensions", "adherence,fluency", "--judge", "anthropic", "--record", *WHEN)
TASKS = {
    "record": Task(RECORD, _recorded, before=lambda scene: shutil.rmtree(scene.root / "recordings")),
    "baseline": Task(("baseline", *WHEN), _baselines, before=lambda scene: shutil.rmtree(scene.root / "baselines")),
    "ingest": Task(("ingest", "more.jsonl"), _ingested, (0,), _write_messages),
}


def scene_at(folder: Path, server: MessagesServer, task: Task) -> Scene:
    """Return a scene in which a task can begin."""
    for name in SAMPLE:
        shutil.copytree(PROJECT / name, folder / name)
    scene = Scene(folder, server)
    task.before(scene)
    return scene


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[float, object]]:
    """Return the seconds that a task takes undisturbed, and what there is then."""

    @cache
    def run(name: str) -> tuple[float, object]:
        with MessagesServer(latency=0.02) as server:
            scene = scene_at(tmp_path_factory.mktemp("calm") / name, server, TASKS[name])
            started = time.monotonic()
            scene.start(TASKS[name]).communicate(timeout=PATIENCE)
            return time.monotonic() - started, TASKS[name].outcome(scene)

    return run


def disturbed(task: Task, folder: Path, expected: object, disturb: Callable[[Scene], None]) -> None:
    """Disturb a task, run it to its end, and compare with what an undisturbed run brought."""
    with MessagesServer(latency=0.02) as server:
        scene = scene_at(folder / "disturbed", server, task)
        disturb(scene)
        last = scene.start(task)
        _, said = last.communicate(timeout=PATIENCE)
        assert last.returncode in task.exits, said[-300:]
        assert (task.outcome(scene), scene.problems) == (expected, [])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ingest", "record"])
def test_killed_at_random_points_nothing_is_corrupt_and_nothing_lost(
    name: str, tmp_path: Path, calm: Callable[[str], tuple[float, object]]
) -> None:
    task, dice = TASKS[name], random.Random(7)
    seconds, expected = calm(name)

    def kill(scene: Scene) -> None:
        # What is through before the blow is hit earlier the next time.
        for most in (0.9, 0.7, 0.5, 0.3):
            process = scene.start(task)
            time.sleep(dice.uniform(0.5, 1.0) * most * seconds)
            process.send_signal(signal.SIGKILL)
            process.communicate()
            scene.check(f"{name}, killed")
            if process.returncode == -signal.SIGKILL:
                return

    disturbed(task, tmp_path, expected, kill)


@pytest.mark.parametrize(("name", "size"), [("record", 30_000), ("baseline", 2_000)])
def test_with_a_full_disk_nothing_is_corrupt_and_nothing_lost(
    name: str, size: int, tmp_path: Path, calm: Callable[[str], tuple[float, object]]
) -> None:
    task = TASKS[name]

    def starve(scene: Scene) -> None:
        process = scene.start(task, most_bytes=size)
        _, said = process.communicate(timeout=PATIENCE)
        assert process.returncode == 3
        assert "Traceback" not in said and "the earlier content is unchanged" in said
        scene.check("a full disk")

    disturbed(task, tmp_path, calm(name)[1], starve)
