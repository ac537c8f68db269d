"""What starts runs by the clock."""

from datetime import UTC, datetime

import dagster as dg
import pytest

from persona_pipeline.definitions import defs
from persona_pipeline.defs.agents.specs import build_specs
from persona_pipeline.defs.cohort import build_nightly
from persona_pipeline.defs.platform.dagster_internals import RANGE
from persona_pipeline.defs.platform.place import Place
from persona_pipeline.defs.platform.settings import OrchestrationSettings
from tests.defs.support import Project, requested_by
from tests.support.worlds import write_yaml


def nightly_schedule(settings: OrchestrationSettings) -> dg.ScheduleDefinition:
    return build_nightly(build_specs(Place(orchestration_settings=settings)), defs.resolve_job_def("evaluate_agent"))


def requested(project: Project, settings: OrchestrationSettings) -> list[tuple[str, str]]:
    """Return the first and last partition of each requested run."""
    asked = requested_by(nightly_schedule(settings), project, datetime(2026, 3, 12, 2, tzinfo=UTC))
    return [(request.tags[RANGE[0]], request.tags[RANGE[1]]) for request in asked]


def settings_of(**values: object) -> OrchestrationSettings:
    return OrchestrationSettings.model_validate(values)


def test_everybody_there_is_tonight_is_asked_for_so_many_in_a_run(small: Project) -> None:
    assert requested(small, settings_of()) == [("ann", "bob")]
    write_yaml(small.root / "personas/cleo.yaml", {"display_name": "Cleo", "persona": "Cleo counts."})
    assert requested(small, settings_of(shard_size=2)) == [("ann", "bob"), ("cleo", "cleo")]
    assert requested(small, settings_of(nightly_agents="ann, cleo")) == [("ann", "ann"), ("cleo", "cleo")]
    assert requested(small, settings_of(nightly_agents="bob, zoe")) == [("bob", "bob")], "zoe has no file"
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
    schedules = [item for item in defs.get_repository_def().schedule_defs if item.name != "open_batches"]
    assert {schedule.default_status for schedule in schedules} == {dg.DefaultScheduleStatus.STOPPED}
