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


def test_what_is_held_is_what_the_bets_win() -> None:
    """By hand: a spread of a point that counts as two differences, three rates, half on up and half on down."""
    values = [1.0, -0.5, 2.0, 0.0, 1.5]
    for shift in (0.0, 1.0, -2.5):
        held = {(rate, side): 1.0 for rate in (0.4, 0.8, 1.6) for side in (1, -1)}
        for place, value in enumerate(values):
            seen = values[:place]
            around = sum(v * v for v in seen) - sum(seen) ** 2 / max(1, place)
            spread = max(0.05, math.sqrt((2.0 + max(0.0, around)) / (2.0 + max(0, place - 1))))
            for rate, side in held:
                held[rate, side] *= 1 + side * math.tanh(rate / spread * (value - shift))
            wealth = log_wealth(np.array(values), np.array([shift]))[0, place]
            assert wealth == pytest.approx(math.log(sum(held.values()) / 6))
    # However alike: a stake is never everything.
    assert np.isfinite(log_wealth(np.full(30, 9.0), np.array([-9.0]))).all()


def test_the_interval_is_of_shifts_that_leave_the_bets_unprofitable() -> None:
    values = np.array([1.0, -0.5, 2.0, 0.0, 1.5, 1.0, 0.5, 1.0, 2.0, 1.0])
    found = paired_change(values.tolist(), 0.2, margin=1.0)
    highest = {shift / 50: log_wealth(values, np.array([shift / 50]))[0].max() for shift in range(-450, 451)}
    inside = [shift for shift, held in highest.items() if held < math.log(5)]
    assert (found.low, found.high) == pytest.approx((min(inside), max(inside)))
    assert (found.pairs, found.mean) == (10, pytest.approx(0.95))
    assert found.p_value == pytest.approx(math.exp(-highest[0.0]))
    assert found.margin_p == pytest.approx(max(min(1.0, math.exp(-highest[side])) for side in (-1.0, 1.0)))
    quick = paired_change(values.tolist(), 0.2, interval=False, widest=4.0)
    assert (quick.p_value, quick.low, quick.high) == (pytest.approx(found.p_value), -4.0, 4.0)
    far = paired_change([30.0] * 40, 0.05, widest=9.0)
    assert (far.low, far.high) == (30.0, 30.0), "beyond all shifts that can be: the mean alone is left"


def test_a_change_in_one_kind_of_scenes_is_seen_and_named() -> None:
    kinds = [*"abcde", "pressure"] * 14
    broken = [-5.0 if kind == "pressure" else 0.5 * (-1) ** (place // 6) for place, kind in enumerate(kinds)]
    alone, by_kind = (paired_change(broken, 0.05, interval=False, kinds=own) for own in ((), kinds))
    assert by_kind.kind == "pressure"
    assert by_kind.p_value < alone.p_value / 2
    # Where all changed alike it costs a factor of two.
    all_changed = [-5.0 + 0.5 * (-1) ** (place // 6) for place in range(84)]
    assert paired_change(all_changed, 0.05, interval=False, kinds=kinds).kind == ""
    one = paired_change(broken, 0.05, interval=False, kinds=["a"] * 84)
    assert (one.p_value, one.kind) == (alone.p_value, "")


@pytest.mark.parametrize("level", [0.05, 0.2, 0.5])
def test_kinds_make_no_false_alarms(level: float) -> None:
    """Every way in which nine coins may fall: in no more than the level of them there is a change in some kind."""
    kinds = ["a", "b", "a", "c", "b", "a", "c", "b", "a"]
    found = [
        paired_change(signs, 0.05, interval=False, kinds=kinds).p_value <= level
        for signs in itertools.product((-1.0, 1.0), repeat=len(kinds))
    ]
    assert sum(found) <= level * len(found)
