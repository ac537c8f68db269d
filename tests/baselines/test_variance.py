"""How much scores vary: medians, repeats without outliers, and variances drawn to a fleet's."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from persona_pipeline.guard.baselines.variance import (
    lower_variances,
    means,
    medians,
    moderated,
    prior_of,
    repeats,
    satterthwaite,
    variances,
)

NAN = math.nan
ROWS = st.lists(st.one_of(st.integers(0, 9).map(float), st.just(NAN)), min_size=1, max_size=8)


@given(ROWS)
def test_what_is_not_known_counts_for_nothing(row: list[float]) -> None:
    known = [value for value in row if not math.isnan(value)]
    values = np.array([row])
    expected = (np.median(known), np.mean(known)) if known else (NAN, NAN)
    assert (medians(values)[0], means(values)[0]) == pytest.approx(expected, nan_ok=True)
    spread = np.var(known, ddof=1) if len(known) > 1 else NAN
    assert variances(values)[0] == pytest.approx(spread, nan_ok=True)


@given(st.lists(st.floats(0, 9), min_size=2, max_size=8))
def test_what_rises_as_it_falls_has_the_same_variance_below(row: list[float]) -> None:
    mirrored = np.array([[*row, *(2 * np.mean(row) - value for value in row)]])
    assert lower_variances(mirrored) == pytest.approx(variances(mirrored), abs=1e-9)


def test_a_score_that_only_falls_varies_more_below_its_mean() -> None:
    capped = np.array([[9.0, 9.0, 9.0, 5.0]])
    assert lower_variances(capped)[0] == pytest.approx(2 * 9 / 3)
    assert lower_variances(capped)[0] > variances(capped)[0]


@pytest.mark.parametrize(
    ("judgments", "squares", "degrees", "outliers"),
    [
        pytest.param([7, 8, 9], 2.0, 2, 0, id="three that agree"),
        pytest.param([7, 8, 0], 0.5, 1, 1, id="an outlier is left out"),
        pytest.param([8, 4], 8.0, 1, 0, id="of two nobody knows which is the outlier"),
        pytest.param([8], 0.0, 0, 0, id="one says nothing of the judge"),
        pytest.param([NAN, 7, 7], 0.0, 1, 0, id="not applicable is no judgment"),
    ],
)
def test_repeats_tell_of_the_judge(judgments: list[float], squares: float, degrees: int, outliers: int) -> None:
    found = repeats(np.array([judgments], float))
    assert [float(part[0]) for part in (found.squares, found.degrees, found.outliers)] == pytest.approx(
        [squares, degrees, outliers]
    )
    assert found.all_degrees[0] == degrees + outliers


def test_a_fleet_of_one_variance_is_pooled() -> None:
    generator = np.random.default_rng(1)
    degrees = np.full(200, 3.0)
    freedom, variance = prior_of(2.0 * generator.chisquare(3, 200) / 3, degrees, 0.01)
    assert freedom > 50
    assert variance == pytest.approx(2.0, rel=0.15)


def test_a_mixed_fleet_gives_back_its_prior() -> None:
    """Variances drawn from a scaled inverse chi-square with 6 degrees of freedom around 0.5."""
    generator = np.random.default_rng(2)
    true = 0.5 * 6 / generator.chisquare(6, 4000)
    freedom, variance = prior_of(true * generator.chisquare(4, 4000) / 4, np.full(4000, 4.0), 1e-6)
    assert freedom == pytest.approx(6, rel=0.2)
    assert variance == pytest.approx(0.5, rel=0.1)


def test_a_variance_is_drawn_to_the_fleet_by_how_little_is_known_of_it() -> None:
    found, degrees = moderated(np.array([4.0, 4.0, NAN]), np.array([2.0, 20.0, 0.0]), (4.0, 1.0), 100.0)
    assert found == pytest.approx([(4 * 1 + 2 * 4) / 6, (4 * 1 + 20 * 4) / 24, 1.0])
    assert degrees == pytest.approx([6.0, 24.0, 4.0])


def test_nobody_has_more_degrees_than_the_whole_fleet() -> None:
    _, degrees = moderated(np.array([1.0]), np.array([3.0]), (math.inf, 1.0), 12.0)
    assert degrees[0] == 12.0


def test_without_a_fleet_a_variance_stays_as_it_is() -> None:
    found, degrees = moderated(np.array([4.0, NAN]), np.array([2.0, 0.0]), (NAN, NAN), 2.0)
    assert found == pytest.approx([4.0, NAN], nan_ok=True)
    assert list(degrees) == [2.0, 0.0]


@given(st.floats(0.01, 10), st.floats(0.01, 10), st.floats(1, 50), st.floats(1, 50))
def test_a_sum_has_between_the_fewest_and_all_degrees(a: float, b: float, first: float, second: float) -> None:
    found = satterthwaite([(np.array([a]), np.array([first])), (np.array([b]), np.array([second]))])[0]
    assert min(first, second) - 1e-6 <= found <= first + second + 1e-6


def test_the_last_axis_is_the_one_however_many_there_are() -> None:
    rows = np.array([[7.0, 8.0, 0.0], [5.0, NAN, 6.0], [9.0, 9.0, 9.0], [1.0, NAN, NAN]])
    for function in (medians, means, variances, lower_variances, lambda values: repeats(values).squares):
        flat = function(rows)
        assert function(rows.reshape(2, 2, 3)) == pytest.approx(flat.reshape(2, 2), nan_ok=True)
        assert [float(function(row)) for row in rows] == pytest.approx(flat, nan_ok=True)


@pytest.mark.parametrize(("verdict", "outliers"), [(4.0, 1), (4.01, 0), (3.99, 1)])
def test_four_points_from_the_median_is_an_outlier(verdict: float, outliers: int) -> None:
    assert repeats(np.array([[8.0, 8.0, verdict]])).outliers[0] == outliers


@pytest.mark.parametrize(
    ("observed", "degrees", "expected"),
    [
        pytest.param([4.0, NAN], [3.0, 0.0], (math.inf, 4.0), id="one variance"),
        pytest.param([4.0, 9.0], [1.0, 0.0], (math.inf, 4.0), id="what has no degrees is passed over"),
        pytest.param([0.0, 0.0], [3.0, 3.0], (math.inf, 0.5), id="no lucky zero"),
        pytest.param([1.0, 2.0], [1.0, 3.0], (math.inf, 1.75), id="weighed by what is known of each"),
        pytest.param([NAN], [0.0], (NAN, NAN), id="nothing"),
    ],
)
def test_what_a_small_fleet_has_in_common(observed: list, degrees: list, expected: tuple[float, float]) -> None:
    assert prior_of(np.array(observed), np.array(degrees), 0.5) == pytest.approx(expected, nan_ok=True)


def test_a_fleet_that_differs_has_the_prior_of_limma() -> None:
    """By the formulas of Smyth (2004), equations 6-8, worked out with a root finder in place of Newton's method."""
    from scipy.optimize import brentq
    from scipy.special import digamma, polygamma

    values, degrees = np.array([0.05, 0.2, 1.0, 8.0, 30.0, 0.6]), np.array([4.0, 8.0, 5.0, 6.0, 9.0, 20.0])
    logs = np.log(values) - digamma(degrees / 2) + np.log(degrees / 2)
    excess = np.var(logs, ddof=1) - polygamma(1, degrees / 2).mean()
    freedom = 2 * brentq(lambda y: polygamma(1, y) - excess, 1e-6, 1e6, xtol=1e-14)
    centre = math.exp(logs.mean() + digamma(freedom / 2) - math.log(freedom / 2))
    assert prior_of(values, degrees, 1e-9) == pytest.approx((freedom, centre))


@pytest.mark.parametrize("factor", [0.9999, 1.0001])
def test_variances_that_differ_by_chance_alone_are_one(monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    """The line is drawn at two standard errors of the variance of the logarithms, or at what is negligible."""
    from scipy.special import digamma, polygamma

    from persona_pipeline.guard.baselines import variance

    values, degrees = np.array([0.05, 0.2, 1.0, 8.0]), np.array([4.0, 8.0, 5.0, 6.0])
    logs = np.log(values) - digamma(degrees / 2) + np.log(degrees / 2)
    expected = polygamma(1, degrees / 2).mean()
    excess = np.var(logs, ddof=1) - expected
    monkeypatch.setattr(variance, "NEGLIGIBLE", factor * excess)
    assert math.isinf(prior_of(values, degrees, 1e-9)[0]) is (factor > 1)
    monkeypatch.setattr(variance, "NEGLIGIBLE", 0.0)
    chance = 2 * math.sqrt((polygamma(3, degrees / 2).mean() + 2 * expected**2) / 4)
    assert math.isinf(prior_of(values, degrees, 1e-9)[0]) is bool(excess <= chance)


@pytest.mark.parametrize("value", [1e-8, 1e-6, 1e-3, 0.2, 1.0, 50.0, 1e7, 1e9])
def test_trigamma_is_turned_round(value: float) -> None:
    from scipy.special import polygamma

    from persona_pipeline.guard.baselines.variance import _inverse_trigamma

    assert polygamma(1, _inverse_trigamma(value)) == pytest.approx(value, rel=1e-3)


def test_a_sum_of_variances_has_the_degrees_of_satterthwaite() -> None:
    one, two = (
        (np.array([4.0, 0.0, 4.0]), np.array([8.0, 8.0, 0.0])),
        (np.array([2.0, 0.0, 0.0]), np.array([3.0, 3.0, 3.0])),
    )
    assert satterthwaite([one, two]) == pytest.approx([36 / (16 / 8 + 4 / 3), 1.0, 1.0])


def test_a_level_is_of_the_windows_that_are_known() -> None:
    from persona_pipeline.guard.baselines.variance import Level, by_group, centre

    windows = np.array([[8.0, 6.0], [7.0, NAN], [NAN, NAN], [5.0, 5.0], [8.0, 6.0]])
    middle = np.array([[9.0, 6.0], [7.0, NAN], [NAN, NAN], [5.0, NAN], [9.0, 6.0]])
    counts = np.array([[3.0, 2.0], [2.0, 3.0], [3.0, 3.0], [3.0, 3.0], [2.0, 2.0]])
    level = Level.over_windows(windows, middle, counts, repeats(windows))
    assert level.windows.tolist() == [2, 1, 0, 2, 2]
    assert level.count.tolist() == [5, 2, 0, 6, 4]
    assert level.mean == pytest.approx([7.0, 7.0, NAN, 5.0, 7.0], nan_ok=True)
    assert level.between == pytest.approx([2.0, NAN, NAN, 0.0, 2.0], nan_ok=True)
    assert level.below == pytest.approx([2.0, NAN, NAN, 0.0, 2.0], nan_ok=True)
    # Two and a half judgments a window on average make a median, and one in every window that has a score.
    assert level.median == pytest.approx([7.5, NAN, NAN, NAN, NAN], nan_ok=True)
    assert level.between_medians == pytest.approx([4.5, NAN, NAN, NAN, NAN], nan_ok=True)
    assert level.below_medians == pytest.approx([4.5, NAN, NAN, NAN, NAN], nan_ok=True)
    scores, factors = centre(level, np.array([True, True, False, True, True]))
    assert scores == pytest.approx([7.5, 7.0, NAN, 5.0, 7.0], nan_ok=True)
    assert factors == pytest.approx([1.57, 1.0, 1.0, 1.0, 1.0])
    assert by_group(np.array([0, 2, 0]), np.array([1.0, 2.0, 3.0]), 4).tolist() == [4.0, 0.0, 2.0, 0.0]
