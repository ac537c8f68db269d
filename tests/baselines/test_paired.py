"""Paired differences that may be looked at after every one."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.versions import draw, fixed_size, stops
from persona_pipeline.guard.baselines.statistics import WIDEST, log_wealth, paired_change

few = settings(max_examples=25)
sizes = st.lists(st.floats(0.0, 9.0).map(lambda value: round(value, 3)), min_size=1, max_size=7)


@few
@given(sizes)
def test_betting_on_signs_wins_nothing_on_average(sizes: list[float]) -> None:
    """Over every choice of signs, which without a change are equally likely, wealth is 1 after each difference."""
    patterns = np.array(list(itertools.product((-1.0, 1.0), repeat=len(sizes))))
    wealth = np.array([np.exp(log_wealth(signs * np.array(sizes), np.zeros(1))[0]) for signs in patterns])
    assert wealth.mean(axis=0) == pytest.approx(np.ones(len(sizes)))


@few
@given(sizes)
def test_p_value_passes_a_level_in_no_more_runs_than_that(sizes: list[float]) -> None:
    signs = np.array(list(itertools.product((-1.0, 1.0), repeat=len(sizes))))
    highest = np.array([log_wealth(row * np.array(sizes), np.zeros(1))[0].max() for row in signs])
    for level in (0.5, 0.1, 0.05):
        assert (highest >= math.log(1 / level)).mean() <= level + 1e-12


@few
@given(sizes)
def test_up_and_down_are_alike(sizes: list[float]) -> None:
    one, other = paired_change(sizes, 0.05), paired_change([-size for size in sizes], 0.05)
    assert one.p_value == pytest.approx(other.p_value)
    assert (one.low, one.high) == pytest.approx((-other.high, -other.low), abs=0.021)


def test_a_margin_is_ruled_out_where_the_interval_excludes_it() -> None:
    rng = np.random.default_rng(2)
    found = paired_change(list(rng.normal(0.0, 0.5, 60)), 0.05, margin=1.0)
    assert found.margin_p < 0.001 < found.p_value
    assert -1.0 < found.low < 0.0 < found.high < 1.0
    assert paired_change(list(rng.normal(1.0, 0.5, 60)), 0.05, margin=1.0).margin_p > 0.05


def test_nothing_is_known_of_nothing() -> None:
    found = paired_change([], 0.05)
    assert (found.pairs, found.mean, found.p_value, found.low, found.high) == (0, None, 1.0, -WIDEST, WIDEST)


@pytest.mark.parametrize(
    ("differences", "shown"),
    [
        ([0.0] * 40, False),
        ([-1.0] * 5, False),  # Five heads in a row are no proof at 5 %, however alike.
        ([-1.0] * 9, True),
        ([1.0, -1.0] * 20, False),
        ([9.0] + [0.0] * 30, False),
    ],
)
def test_what_is_shown(differences: list[float], shown: bool) -> None:
    assert (paired_change(differences, 0.05).p_value <= 0.05) is shown


def test_interval_holds_the_change_and_narrows() -> None:
    rng = np.random.default_rng(0)
    values = list(rng.normal(-1.0, 0.8, 80))
    widths = []
    for count in (10, 20, 40, 80):
        found = paired_change(values[:count], 0.05)
        assert found.low <= -1.0 <= found.high
        widths.append(found.high - found.low)
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 1.0


def test_a_look_that_showed_a_change_is_never_taken_back() -> None:
    differences = [-1.0] * 12
    shown = paired_change(differences, 0.05).p_value
    assert paired_change([*differences, *([5.0] * 3)], 0.05).p_value <= shown


def test_few_false_alarms_and_fewer_scenes_than_a_fixed_size() -> None:
    """A short look at what benchmarks/versions.py compare measures: looked at after every one of 100 scenes."""
    rng = np.random.default_rng(1)
    same, other = (draw(rng, 300, 100, 3, 1.0, drop) for drop in (0.0, 1.0))
    assert np.isfinite(stops(same, 0.05)).mean() <= 0.05
    seen = stops(other, 0.05)
    assert np.isfinite(seen).mean() >= 0.99
    assert np.minimum(seen, 100).mean() < fixed_size(other, 0.95, 0.05)
    assert math.isclose(other.mean(), -1.0, abs_tol=0.2)
