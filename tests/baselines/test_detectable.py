"""What a window can see, and what it takes to see more."""

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from persona_pipeline.guard.baselines.models import Sight
from persona_pipeline.guard.baselines.noise import Drops
from persona_pipeline.guard.baselines.sight import detectable, interval, sees, sight_of

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


def smallest(row: Drops, delta: float = 1.0) -> float:
    return float(detectable(row, LEVELS, delta)[0])


def sight(row: Drops) -> Sight:
    return sight_of(row, LEVELS, 0, 1.0)


@pytest.mark.parametrize("judge", [0.3, 1.0, 2.0])
def test_four_of_five_falls_of_that_size_are_reported(judge: float) -> None:
    """One that must also be seen beyond what a dimension may fall; with little noise that is what decides."""
    row = drops(judge=judge, week=judge / 2)
    generator = np.random.default_rng(3)
    from scipy.special import stdtrit

    error = float(np.sqrt(row.variance[0]))
    seen = smallest(row) + error * generator.standard_t(60, 20_000)
    assert ((seen / error > stdtrit(60, 1 - LEVELS[0])) & (seen > 1.0)).mean() == pytest.approx(0.8, abs=0.01)


@given(st.floats(0.3, 2), st.floats(0.0, 2), st.integers(1, 8), st.integers(1, 5))
def test_each_remedy_is_the_smallest_that_helps(judge: float, week: float, windows: int, samples: int) -> None:
    found = sight(drops(judge=judge, week=week, windows=windows, samples=samples))
    assert found.target == 1.5
    if found.judgments:
        assert smallest(drops(judge=judge, week=week, windows=windows, samples=found.judgments)) <= 1.5 + 1e-6
        if found.judgments > 1:
            fewer = drops(judge=judge, week=week, windows=windows, samples=found.judgments - 1)
            assert smallest(fewer) > 1.5 - 1e-6
    if found.windows_needed:
        assert smallest(drops(judge=judge, week=week, windows=found.windows_needed, samples=samples)) <= 1.5 + 1e-6


@given(st.floats(0.3, 2), st.floats(0.01, 2), st.integers(1, 1000))
def test_no_number_of_judgments_passes_the_limit(judge: float, week: float, samples: int) -> None:
    limit = sight(drops(judge=judge, week=week)).limit
    assert limit is not None
    assert smallest(drops(judge=judge, week=week, samples=samples)) >= limit


def test_what_the_week_hides_no_judgment_shows() -> None:
    assert sight(drops(week=2.0)).judgments is None
    assert sight(drops(week=0.0)).limit is None
    # Of weeks nothing is known: more windows would take away the judge's part of the baseline alone.
    found = sight(drops(week=0.0, windows=1, samples=7))
    assert (found.windows_needed, found.judgments) == (None, 10)
    assert sight(drops(week=0.1, windows=1, samples=7)).windows_needed == 3


def test_an_interval_is_as_wide_as_its_error() -> None:
    low, high = interval(drops())
    assert (low + high)[0] == pytest.approx(0)
    assert high[0] == pytest.approx(2.0003 * float(np.sqrt(drops().variance[0])), rel=1e-3)


@pytest.mark.parametrize(
    ("fall", "needed", "text"),
    [
        (
            1.8,
            {"windows_needed": 6, "judgments": 4, "limit": 1.3},
            "smallest detectable drop 1.8; to detect 1.5: 4 judgments a claim or 6 windows in the baseline "
            "(judgments alone: not below 1.3)",
        ),
        (1.7, {"judgments": 6}, "smallest detectable drop 1.7; to detect 1.5: 6 judgments a claim"),
        (1.2, {}, "smallest detectable drop 1.2"),
        (1.5, {}, "smallest detectable drop 1.5"),
        (1.9, {}, "smallest detectable drop 1.9; to detect 1.5: more judgments and windows together"),
    ],
)
def test_it_is_said_in_one_sentence(fall: float, needed: dict[str, float], text: str) -> None:
    assert sees(Sight.model_validate({"detectable": fall, "target": 1.5, **needed})) == text


def test_a_dimension_that_cannot_see_two_points_says_so() -> None:
    assert "low power: drops below 2.6 would be missed" in sees(Sight(detectable=2.6, judgments=4))


def test_a_drop_longer_than_the_scale_is_no_number() -> None:
    blind = Sight(detectable=37.0)
    assert (blind.shown, Sight(detectable=2.6).shown) == (">9", "2.6")
    assert "low power: any drop would be missed" in sees(blind) and "37" not in sees(blind)
