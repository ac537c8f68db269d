"""An agent that was evaluated too long ago: its own check says so, without a run, once."""

from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest

from persona_pipeline.defs import changes
from persona_pipeline.defs.agents.freshness import ERROR, RECENTLY, WARN, overdue
from persona_pipeline.defs.agents.specs import build_specs
from persona_pipeline.defs.platform.place import Place
from persona_pipeline.defs.platform.settings import orchestration
from tests.defs.support import Project

SPECS = build_specs(Place())


def evaluations(project: Project, agent_id: str) -> list[tuple[bool, str]]:
    """Return what the check said of an agent, oldest first."""
    key = dg.AssetCheckKey(SPECS.verdicts.key, RECENTLY)
    records = project.instance.event_log_storage.get_asset_check_execution_history(key, limit=100)
    found = [item.event.dagster_event.asset_check_evaluation_data for item in records[::-1] if item.event]
    return [(item.passed, item.severity.value) for item in found if item.partition == agent_id]


@pytest.mark.parametrize(("age", "expected"), [(0, {}), (27, {"ann": WARN}), (53, {"ann": ERROR})])
def test_each_agent_grows_old_by_itself(small: Project, age: int, expected: dict[str, str]) -> None:
    small.instance.report_runless_asset_event(dg.AssetMaterialization(SPECS.verdicts.key, partition="ann"))
    assert overdue(SPECS, small.instance, datetime.now(UTC) + timedelta(hours=age)) == expected


def test_the_sensor_reports_each_step_and_the_next_run_that_it_is_over(
    small: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    small.observe()
    small.evaluate("ann")
    assert evaluations(small, "ann") == [(True, WARN)]
    for late in ({"ann": WARN}, {"ann": ERROR}, {"ann": ERROR}):
        monkeypatch.setattr(changes, "overdue", lambda *_, late=late: late)
        small.observe()
        assert evaluations(small, "ann") == [(False, late["ann"])]
    monkeypatch.setattr(changes, "overdue", lambda *_: {})
    small.evaluate("ann")
    small.observe()
    assert evaluations(small, "ann")[-1] == (True, WARN)
    # A second time, as after every pause.
    monkeypatch.setattr(changes, "overdue", lambda *_: {"ann": WARN})
    small.observe()
    assert evaluations(small, "ann") == [(False, ERROR), (False, WARN)]
    assert evaluations(small, "bob") == []


def test_zero_hours_switch_it_off(small: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    small.instance.report_runless_asset_event(dg.AssetMaterialization(SPECS.verdicts.key, partition="ann"))
    monkeypatch.setenv("PERSONA_FRESH_HOURS", "0")
    orchestration.cache_clear()
    assert overdue(SPECS, small.instance, datetime.now(UTC) + timedelta(days=900)) == {}
