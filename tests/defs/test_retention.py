"""Old runs are forgotten, but never what is still the newest about something."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.storage.dagster_run import DagsterRun

from persona_pipeline.definitions import defs
from persona_pipeline.defs.platform.place import Place
from persona_pipeline.defs.upkeep import old_runs, subjects
from tests.defs.support import PARTITION, Project

OK, FAILED = dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE
LATER = datetime.now(UTC) + timedelta(days=1)


def run(
    job: str, partition: str = "", *, assets: Sequence[str] = (), config: dict[str, Any] | None = None
) -> dict[str, Any]:
    return {
        "job_name": job,
        "tags": {PARTITION: partition} if partition else {},
        "asset_selection": frozenset(map(dg.AssetKey.from_user_string, assets)) or None,
        "run_config": {"ops": config} if config else {},
    }


def agent(agent_id: str, *assets: str) -> dict[str, Any]:
    return run("evaluate_agent", agent_id, assets=assets)


def several(first: str, last: str) -> dict[str, Any]:
    ends = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}
    return {**run("evaluate_agent"), "tags": ends}


def suites(*names: str) -> dict[str, Any]:
    return run("run_eval_suites", config={"choose_suites": {"config": {"suites": list(names)}}})


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        pytest.param([agent("ann"), agent("bob"), agent("ann")], [0], id="the newest of each agent stays"),
        pytest.param([agent("ann"), agent("ann", "fluency_scores")], [], id="a part does not stand for the whole"),
        pytest.param([agent("ann", "fluency_scores"), agent("ann")], [0], id="the whole stands for a part"),
        pytest.param(
            [agent("ann", "fluency_scores"), agent("ann", "adherence_scores")], [], id="a part says nothing of another"
        ),
        pytest.param(
            [agent("ann", "personas"), agent("ann", "personas", "messages")], [0], id="a part stands for a smaller one"
        ),
        pytest.param([several("ann", "bob"), several("cleo", "zoe")], [], id="other agents do not stand for some"),
        pytest.param([several("ann", "zoe"), several("ann", "zoe")], [0], id="the same agents again"),
        pytest.param([suites("rare"), *[suites("busy")] * 3], [1, 2], id="a busy suite leaves a rare one alone"),
        pytest.param([suites("rare"), suites("busy"), suites()], [0, 1], id="all suites stand for each"),
        pytest.param([suites(), suites("busy")], [], id="one suite does not stand for all"),
        pytest.param([suites("a", "b"), suites("a"), suites("b")], [0], id="two runs stand for one about both"),
        pytest.param([run("capture_baseline"), run("upkeep"), run("capture_baseline")], [0], id="jobs"),
    ],
)
def test_what_is_forgotten(instance: dg.DagsterInstance, runs: list[dict[str, Any]], expected: list[int]) -> None:
    ids = [add(instance, options) for options in runs]
    assert sorted(ids.index(run_id) for run_id in old_runs(instance, LATER, Place())) == expected
    assert list(old_runs(instance, LATER - timedelta(days=2), Place())) == []


def add(instance: dg.DagsterInstance, options: dict[str, Any], status: dg.DagsterRunStatus = OK) -> str:
    return instance.add_run(DagsterRun(**options, status=status)).run_id


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (run("office__evaluate_agent", "ann"), True),
        (run("__ASSET_JOB", assets=["office/verdicts", "office/suites/desk"]), True),
        (run("__anonymous_asset_job_office__daily_corrections"), True),
        (run("evaluate_agent", "ann"), False),
        (run("__ASSET_JOB", assets=["office/verdicts", "verdicts"]), False),
        (run("__ASSET_JOB"), False),
    ],
)
def test_a_world_forgets_its_own_runs(options: dict[str, Any], expected: bool) -> None:
    assert Place(("office",)).owns(DagsterRun(**options)) is expected


def test_a_failure_does_not_push_out_the_last_success(instance: dg.DagsterInstance) -> None:
    statuses = (OK, OK, FAILED, FAILED)
    ids = [add(instance, agent("ann"), status) for status in statuses]
    add(instance, agent("ann"), dg.DagsterRunStatus.STARTED)
    assert sorted(ids.index(run_id) for run_id in old_runs(instance, LATER, Place())) == [0, 2]


def test_real_runs_are_about_what_they_were_asked_for(small: Project) -> None:
    part = small.evaluate("ann", ("personas",)).dagster_run
    assert subjects(part) == [("evaluate_agent", "ann", "personas")]
    chosen = {"ops": {"choose_suites": {"config": {"suites": ["gone"]}}}}
    assert subjects(small.run("run_eval_suites", run_config=chosen).dagster_run) == [("run_eval_suites", "", "gone")]


def test_the_job_leaves_nothing_of_a_run_behind(
    small_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with dg.instance_for_test(temp_dir=str(home)) as instance:
        project = Project(small_root, instance)
        old, new = (project.evaluate("ann", ("personas",)).run_id for _ in range(2))
        assert list(home.rglob(f"*{old}*"))
        monkeypatch.setattr("persona_pipeline.defs.upkeep.timedelta", lambda days: timedelta(seconds=-days))
        assert defs.resolve_job_def("upkeep").execute_in_process(instance=instance).success
        assert list(home.rglob(f"*{old}*")) == []
        assert list(home.rglob(f"*{new}*"))
        assert instance.get_run_by_id(old) is None and instance.get_run_by_id(new) is not None
