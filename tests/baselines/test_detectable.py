"""What a window can see, and what it takes to see more."""

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from persona_pipeline.guard.baselines.models import Sight
from persona_pipeline.guard.baselines.noise import Drops, detectable, interval, sees, sight_of

LEVELS = np.array([0.01])


def drops(*, judge: float = 1.0, week: float = 0.5, windows: int = 4, samples: int = 3, degrees: float = 60.0) -> Drops:
    """Return one row: a judge and a week of these standard deviations."""
    values = {
        "drop": 0.0, "fallen": 0.0, "judge_before": judge**2 / (samples * windows), "judge_now": judge**2 / samples,
        "week": week**2, "windows": windows, "degrees": degrees, "one": judge**2,
    }  # fmt: skip
    source = np.zeros(1, np.intp)
    return Drops(
        **{item.name: np.array([values[item.name]], float) for item in fields(Drops) if item.name != "source"},
        source=source,
    )


def smallest(row: Drops) -> float:
    return float(detectable(row, LEVELS)[0])


def sight(row: Drops, messages: int | None) -> Sight:
    return sight_of(row, LEVELS, 0, smallest(row), messages)


def test_four_of_five_falls_of_that_size_are_seen() -> None:
    row = drops()
    generator = np.random.default_rng(3)
    from scipy.special import stdtrit

    error = float(np.sqrt(row.variance[0]))
    seen = (smallest(row) + error * generator.standard_t(60, 20_000)) / error > stdtrit(60, 1 - LEVELS[0])
    assert seen.mean() == pytest.approx(0.8, abs=0.01)


@given(st.floats(0.3, 2), st.floats(0.0, 2), st.integers(1, 8), st.integers(1, 5))
def test_each_remedy_is_the_smallest_that_helps(judge: float, week: float, windows: int, samples: int) -> None:
    found = sight(drops(judge=judge, week=week, windows=windows, samples=samples), 30)
    if found.judgments:
        assert smallest(drops(judge=judge, week=week, windows=windows, samples=found.judgments)) <= 1 + 1e-6
        if found.judgments > 1:
            fewer = drops(judge=judge, week=week, windows=windows, samples=found.judgments - 1)
            assert smallest(fewer) > 1 - 1e-6
    if found.windows_needed:
        assert smallest(drops(judge=judge, week=week, windows=found.windows_needed, samples=samples)) <= 1 + 1e-6
    if found.messages and week > 0:
        calmer = week * (30 / found.messages) ** 0.5
        assert smallest(drops(judge=judge, week=calmer, windows=windows, samples=samples)) <= 1 + 1e-6


def test_what_the_week_hides_no_judgment_shows() -> None:
    assert sight(drops(week=2.0), 30).judgments is None
    assert sight(drops(week=2.0), None).messages is None


def test_an_interval_is_as_wide_as_its_error() -> None:
    low, high = interval(drops())
    assert (low + high)[0] == pytest.approx(0)
    assert high[0] == pytest.approx(2.0003 * float(np.sqrt(drops().variance[0])), rel=1e-3)


@pytest.mark.parametrize(
    ("fall", "needed", "text"),
    [
        (
            1.8,
            {"messages": 61, "judgments": 3},
            "this window can see a fall of 1.8; 1.0 needs 61 messages or 3 judgments a claim",
        ),
        (1.2, {"windows_needed": 6}, "this window can see a fall of 1.2; 1.0 needs 6 windows in the baseline"),
        (0.8, {}, "this window can see a fall of 0.8"),
        (1.5, {}, "this window can see a fall of 1.5; 1.0 needs more messages, judgments and windows together"),
    ],
)
def test_it_is_said_in_one_sentence(fall: float, needed: dict[str, int], text: str) -> None:
    assert sees(Sight(detectable=fall, **needed)) == text


def test_a_dimension_that_cannot_see_two_points_says_so() -> None:
    assert "cannot see a fall of 2 points, only one of 2.6: do not trust its green" in sees(
        Sight(detectable=2.6, messages=40)
    )
