"""What starts runs by the clock."""

from collections.abc import Sequence
from pathlib import Path

import dagster as dg
import pytest

from persona_pipeline.definitions import defs
from persona_pipeline.defs.cohort.schedules import nightly_schedule
from persona_pipeline.defs.platform.settings import OrchestrationSettings
from tests.defs.support import Project


@pytest.fixture
def small(small_root: Path, instance_on_disk: dg.DagsterInstance) -> Project:
    # A schedule opens its instance by reference, as the daemon's code server does.
    return Project(small_root, instance_on_disk)


def requested(project: Project, settings: OrchestrationSettings) -> tuple[str, Sequence[dg.RunRequest]]:
    schedule = nightly_schedule(settings, ["ann", "bob"])
    with dg.build_schedule_context(instance=project.instance, resources={"world": project.world}) as context:
        found = list(schedule(context))  # type: ignore[call-overload]
    return schedule.job_name, [item for item in found if isinstance(item, dg.RunRequest)]


def settings_of(**values: object) -> OrchestrationSettings:
    return OrchestrationSettings.model_validate(values)


def test_a_small_cohort_gets_a_run_an_agent(small: Project) -> None:
    job, requests = requested(small, settings_of())
    assert job == "evaluate_agent"
    assert [(item.partition_key, item.tags["agent"]) for item in requests] == [("ann", "ann"), ("bob", "bob")]
    assert small.instance.get_dynamic_partitions("agents") == ["ann", "bob"]


def test_a_large_cohort_gets_one_run(small: Project) -> None:
    job, requests = requested(small, settings_of(cohort_size=1))
    assert job == "evaluate_cohort"
    assert [item.run_config["ops"]["cohort_shards"]["config"]["agents"] for item in requests] == [["ann", "bob"]]


def test_the_cohort_can_be_named_and_who_has_no_file_is_left_out(small: Project) -> None:
    _, requests = requested(small, settings_of(nightly_agents="bob, zoe"))
    assert [item.partition_key for item in requests] == ["bob"]


def test_a_world_without_agents_skips(small: Project) -> None:
    for path in (small.root / "personas").iterdir():
        path.unlink()
    assert requested(small, settings_of())[1] == []


@pytest.mark.parametrize(
    "values, cron, zone",
    [
        pytest.param({}, "0 2 * * *", "UTC", id="by default at two"),
        pytest.param({"nightly_hour": 23, "timezone": "Europe/Berlin"}, "0 23 * * *", "Europe/Berlin", id="as set"),
    ],
)
def test_hour_and_zone_come_from_the_environment(values: dict[str, object], cron: str, zone: str) -> None:
    schedule = nightly_schedule(settings_of(**values), [])
    assert (schedule.cron_schedule, schedule.execution_timezone) == (cron, zone)


def test_no_schedule_runs_before_it_is_switched_on() -> None:
    schedules = defs.get_repository_def().schedule_defs
    assert {schedule.default_status for schedule in schedules} == {dg.DefaultScheduleStatus.STOPPED}
