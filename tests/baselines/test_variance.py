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
