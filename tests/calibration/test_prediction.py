"""The score people would give: right on average, within its interval, and the same as the reference implementation's."""

import warnings

import numpy as np
import pytest

from benchmarks.people import AGENTS, JUDGES, world
from persona_pipeline.guard.calibration.peoples import PeoplesScores, peoples_mean


def labels_of(people: np.ndarray, known: np.ndarray) -> list[float | None]:
    return [float(score) if labelled else None for score, labelled in zip(people, known, strict=True)]


def drawn(generator: np.random.Generator, size: int, count: int) -> np.ndarray:
    known = np.zeros(size, dtype=bool)
    known[generator.permutation(size)[:count]] = True
    return known


def test_it_is_prediction_powered_inference() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ppi = pytest.importorskip("ppi_py")
    made = world(np.random.default_rng(5), JUDGES["noisy"])
    known = drawn(np.random.default_rng(6), len(made.judge), 60)
    y, x, rest = made.people[known], made.judge[known], made.judge[~known]
    found = peoples_mean(made.judge, labels_of(made.people, known), strata=1)
    slope = np.cov(y, x)[0, 1] / x.var(ddof=1)
    power = slope / (1 + len(x) / len(rest))
    assert found.value == pytest.approx(float(ppi.ppi_mean_pointestimate(y, x, rest, lam=power)[0]))
    # Its own tuning takes the judge's variance from all of it.
    assert found.value == pytest.approx(float(ppi.ppi_mean_pointestimate(y, x, rest)[0]), abs=0.1)
    low, high = (float(bound[0]) for bound in ppi.ppi_mean_ci(y, x, rest, alpha=0.05, lam=power))
    assert found.low is not None and found.high is not None
    # The reference knows of no finite population: of what is labelled it is not sure.
    assert 0.85 < (found.high - found.low) / (high - low) < 1.05


def test_what_is_labelled_altogether_is_known() -> None:
    people = [1.0, 4.0, 7.0, 9.0, 2.0, 6.0]
    found = peoples_mean([5.0, 5.0, 6.0, 9.0, 1.0, 7.0], people)
    assert (found.value, found.low, found.high) == (pytest.approx(sum(people) / 6),) * 3


def test_labels_drawn_unevenly_over_the_judges_scores_do_not_bend_it() -> None:
    generator = np.random.default_rng(8)
    judge = np.repeat([2.0, 8.0], [100, 900])
    people = judge - 1 + generator.integers(-1, 2, 1000)
    known = np.zeros(1000, dtype=bool)
    known[:25] = known[100:125] = True
    found = peoples_mean(judge, labels_of(people, known))
    assert found.value == pytest.approx(people.mean(), abs=0.3)


@pytest.mark.parametrize("quality", JUDGES)
def test_fifty_labels_cover_what_they_say(quality: str) -> None:
    generator, draws = np.random.default_rng(9), 90
    hits = np.zeros(2)
    for draw in range(draws):
        made = world(generator, JUDGES[quality])
        known = drawn(generator, len(made.judge), 50)
        labels = labels_of(made.people, known)
        found = [(peoples_mean(made.judge, labels), made.people.mean())]
        own = (made.agent == draw % AGENTS) & made.newest
        if draw % 3 == 0:
            model = PeoplesScores.learnt(made.judge[known], made.people[known], made.agent[known].tolist())
            one = model.mean(draw % AGENTS, made.judge[own], [labels[i] for i in np.flatnonzero(own)])
            found.append((one, made.people[own].mean()))
        for place, (measure, truth) in enumerate(found):
            assert measure.low is not None and measure.high is not None
            hits[place] += measure.low <= truth <= measure.high
    # The aim is .94 over 1,000 draws (benchmarks/people.py all); so few tell it from .85 only.
    assert hits[0] / draws >= 0.87, hits
    assert hits[1] / (draws / 3) >= 0.83, hits


def test_an_agent_with_labels_of_its_own_is_told_from_the_others() -> None:
    generator = np.random.default_rng(10)
    agents = np.repeat(["plain", "flattered"], 40)
    judge = generator.integers(3, 10, 80).astype(float)
    people = np.clip(judge - np.where(agents == "flattered", 3, 0) + generator.integers(-1, 2, 80), 0, 9)
    model = PeoplesScores.learnt(judge.tolist(), people.tolist(), agents.tolist())
    plain, flattered, unknown = (model.mean(name, [8.0] * 8) for name in ("plain", "flattered", "nobody"))
    assert plain.value == pytest.approx(7.9, abs=0.7)
    assert flattered.value == pytest.approx(5.1, abs=0.7)
    assert unknown.high is not None and unknown.low is not None and plain.high is not None and plain.low is not None
    assert unknown.high - unknown.low > 2 * (plain.high - plain.low)


def test_a_judge_that_gives_everything_alike_leaves_the_whole_scale_open() -> None:
    generator = np.random.default_rng(11)
    people = generator.integers(2, 8, 60).astype(float)
    model = PeoplesScores.learnt([5.0] * 60, people.tolist(), ["ann"] * 60)
    found = model.mean("ann", [5.0] * 8)
    assert (found.low, found.high) == (0.0, 9.0)
    assert not model.slope.is_above_zero
