"""What starts runs by the clock."""

from pathlib import Path

import dagster as dg
import pytest

from persona_pipeline.definitions import defs
from persona_pipeline.defs.cohort import build_nightly
from persona_pipeline.defs.platform.place import Place
from persona_pipeline.defs.platform.settings import OrchestrationSettings
from tests.defs.support import Project
from tests.support.worlds import write_yaml


def nightly_schedule(settings: OrchestrationSettings) -> dg.ScheduleDefinition:
    evaluate_cohort = defs.resolve_job_def("evaluate_cohort")
    return build_nightly(Place(orchestration_settings=settings), evaluate_cohort)


@pytest.fixture
def small(small_root: Path, instance_on_disk: dg.DagsterInstance) -> Project:
    # A schedule opens its instance by reference, as the daemon's code server does.
    return Project(small_root, instance_on_disk)


def requested(project: Project, settings: OrchestrationSettings) -> list[list[str]]:
    """Return whom each requested run evaluates."""
    schedule = nightly_schedule(settings)
    with dg.build_schedule_context(instance=project.instance, resources={"world": project.world}) as context:
        found = schedule(context)
    requests = [found] if isinstance(found, dg.RunRequest) else []
    return [request.run_config["ops"]["cohort_shards"]["config"]["agents"] for request in requests]


def settings_of(**values: object) -> OrchestrationSettings:
    return OrchestrationSettings.model_validate(values)


def test_everybody_there_is_tonight_is_one_run(small: Project) -> None:
    assert requested(small, settings_of()) == [["ann", "bob"]]
    write_yaml(small.root / "personas/cleo.yaml", {"display_name": "Cleo", "persona": "Cleo counts."})
    assert requested(small, settings_of(cohort_size=1)) == [["ann", "bob", "cleo"]]


def test_the_cohort_can_be_named_and_who_has_no_file_is_left_out(small: Project) -> None:
    assert requested(small, settings_of(nightly_agents="bob, zoe")) == [["bob"]]


def test_a_world_without_agents_skips(small: Project) -> None:
    for path in (small.root / "personas").iterdir():
        path.unlink()
    assert requested(small, settings_of()) == []


@pytest.mark.parametrize(
    "values, cron, zone",
    [
        pytest.param({}, "0 2 * * *", "UTC", id="by default at two"),
        pytest.param({"nightly_hour": 23, "timezone": "Europe/Berlin"}, "0 23 * * *", "Europe/Berlin", id="as set"),
    ],
)
def test_hour_and_zone_come_from_the_environment(values: dict[str, object], cron: str, zone: str) -> None:
    schedule = nightly_schedule(settings_of(**values))
    assert (schedule.cron_schedule, schedule.execution_timezone) == (cron, zone)


def test_no_schedule_runs_before_it_is_switched_on() -> None:
    schedules = defs.get_repository_def().schedule_defs
    assert {schedule.default_status for schedule in schedules} == {dg.DefaultScheduleStatus.STOPPED}
