"""Agreement and its intervals, against libraries that compute the same, and on lists whose answer is known."""

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.metrics import cohen_kappa_score

from persona_pipeline.guard.calibration.measures import between_people, bias, labels_to_halve, spearman, weighted_kappa


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


@pytest.mark.parametrize(
    ("labels", "population", "more"),
    [(50, None, 150), (50, 10_000, 148), (50, 100, 30), (100, 100, 0)],
    ids=["of any", "of many", "of few", "all labelled"],
)
def test_labels_that_halve_the_interval(labels: int, population: int | None, more: int) -> None:
    assert labels_to_halve(labels, population) == more
