"""From an edited file to one materialized partition, with Dagster's own daemon."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import pytest

from tests.defs.support import Project
from tests.support.stopping import stop_group
from tests.support.waiting import wait_until
from tests.support.worlds import replace_in

PROJECT = Path(__file__).parents[2]
SENSOR_SECONDS = 2
FINISHED = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE)


@pytest.fixture
def home(tmp_path: Path, small_root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the project's dagster.yaml and workspace.yaml, as a user has it."""
    folder = tmp_path / "home"
    folder.mkdir()
    for name in ("dagster.yaml", "workspace.yaml"):
        shutil.copy(PROJECT / name, folder)
    monkeypatch.setenv("DAGSTER_HOME", str(folder))
    monkeypatch.setenv("PERSONA_ROOT", str(small_root))
    monkeypatch.setenv("PERSONA_SENSOR_SECONDS", str(SENSOR_SECONDS))
    monkeypatch.setenv("PERSONA_AUTOMATION", "true")
    monkeypatch.chdir(folder)
    return folder


@contextmanager
def daemon(home: Path) -> Iterator[Path]:
    """Run the daemon on the project's code location and yield its log."""
    log = home / "daemon.log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "dagster._daemon", "run", "-w", "workspace.yaml"],
            cwd=home,
            env=os.environ,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield log
    finally:
        # The daemon's code server and the runs it started are of its group.
        stop_group(process)


@pytest.mark.slow
def test_an_edited_persona_leads_to_one_materialized_partition(home: Path, small_root: Path) -> None:
    scores = dg.AssetKey("adherence_scores")
    with dg.DagsterInstance.get() as instance:
        # Everybody is known, and nothing is due.
        Project(small_root, instance).remember()
        with daemon(home) as log:
            wait_until(lambda: "Sensor world_changes skipped" in log.read_text("utf-8"))
            replace_in(small_root / "personas/bob.yaml", "machines", "engines")
            wait_until(lambda: any(run.status in FINISHED for run in instance.get_runs()))
            ticks = log.read_text("utf-8").count("Sensor world_changes skipped")
            wait_until(lambda: log.read_text("utf-8").count("Sensor world_changes skipped") > ticks + 1)
        [run] = instance.get_runs()
        assert {key: run.tags[key] for key in ("agent", "reason")} == {"agent": "bob", "reason": "persona changed"}
        assert instance.event_log_storage.get_materialized_partitions(scores) == {"bob"}
