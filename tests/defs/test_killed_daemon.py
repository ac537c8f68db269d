"""Dagster's own sensor daemon, killed where it hurts: an edit leads to exactly one run."""

import logging
import multiprocessing
import signal
import sys
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.instance import InstanceRef
from dagster._core.remote_origin import InProcessCodeLocationOrigin
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import InProcessWorkspaceLoadTarget
from dagster._daemon import sensor as sensor_daemon

from persona_pipeline.base.settings import get_settings
from persona_pipeline.testing.worlds import write_small_world
from tests.defs.support import PARTITION, Project
from tests.support.waiting import PATIENCE
from tests.support.worlds import replace_in

ORIGIN = InProcessCodeLocationOrigin(
    LoadableTargetOrigin(executable_path=sys.executable, module_name="persona_pipeline.definitions"),
    location_name="persona-pipeline",
)
# Python 3.12 warns whoever forks while there are threads; what is forked here looks and is gone.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
# A sensor, and where the daemon dies in its tick.
Crash = tuple[str, str]
# Runs are queued; the process that would take them from the queue is not there.
QUEUED = {"run_coordinator": {"module": "dagster._core.run_coordinator", "class": "QueuedRunCoordinator"}}


@pytest.fixture(scope="module", autouse=True)
def _looked_before(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What the first look of a process makes is made here, once: whoever is forked has it already."""
    folder = tmp_path_factory.mktemp("before")
    (folder / "dagster").mkdir()
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PERSONA_ROOT", str(write_small_world(folder / "world")))
        patched.setattr(sensor_daemon, "is_under_min_interval", sensor_daemon.is_under_min_interval)
        with dg.instance_for_test(overrides=QUEUED, temp_dir=str(folder / "dagster")) as instance:
            look(instance.get_ref(), None)
    get_settings.cache_clear()


def look(reference: InstanceRef, killed: Crash | None) -> None:
    """Let each sensor look twice, whenever it last looked."""
    get_settings.cache_clear()
    sensor_daemon.is_under_min_interval = lambda *_: False
    crash = {killed[0]: {killed[1]: signal.SIGKILL}} if killed else None
    with (
        dg.DagsterInstance.from_ref(reference) as instance,
        WorkspaceProcessContext(instance, InProcessWorkspaceLoadTarget(ORIGIN)) as workspace,
    ):
        [location] = workspace.create_request_context().code_locations
        [repository] = location.get_repositories().values()
        instance.start_sensor(repository.get_sensor("automation"))
        logger = logging.getLogger("daemon")
        for _ in range(2):
            list(sensor_daemon.execute_sensor_iteration(workspace, logger, None, None, debug_crash_flags=crash))


def daemon(instance: dg.DagsterInstance, killed: Crash | None = None) -> None:
    """Run the daemon for a look of each sensor in a process of its own."""
    process = multiprocessing.get_context("fork").Process(target=look, args=(instance.get_ref(), killed))
    process.start()
    process.join(PATIENCE)
    assert process.exitcode == (-signal.SIGKILL if killed else 0)


def requested(instance: dg.DagsterInstance) -> list[str]:
    """Return the partitions that the daemon asked for, oldest first."""
    runs = instance.get_runs(dg.RunsFilter(tags={"dagster/sensor_name": "automation"}))
    return [run.tags[PARTITION] for run in reversed(runs)]


def test_an_edit_leads_to_one_run_wherever_the_daemon_dies(
    tmp_path: Path, small_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERSONA_ROOT", str(small_root))
    home = tmp_path / "dagster"
    home.mkdir()
    expected: list[str] = []
    with dg.instance_for_test(overrides=QUEUED, temp_dir=str(home)) as instance:
        Project(small_root, instance).remember()
        for agent_id, word, killed in (
            ("bob", "machines", "AUTOMATION_EVALUATIONS_ADDED"),
            ("ann", "brief", "RUN_LAUNCHED"),
        ):
            replace_in(small_root / f"personas/{agent_id}.yaml", word, "new")
            expected.append(agent_id)
            daemon(instance, ("automation", killed))
            daemon(instance)
            assert requested(instance) == expected
