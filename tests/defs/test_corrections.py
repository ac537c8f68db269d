"""What the gate did, as an asset."""

from typing import Any

import pytest

from persona_pipeline.corrections.statistics import correction_statistics
from persona_pipeline.defs.upkeep import CorrectionsConfig
from persona_pipeline.world import World
from tests.corrections.test_statistics import record, record_all
from tests.defs.support import Project


@pytest.fixture
def counted(small: Project) -> Project:
    world = World.open(small.root)
    world.sync()
    record_all(world)
    record(world, "bob", "z", ("commit", None), day=-40)
    world.store.close()
    return small


UNTIL = "2026-06-03T00:00:00Z"


def count(project: Project, **config: Any) -> tuple[dict[str, Any], str | None]:
    """Materialize the asset and return its metadata and data version."""
    chosen = {"as_of": UNTIL, **config}
    result = project.materialize("correction_statistics", {"ops": {"correction_statistics": {"config": chosen}}})
    assert result.success
    (event,) = result.asset_materializations_for_node("correction_statistics")
    return {name: value.value for name, value in event.metadata.items()}, (event.tags or {}).get("dagster/data_version")


def test_the_numbers_are_those_of_the_statistics_and_the_agents_the_page_of_the_command(counted: Project) -> None:
    found, _ = count(counted)
    world = World.open(counted.root)
    total = correction_statistics(world.store, CorrectionsConfig(as_of=UNTIL).span()).total
    world.store.close()
    names = ("actions", "checks", "passed", "forced", "fail_open", "corrected", "pass_rate", "usd")
    assert {name: found[name] for name in names} == {name: getattr(total, name) for name in names}
    assert total.latency_ms and found["latency_ms/p99"] == total.latency_ms.p99
    assert "| ann | 6 |" in found["agents"] and "| bob | 1 |" in found["agents"]
    assert "Sent unchecked: 1 API error, 1 timed out" in found["agents"]


def test_the_window_is_chosen_and_the_version_is_that_of_the_content(counted: Project) -> None:
    month, version = count(counted)
    later, same = count(counted, as_of="2026-06-05T00:00:00Z")
    assert (later["actions"], same) == (month["actions"], version)
    ever, other = count(counted, window="all")
    assert (ever["actions"], ever["window"]) == (8, "all of time")
    assert other != version


def test_nothing_to_count_is_fine(small: Project) -> None:
    found, _ = count(small)
    assert found["actions"] == 0 and "Nothing was checked" in found["agents"]
    assert "pass_rate" not in found and "latency_ms/p50" not in found


def test_a_wrong_window_fails_with_the_remedy(small: Project) -> None:
    config = {"ops": {"correction_statistics": {"config": {"window": "soon"}}}}
    result = small.materialize("correction_statistics", config)
    (event,) = [e for e in result.all_events if e.event_type_value == "STEP_FAILURE"]
    assert "soon" in str(event.step_failure_data.user_failure_data.description)
