"""From raw judgments to scores (spec/1): invert, hard, weighted mean, overall."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persona_pipeline.scoring.results import final_score, overall_score, spread, weighted_mean

scores = st.floats(min_value=0, max_value=9)
weights = st.floats(min_value=0.01, max_value=100)
pairs = st.lists(st.tuples(scores, weights), min_size=1, max_size=20)


@given(scores, st.booleans(), st.booleans())
def test_a_score_stays_within_the_scale(raw: float, inverted: bool, hard: bool) -> None:
    assert 0 <= final_score(raw, inverted=inverted, hard=hard) <= 9


@given(scores)
def test_inverting_twice_changes_nothing(raw: float) -> None:
    once = final_score(raw, inverted=True, hard=False)
    assert final_score(once, inverted=True, hard=False) == pytest.approx(raw)


@given(scores, scores)
def test_hard_mode_keeps_the_order_and_only_a_nine_is_spared(a: float, b: float) -> None:
    hard_a, hard_b = (final_score(x, inverted=False, hard=True) for x in (a, b))
    if a < b:
        assert hard_a <= hard_b
    assert (hard_a == a) == (a in (0, 9) or math.isclose(a * 0.8, a))


@pytest.mark.parametrize("raw", [-0.01, 9.01, math.nan, math.inf])
def test_what_is_no_raw_score_is_refused(raw: float) -> None:
    with pytest.raises(ValueError, match="not within 0-9"):
        final_score(raw, inverted=False, hard=False)


@given(pairs)
def test_a_mean_lies_between_its_scores(values: list[tuple[float, float]]) -> None:
    mean = weighted_mean(values)
    assert min(score for score, _ in values) <= mean <= max(score for score, _ in values)


@given(pairs, st.floats(min_value=0.1, max_value=10))
def test_only_the_ratio_of_weights_matters(values: list[tuple[float, float]], factor: float) -> None:
    scaled = [(score, weight * factor) for score, weight in values]
    assert weighted_mean(scaled) == pytest.approx(weighted_mean(values))


@pytest.mark.parametrize(
    ("values", "mean"),
    [
        pytest.param([(9.0, 1e308), (3.0, 1e308)], 6.0, id="weights whose sum is no float"),
        pytest.param([(9.0, 5e-324), (4.0, 5e-324)], 6.5, id="weights that lose digits when multiplied"),
        pytest.param([(7.2, 0.3), (4.8, 0.1)], (7.2 * 0.3 + 4.8 * 0.1) / 0.4, id="everyday weights"),
    ],
)
def test_weights_of_any_size_are_weights(values: list[tuple[float, float]], mean: float) -> None:
    assert weighted_mean(values) == pytest.approx(mean, rel=1e-15)


@pytest.mark.parametrize(
    "values",
    [[], [(5.0, 0.0)], [(1.0, 0.0), (9.0, 0.0)], [(5.0, math.nan)], [(5.0, 1.0), (5.0, math.nan)], [(5.0, math.inf)]],
)
def test_nothing_to_average_is_an_error_and_not_a_score(values: list[tuple[float, float]]) -> None:
    with pytest.raises(ValueError, match="nothing to average"):
        weighted_mean(values)


@pytest.mark.parametrize(
    ("dimensions", "overall"),
    [
        ({}, None),
        ({"adherence": None}, None),
        ({"ideas_quantity": 9.0}, None),
        ({"adherence": 8.0, "fluency": 6.0, "consistency": None, "ideas_quantity": 0.0}, 7.0),
    ],
)
def test_overall_is_the_mean_of_what_was_scored_without_ideas(dimensions: dict, overall: float | None) -> None:
    assert overall_score(dimensions) == overall


def test_spread_needs_two_samples() -> None:
    assert spread([5.0]) == (None, None)
    assert spread([4.0, 6.0]) == pytest.approx((math.sqrt(2), 1.0))
