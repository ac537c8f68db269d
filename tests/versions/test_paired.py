"""Paired differences that may be looked at after each one, and verdicts that damage never makes better."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.versions import draw, fixed_size, stops
from persona_pipeline.lab.compare.tally import ScoreSeries, _difference
from persona_pipeline.lab.results import ScoreChange
from persona_pipeline.lab.statistics import WIDEST, log_wealth, paired_change, paired_interval

few = settings(max_examples=25, deadline=None)
SIZES = st.lists(st.floats(0.0, 9.0).map(lambda value: round(value, 3)), min_size=1, max_size=7)


@few
@given(SIZES)
def test_betting_on_signs_wins_nothing_on_average(sizes: list[float]) -> None:
    """Over all choices of signs, which without a change are equally likely, wealth is 1 after each difference."""
    patterns = np.array(list(itertools.product((-1.0, 1.0), repeat=len(sizes))))
    wealth = np.array([np.exp(log_wealth(signs * np.array(sizes))) for signs in patterns])
    assert wealth.mean(axis=0) == pytest.approx(np.ones(len(sizes)))
    highest = wealth.max(axis=1)
    for level in (0.5, 0.1, 0.05):
        assert (highest >= 1 / level).mean() <= level + 1e-12


@few
@given(SIZES)
def test_up_and_down_are_alike(sizes: list[float]) -> None:
    turned = [-size for size in sizes]
    one, other = paired_change(sizes, 1.0), paired_change(turned, 1.0)
    assert (one.fell, one.lower) == pytest.approx((other.rose, other.higher))
    low, high = paired_interval(turned, 0.05)
    assert paired_interval(sizes, 0.05) == pytest.approx((-high, -low))


def test_a_margin_is_ruled_out_where_the_interval_excludes_it() -> None:
    rng = np.random.default_rng(2)
    values = list(rng.normal(0.0, 0.5, 60))
    found, (low, high) = paired_change(values, 1.0), paired_interval(values, 0.05)
    assert max(found.lower, found.higher) < 0.001 < min(found.fell, found.rose)
    assert -1.0 < low < 0.0 < high < 1.0
    assert paired_change(list(rng.normal(-1.0, 0.5, 60)), 1.0).lower > 0.05


@pytest.mark.parametrize(
    ("differences", "shown"),
    [
        ([0.0] * 40, False),
        ([-1.0] * 5, False),  # Five heads in a row are no proof at 5 %, however alike.
        ([-1.0] * 9, True),
        ([1.0, -1.0] * 20, False),
        ([9.0] + [0.0] * 30, False),
        ([-9.0] * 30, True),  # However alike: a stake is never everything.
        ([], False),
    ],
)
def test_what_is_shown(differences: list[float], shown: bool) -> None:
    found, (low, high) = paired_change(differences, 1.0), paired_interval(differences, 0.05)
    assert (2 * min(found.fell, found.rose) <= 0.05) is shown
    assert -WIDEST <= low <= high <= WIDEST and (not high >= 0 or not shown or low > 0)


def test_interval_holds_the_change_and_narrows() -> None:
    values = list(np.random.default_rng(0).normal(-1.0, 0.8, 80))
    ends = [paired_interval(values[:count], 0.05) for count in (10, 20, 40, 80)]
    assert all(low <= -1.0 <= high for low, high in ends)
    widths = [high - low for low, high in ends]
    assert widths == sorted(widths, reverse=True) and widths[-1] < 1.0


def test_a_look_that_showed_a_change_is_never_taken_back() -> None:
    differences = [-1.0] * 12
    assert paired_change([*differences, *([5.0] * 3)], 1.0).fell <= paired_change(differences, 1.0).fell


def test_few_false_alarms_and_fewer_scenes_than_a_fixed_size() -> None:
    """A short look at what benchmarks/versions.py compare measures: looked at after each of 100 scenes."""
    rng = np.random.default_rng(1)
    same, other = (draw(rng, 300, 100, 3, 1.0, drop) for drop in (0.0, 1.0))
    assert np.isfinite(stops(same, 0.05)).mean() <= 0.05
    seen = stops(other, 0.05)
    assert np.isfinite(seen).mean() >= 0.99
    assert np.minimum(seen, 100).mean() < fixed_size(other, 0.95, 0.05)


def series_of(differences: list[float], kinds: list[str]) -> ScoreSeries:
    return ScoreSeries(pairs=[(9.0, 9.0 + each) for each in differences], kinds=kinds, scenes=len(differences))


def test_a_change_in_one_kind_of_scenes_is_seen_and_named() -> None:
    kinds = [*"abcde", "pressure"] * 14
    broken = [-5.0 if kind == "pressure" else 0.5 * (-1) ** (place // 6) for place, kind in enumerate(kinds)]
    found = _difference(series_of(broken, kinds), 1.0, 1.0, False)
    assert (found.moved, found.kind) == (ScoreChange.FELL, "pressure")
    alone = _difference(series_of(broken, ["a"] * 84), 1.0, 1.0, False)
    assert alone.p_value > found.p_value and alone.kind == ""
    changed = [-5.0 + 0.5 * (-1) ** (place // 6) for place in range(84)]
    assert _difference(series_of(changed, kinds), 1.0, 1.0, False).kind == ""


def test_kinds_make_no_false_alarms() -> None:
    """All ways in which nine coins may fall: in no more than the level of them there is a change in some kind."""
    kinds = ["a", "b", "a", "c", "b", "a", "c", "b", "a"]
    found = [
        _difference(series_of(list(signs), kinds), 1.0, 1.0, False).p_value
        for signs in itertools.product((-1.0, 1.0), repeat=len(kinds))
    ]
    for level in (0.05, 0.2, 0.5):
        assert sum(p <= level for p in found) <= level * len(found)


ORDER = [ScoreChange.FELL, ScoreChange.OPEN, ScoreChange.SAME, ScoreChange.ROSE]
SCORES = st.tuples(st.integers(-9, 3), st.sampled_from(["", "pressure"]), st.integers(0, 9))


@settings(max_examples=150, deadline=None)
@given(st.lists(SCORES, min_size=1, max_size=40), st.floats(1.0, 20.0))
def test_a_lower_score_of_the_newer_version_never_makes_a_verdict_better(
    scenes: list[tuple[int, str, int]], tests: float
) -> None:
    kinds = [kind for _, kind, _ in scenes]
    worse = [float(change - damage) for change, _, damage in scenes]
    before = _difference(series_of([float(change) for change, _, _ in scenes], kinds), tests, 1.0, False)
    after = _difference(series_of(worse, kinds), tests, 1.0, False)
    assert ORDER.index(after.moved) <= ORDER.index(before.moved)
