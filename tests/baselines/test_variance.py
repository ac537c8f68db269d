"""Variances of many series, drawn to what they have in common."""

import math

import numpy as np
import pytest

from persona_pipeline.guard.baselines.variance import means, moderated, prior_of, variances

NAN = math.nan


def test_unknown_values_count_for_nothing() -> None:
    values = np.array([[7.0, NAN, 9.0], [NAN, NAN, NAN], [5.0, NAN, NAN]])
    assert means(values) == pytest.approx([8.0, NAN, 5.0], nan_ok=True)
    assert variances(values) == pytest.approx([2.0, NAN, NAN], nan_ok=True)


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
