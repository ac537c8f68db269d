"""Intervals over scenes, and drops told from chance."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from persona_pipeline.lab.statistics import change_of, mean_interval, variance_of


def test_a_mean_has_an_interval_from_six_scenes_on() -> None:
    assert mean_interval(np.array([])) == (None, None, None)
    assert mean_interval(np.array([7.0] * 5)) == (7.0, None, None)
    for scores in ([5.0, 6, 7, 8, 9, 7], [0.0] * 6 + [9.0] * 6, [9.0] * 6):
        known = stats.ttest_1samp(scores, 0).confidence_interval() if len({*scores}) > 1 else (9.0, 9.0)
        assert mean_interval(np.array(scores)) == pytest.approx((np.mean(scores), *known))


def draw(seed: int, *, drop: float = 0.0, missing: float = 0.0, tails: int = 30, sessions: int = 3) -> list[np.ndarray]:
    """Return the scores of an interview and of a later one: 18 scenes, 12 means."""
    random = np.random.default_rng(seed)
    scene = random.normal(7, 1, (12, 18, 1))
    before, after = (scene + random.standard_t(tails, (12, 18, sessions)) * 0.6 for _ in range(2))
    after -= drop
    for side in (before, after):
        side[random.random(side.shape) < missing] = np.nan
    return [before, after]


def significant(before: np.ndarray, after: np.ndarray) -> list[bool]:
    found = [change_of(first, last, variance_of(first), len(before)) for first, last in zip(before, after, strict=True)]
    return [item is not None and (item.p_value or 0.0) <= 0.05 for item in found]


@pytest.mark.parametrize("sessions", [1, 2, 3])
def test_nothing_is_called_a_drop_more_often_than_promised(sessions: int) -> None:
    """Heavy tails and gaps: the share of comparisons in which anything is significant; 80 of them, sd .024."""
    found = [significant(*draw(seed, missing=0.1, tails=3, sessions=sessions)) for seed in range(80)]
    assert sum(map(any, found)) <= 9


def test_a_drop_is_seen() -> None:
    assert all(all(significant(*draw(seed, drop=4.0))) for seed in range(10))


def test_what_has_no_pair_is_none() -> None:
    (before, *_), (after, *_) = draw(0)
    after[:3] = np.nan
    found = change_of(before, after, variance_of(before), 1)
    assert found is not None and found.scenes == 15
    assert change_of(before, np.full_like(after, np.nan), variance_of(before), 1) is None


SCORES = st.lists(st.lists(st.integers(0, 9), min_size=4, max_size=4), min_size=1, max_size=12)


@settings(max_examples=50, deadline=None)
@given(SCORES, st.integers(1, 3), st.data())
def test_a_lower_score_never_makes_a_drop_less_sure(rows: list[list[int]], split: int, data: st.DataObject) -> None:
    scores = np.array(rows, float)
    before, after = scores[:, :split], scores[:, split:]
    damage = data.draw(st.lists(st.integers(0, 9), min_size=after.size, max_size=after.size))
    worse = np.maximum(after - np.array(damage).reshape(after.shape), 0.0)
    variance = variance_of(before)
    known, damaged = change_of(before, after, variance, 5), change_of(before, worse, variance, 5)
    assert known is not None and damaged is not None
    assert damaged.p_value <= known.p_value and damaged.change <= known.change
    same = change_of(before, before, variance, 5)
    assert same is not None and same.p_value == 1.0
