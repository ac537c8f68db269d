"""Agreement and its intervals, against libraries that compute the same, and on lists whose answer is known."""

import numpy as np
import pytest
from scipy.stats import spearmanr, t
from sklearn.metrics import cohen_kappa_score

from persona_pipeline.guard.calibration.calibrate import agreement
from persona_pipeline.guard.calibration.measures import between_people, bias, spearman, weighted_kappa


def two_raters(seed: int, count: int, noise: float) -> tuple[list[float], list[float]]:
    generator = np.random.default_rng(seed)
    truth = generator.normal(5.5, 2, count)
    first, second = (np.clip(np.rint(truth + generator.normal(0, noise, count)), 0, 9) for _ in range(2))
    return first.tolist(), second.tolist()


@pytest.mark.parametrize("noise", [0.5, 1.5, 4.0])
def test_rank_correlation_and_kappa_are_those_of_the_libraries(noise: float) -> None:
    first, second = two_raters(1, 80, noise)
    rank, kappa = spearman(first, second), weighted_kappa(first, second)
    assert rank.value == pytest.approx(spearmanr(first, second)[0])
    whole = [[int(value) for value in values] for values in (first, second)]
    assert kappa.value == pytest.approx(cohen_kappa_score(*whole, weights="quadratic", labels=range(10)))
    for measure in (rank, kappa):
        assert measure.low is not None and measure.high is not None and measure.value is not None
        assert measure.low < measure.value < measure.high


@pytest.mark.parametrize("noise", [1.0, 4.0])
def test_intervals_cover_what_they_say(noise: float) -> None:
    first, second = two_raters(2, 100_000, noise)
    truth = (
        float(spearmanr(first, second)[0]),
        cohen_kappa_score([int(v) for v in first], [int(v) for v in second], weights="quadratic"),
    )
    generator, hits = np.random.default_rng(3), np.zeros(2)
    for _ in range(200):
        drawn = generator.integers(0, len(first), 50)
        pair = [first[i] for i in drawn], [second[i] for i in drawn]
        for place, measure in enumerate((spearman(*pair), weighted_kappa(*pair))):
            assert measure.low is not None and measure.high is not None
            hits[place] += measure.low <= truth[place] <= measure.high
    assert (hits / 200 >= 0.90).all(), hits


def test_a_judge_that_gives_everything_alike_has_no_rank_and_a_bias() -> None:
    people = [float(value) for value in range(10)]
    assert spearman([7.0] * 10, people).value is None
    assert weighted_kappa([7.0] * 10, people).value == pytest.approx(0)
    assert bias([7.0] * 10, people).value == pytest.approx(2.5)
    # Two scores are enough to rank by.
    low_and_high = [2.0] * 5 + [8.0] * 5
    for one, other in ((low_and_high, people), (people, low_and_high)):
        assert spearman(one, other).value == pytest.approx(spearmanr(one, other)[0])


@pytest.mark.parametrize("count", [0, 1, 3])
def test_too_few_say_nothing(count: int) -> None:
    scores = [float(value) for value in range(count)]
    assert spearman(scores, scores).value is None
    assert weighted_kappa(scores, scores).value is None
    assert bias(scores, scores).n == count


def test_people_among_themselves_are_the_ceiling() -> None:
    assert between_people([(3.0,), (5.0,)])[0].n == 0
    alike = [(float(value % 10),) * 2 for value in range(20)]
    rank, kappa = between_people([*alike, (4.0,)])
    assert (rank.value, kappa.value, rank.n) == (pytest.approx(1), pytest.approx(1), 20)
    # Two labels of one judgment are one observation: the interval is that of half the pairs.
    first, second = two_raters(4, 40, 1.5)
    rank, kappa = between_people(list(zip(first, second, strict=True)))
    alone = weighted_kappa(first, second)
    assert rank.n == kappa.n == 40
    assert kappa.high is not None and kappa.low is not None and alone.high is not None and alone.low is not None
    assert kappa.high - kappa.low == pytest.approx(alone.high - alone.low, rel=0.15)


def test_four_times_the_labels_halve_the_interval() -> None:
    # A pair that only one scored does not count.
    assert agreement([(score, score) for score in [1.0, 4.0, 7.0] * 10] + [(2.0, None)]).to_halve == 90


def test_a_bias_has_students_interval() -> None:
    judge, people = [7.0, 8.0, 5.0, 9.0], [6.0, 6.0, 5.0, 6.0]
    found = bias(judge, people)
    half = t.ppf(0.975, 3) * np.std([1, 2, 0, 3], ddof=1) / 2
    assert (found.value, found.low, found.high, found.n) == pytest.approx((1.5, 1.5 - half, 1.5 + half, 4))
    assert bias([7.0], [6.0]).value is None
    assert bias([7.0, 7.0], [6.0, 6.0]).low == 1.0


@pytest.mark.parametrize("count", [4, 12, 40])
def test_the_interval_of_kappa_is_the_jackknifes(count: int) -> None:
    """Each pair is left out in turn, and kappa taken again, on Fisher's z."""
    first, second = two_raters(5, count, 1.5)

    def concordance(a: list[float], b: list[float]) -> float:
        spread = np.var(a) + np.var(b) + (np.mean(a) - np.mean(b)) ** 2
        return float(2 * np.cov(a, b, ddof=0)[0, 1] / spread)

    whole = concordance(first, second)
    z = np.arctanh([concordance([*first[:n], *first[n + 1 :]], [*second[:n], *second[n + 1 :]]) for n in range(count)])
    half = t.ppf(0.975, count - 1) * np.sqrt((count - 1) / count * ((z - z.mean()) ** 2).sum())
    found = weighted_kappa(first, second)
    assert (found.value, found.low, found.high) == pytest.approx(
        (whole, np.tanh(np.arctanh(whole) - half), np.tanh(np.arctanh(whole) + half))
    )


@pytest.mark.parametrize("independent", [None, 15])
def test_the_interval_of_a_rank_correlation_is_the_infinitesimal_jackknifes(independent: int | None) -> None:
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
    count = independent or 30
    r = correlation(np.full(30, 1 / 30))
    half = t.ppf(0.975, count - 1) * moves.std() / np.sqrt(count - 1) / (1 - r * r)
    found = spearman(first, second, n=independent)
    assert (found.value, found.low, found.high, found.n) == pytest.approx(
        (r, np.tanh(np.arctanh(r) - half), np.tanh(np.arctanh(r) + half), count), rel=1e-5
    )


def test_labels_of_three_people_stand_against_the_others_mean() -> None:
    labels = [(3.0, 5.0, 7.0), (8.0, 9.0, 7.0), (1.0, 2.0, 2.0), (6.0, 6.0, 5.0)]
    one = [value for values in labels for value in values]
    others = [(sum(values) - value) / 2 for values in labels for value in values]
    rank, kappa = between_people(labels)
    assert rank == spearman(one, others, n=4)
    alone = weighted_kappa(one, others)
    assert kappa.value == alone.value and kappa.n == 4
    assert alone.value is not None and alone.low is not None and alone.high is not None
    wider = np.sqrt(12 / 4)
    z, low, high = np.arctanh([alone.value, alone.low, alone.high])
    ends = np.tanh([z + wider * (low - z), z + wider * (high - z)])
    assert (kappa.low, kappa.high) == pytest.approx(ends)
    assert between_people(labels[:3])[1].value is None, "three judgments are too few"
