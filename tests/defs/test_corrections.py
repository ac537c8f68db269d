"""What the gate did, as an asset."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from persona_pipeline.base.database import tables
from persona_pipeline.world import World
from tests.defs.support import Project

NOON = datetime(2026, 6, 10, 12, tzinfo=UTC)


def record(project: Project, agent_id: str, action: str, *checks: tuple[str, str | None], days_ago: int = 0) -> None:
    """Write the checks (decision, reason) of one action."""
    rows = [
        {
            "agent_id": agent_id,
            "action_id": action,
            "attempt_number": number,
            "decision": decision,
            "reason": reason,
            "latency_ms": 100.0 * number,
            "usd": 0.0001,
            "token_usage": {"input_tokens": 10, "output_tokens": 2},
            "created_at": NOON - timedelta(days=days_ago) + timedelta(seconds=number),
        }
        for number, (decision, reason) in enumerate(checks, start=1)
    ]
    world = World.open(project.root)
    for name in ("ann", "bob"):
        world.sync_persona(name)
    with world.store.begin() as connection:
        connection.execute(sa.insert(tables.gate_checks), rows)
    world.store.close()


@pytest.fixture
def counted(small: Project) -> Project:
    record(small, "ann", "a", ("commit", None))
    record(small, "ann", "b", ("retry", None), ("commit", None))
    record(small, "ann", "c", ("retry", None), ("retry", None), ("force", None), days_ago=1)
    record(small, "bob", "d", ("commit", "timeout"))
    record(small, "bob", "e", ("commit", None), days_ago=40)
    return small


def count(project: Project, **config: Any) -> tuple[dict[str, Any], str | None]:
    """Materialize the asset and return its metadata and data version."""
    chosen = {"as_of": "2026-06-11T00:00:00Z", **config}
    result = project.materialize("correction_statistics", {"ops": {"correction_statistics": {"config": chosen}}})
    assert result.success
    (event,) = result.asset_materializations_for_node("correction_statistics")
    return {name: value.value for name, value in event.metadata.items()}, (event.tags or {}).get("dagster/data_version")


def test_actions_are_counted_and_not_rows(counted: Project) -> None:
    found, _ = count(counted)
    assert (found["actions"], found["checks"]) == (4, 7)
    assert (found["passed"], found["passed_after_retry"], found["forced"], found["fail_open"]) == (1, 1, 1, 1)
    assert found["corrected"] == 2
    assert found["pass_rate"] == pytest.approx(2 / 3)
    assert (found["latency_ms/p50"], found["latency_ms/p99"]) == (100.0, 300.0)
    assert found["usd"] == pytest.approx(0.0007)


def test_the_agents_are_the_page_of_the_command(counted: Project) -> None:
    found, _ = count(counted)
    assert "| ann | 3 |" in found["agents"] and "| bob | 1 |" in found["agents"]
    assert "Sent unchecked: 1" in found["agents"]


def test_the_window_is_chosen_and_the_version_is_that_of_the_content(counted: Project) -> None:
    month, version = count(counted)
    later, same = count(counted, as_of="2026-06-12T00:00:00Z")
    assert (later["actions"], same) == (month["actions"], version)
    ever, other = count(counted, window="all")
    assert (ever["actions"], ever["window"]) == (5, "all of time")
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
