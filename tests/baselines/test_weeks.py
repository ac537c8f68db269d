"""Weeks since a baseline, and what the e-process over weeks says."""

from datetime import timedelta

import numpy as np
import pytest

from persona_pipeline.guard.baselines.drift import CERTAIN, winnings
from persona_pipeline.guard.baselines.models import Baseline
from persona_pipeline.guard.baselines.regression import weeks_since
from tests.baselines.worlds import NOW


@pytest.mark.parametrize(
    ("days", "week"), [(-30, 1), (0, 1), (7, 1), (8, 2), (14, 2), (7 * 52, 52)], ids=lambda value: str(value)
)
def test_the_week_is_counted_from_the_baselines_newest_window(days: int, week: int) -> None:
    golden = Baseline(
        agent_id="ann", captured_at=NOW, dimensions={"fluency": 8.0},
        provenance={"dimensions": {"fluency": {"window_end": NOW.isoformat()}}},
    )  # fmt: skip
    now = {"window_end": (NOW + timedelta(days=days)).isoformat()}
    assert weeks_since(golden, "fluency", now) == week
    assert weeks_since(golden, "adherence", now) == weeks_since(golden, "fluency", None) == 1


def test_betting_on_steady_weeks_wins_nothing() -> None:
    """Of so many series a share of 1 / k at most ever holds k times what it began with."""
    held = winnings(np.random.default_rng(8).normal(7, 0.5, (2000, 34)))
    assert (held[:, :8] == 0).all()
    for times in (CERTAIN, 100.0):
        assert (held > np.log(times)).any(axis=1).mean() <= 1.2 / times


def test_weeks_that_resemble_the_week_before_are_no_fall() -> None:
    generator = np.random.default_rng(9)
    weeks = generator.normal(0, 1, (400, 34))
    for week in range(1, 34):
        weeks[:, week] = 0.5 * weeks[:, week - 1] + 0.75**0.5 * weeks[:, week]
    assert (winnings(7 + 0.5 * weeks) > np.log(CERTAIN * 400)).any(axis=1).sum() <= 1
