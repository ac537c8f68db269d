from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from persona_pipeline.base.database import tables
from persona_pipeline.corrections.statistics import correction_effects, correction_statistics
from persona_pipeline.world import World

FIRST = datetime(2026, 6, 10, tzinfo=UTC)


def evaluated(world: World, days: int, scores: dict[str, float | None], **values: Any) -> None:
    """Write a completed evaluation of ann whose window ended so many days after the first correction."""
    row = {
        "agent_id": "ann",
        "status": "completed",
        "dimensions": list(scores),
        "window_end": FIRST + timedelta(days=days),
        "sample_size": 5,
        "summary": {"dimensions": {name: {"score": score} for name, score in scores.items()}},
    } | values
    with world.store.begin() as connection:
        connection.execute(sa.insert(tables.evaluation_runs), row)


def corrected(world: World, days: int = 0, outcome: str = "corrected") -> None:
    row = {
        "agent_id": "ann",
        "original_text": "x",
        "score": 1,
        "threshold": 5,
        "reasoning": "",
        "attempt_number": 1,
        "outcome": outcome,
        "created_at": FIRST + timedelta(days=days),
    }
    with world.store.begin() as connection:
        connection.execute(sa.insert(tables.correction_logs), row)


def test_every_dimension_is_compared_around_the_first_correction(either_world: World) -> None:
    evaluated(either_world, -9, {"adherence": 1.0})
    evaluated(either_world, -1, {"adherence": 4.0, "consistency": 7.0, "fluency": 6.0})
    evaluated(either_world, 2, {"adherence": 5.0})
    evaluated(either_world, 7, {"adherence": 8.0, "consistency": 5.5, "fluency": None, "convergence": 6.0})
    corrected(either_world)
    corrected(either_world, 3)
    effect = correction_effects(either_world.store, ["ann", "bob"])["ann"]
    assert (effect.before, effect.after) == (FIRST - timedelta(days=1), FIRST + timedelta(days=7))
    assert {name: item.change for name, item in effect.dimensions.items()} == {
        "adherence": 4.0,
        "consistency": -1.5,
        "fluency": None,
        "convergence": None,
    }


@pytest.mark.parametrize(
    "missing",
    [
        pytest.param({"days": -1}, id="nothing before"),
        pytest.param({"days": 1}, id="nothing after"),
        pytest.param({"status": "failed", "score": None}, id="no score"),
        pytest.param({"synthetic": True}, id="synthetic"),
    ],
)
def test_without_an_evaluation_on_both_sides_there_is_no_effect(world: World, missing: dict[str, Any]) -> None:
    corrected(world)
    values = {name: value for name, value in missing.items() if name not in ("days", "score")}
    for day in (-1, 1):
        if day != missing.get("days"):
            evaluated(world, day, {"adherence": missing.get("score", 5.0)}, **values)
    assert correction_effects(world.store, ["ann"]) == {}


def test_a_gate_that_only_watches_has_no_effect(world: World) -> None:
    """With no attempts allowed, a text below the threshold goes out as it was."""
    corrected(world, outcome="forced_through")
    evaluated(world, -1, {"adherence": 5.0})
    evaluated(world, 1, {"adherence": 5.0})
    assert correction_effects(world.store, ["ann"]) == {}


def test_without_a_correction_there_is_no_effect(world: World) -> None:
    evaluated(world, -1, {"adherence": 5.0})
    evaluated(world, 1, {"adherence": 5.0})
    assert correction_effects(world.store, ["ann"]) == {}
    assert correction_statistics(world.store).effects == {}
