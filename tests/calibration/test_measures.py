"""Agreement and its intervals, against libraries that compute the same, and on lists whose answer is known."""

import numpy as np
import pytest
from scipy.stats import spearmanr, t

from persona_pipeline.guard.calibration.measures import bias, spearman


def two_raters(seed: int, count: int, noise: float) -> tuple[list[float], list[float]]:
    generator = np.random.default_rng(seed)
    truth = generator.normal(5.5, 2, count)
    first, second = (np.clip(np.rint(truth + generator.normal(0, noise, count)), 0, 9) for _ in range(2))
    return first.tolist(), second.tolist()


@pytest.mark.parametrize("noise", [0.5, 1.5, 4.0])
def test_rank_correlation_is_that_of_the_library(noise: float) -> None:
    first, second = two_raters(1, 80, noise)
    rank = spearman(first, second)
    assert rank.value == pytest.approx(spearmanr(first, second)[0])
    assert rank.low is not None and rank.high is not None and rank.value is not None
    assert rank.low < rank.value < rank.high


@pytest.mark.parametrize("noise", [1.0, 4.0])
def test_intervals_cover_what_they_say(noise: float) -> None:
    first, second = two_raters(2, 100_000, noise)
    truth, hits = float(spearmanr(first, second)[0]), 0
    generator = np.random.default_rng(3)
    for _ in range(200):
        drawn = generator.integers(0, len(first), 50)
        measure = spearman([first[i] for i in drawn], [second[i] for i in drawn])
        assert measure.low is not None and measure.high is not None
        hits += measure.low <= truth <= measure.high
    assert hits / 200 >= 0.90


def test_a_judge_that_gives_everything_alike_has_no_rank_and_a_bias() -> None:
    people = [float(value) for value in range(10)]
    assert spearman([7.0] * 10, people).value is None
    assert bias([7.0] * 10, people).value == pytest.approx(2.5)
    # Two scores are enough to rank by.
    low_and_high = [2.0] * 5 + [8.0] * 5
    for one, other in ((low_and_high, people), (people, low_and_high)):
        assert spearman(one, other).value == pytest.approx(spearmanr(one, other)[0])


@pytest.mark.parametrize("count", [0, 1, 3])
def test_too_few_say_nothing(count: int) -> None:
    scores = [float(value) for value in range(count)]
    assert spearman(scores, scores).value is None
    assert bias(scores, scores).n == count


def test_a_bias_has_students_interval() -> None:
    judge, people = [7.0, 8.0, 5.0, 9.0], [6.0, 6.0, 5.0, 6.0]
    found = bias(judge, people)
    half = t.ppf(0.975, 3) * np.std([1, 2, 0, 3], ddof=1) / 2
    assert (found.value, found.low, found.high, found.n) == pytest.approx((1.5, 1.5 - half, 1.5 + half, 4))
    assert bias([7.0], [6.0]).value is None
    assert bias([7.0, 7.0], [6.0, 6.0]).low == 1.0


def test_the_interval_of_a_rank_correlation_is_the_infinitesimal_jackknifes() -> None:
    """What a little more weight on one pair does to the correlation of mid-ranks, by a difference quotient."""
    first, second = two_raters(6, 30, 1.5)

    def correlation(weights: np.ndarray) -> float:
        ranks = []
        for values in map(np.array, (first, second)):
            below = np.array([weights[values < v].sum() + weights[values == v].sum() / 2 for v in values])
            ranks.append(below - below @ weights)
        x, y = ranks
        return float((weights * x) @ y / np.sqrt(((weights * x) @ x) * ((weights * y) @ y)))

    def nudged(place: int, step: float) -> float:
        weights = np.full(30, (1 - step) / 30)
        weights[place] += step
        return correlation(weights)

    moves = np.array([(nudged(place, 1e-6) - nudged(place, -1e-6)) / 2e-6 for place in range(30)])
    count = 30
    r = correlation(np.full(30, 1 / 30))
    half = t.ppf(0.975, count - 1) * moves.std() / np.sqrt(count - 1) / (1 - r * r)
    found = spearman(first, second)
    assert (found.value, found.low, found.high, found.n) == pytest.approx(
        (r, np.tanh(np.arctanh(r) - half), np.tanh(np.arctanh(r) + half), count), rel=1e-5
    )
