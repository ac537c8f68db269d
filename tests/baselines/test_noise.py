"""Where the noise of a week is learnt: from windows, from the run itself, from the others; by numbers to be done by hand."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from persona_pipeline.guard.baselines import noise
from persona_pipeline.guard.baselines.noise import FLEET, OWN, RUN, UNKNOWN, Drops, from_run, from_windows


def run_of(*claims: int, same: int | None = None) -> Any:
    """Return a fleet of one agent that has dimensions of so many claims; ``same`` is one that did not change at all."""
    units = len(claims)
    return SimpleNamespace(
        dimension_of=np.repeat(np.arange(units), claims),
        agent_of=np.zeros(units, np.intp),
        same=np.arange(units) == same,
    )


@pytest.mark.parametrize(
    ("fleet", "drop", "effect", "whole", "degrees"),
    [
        pytest.param(run_of(4), [0.0, 0, 0, 4], [0.0], [0.0], [2], id="the claim that moved most is left out"),
        # 4 - 4/3 without one of them, twice that of 2 degrees, .1 of it the judge's, half of it a window's.
        pytest.param(run_of(4), [1.0, -1, 1, -1], [2.5667 / 2], [2.6667 / 2], [2], id="up and down"),
        pytest.param(run_of(3), [1.0, -1, 1], [0.0], [0.0], [0], id="of three claims nothing is known"),
        pytest.param(
            run_of(5, 5), [1.0, -1, 1, -1, 0, *[2.0] * 5], [0.0, 0.45], [0.0, 0.5], [4, 4],
            id="the other dimension tells of each",
        ),
        pytest.param(
            run_of(5, 4), [1.0, -1, 1, -1, 0, *[2.0] * 4], [0.8667, 0.45], [0.9167, 0.5], [3, 4],
            id="four degrees of others are enough, three are not",
        ),
        pytest.param(
            run_of(5, 5, same=0), [1.0, -1, 1, -1, 0, *[2.0] * 5], [0.0, 0.0], [0.0, 0.0], [4, 3],
            id="what was not judged anew tells nothing",
        ),
    ],
)  # fmt: skip
def test_a_run_tells_of_its_week_by_how_differently_claims_moved(
    fleet: Any, drop: list[float], effect: list[float], whole: list[float], degrees: list[int]
) -> None:
    found = from_run(fleet, np.array(drop), np.full(len(drop), 0.1))
    told = [found.effect.tolist(), found.whole.tolist(), found.degrees.tolist()]
    assert told == [pytest.approx(part, abs=1e-3) for part in (effect, whole, degrees)]
    assert [source == RUN for source in found.source] == [bool(count) for count in degrees]
    assert all(source in (RUN, UNKNOWN) for source in found.source)


def test_windows_tell_from_the_first_degree_of_freedom_on() -> None:
    between, judge, never = np.array([1.0, 1.0]), np.zeros(2), np.zeros(2, bool)
    found = from_windows(between, judge, np.array([1.0, 0.0]), never, judge)
    assert found.source.tolist() == [OWN, FLEET] and found.effect.tolist() == pytest.approx([1.0, 1.0])
    found = from_windows(between, judge, np.zeros(2), never, judge)
    assert found.source.tolist() == [UNKNOWN] * 2 and found.effect.tolist() == [0.0, 0.0]


def test_one_outlier_verdict_of_a_run_makes_all_of_its_agent_robust_and_one_of_a_baseline_everybody() -> None:
    def seen(before: list[bool], now: list[bool]) -> list[bool]:
        sides = (SimpleNamespace(judge=SimpleNamespace(outliers=np.array(part))) for part in (before, now))
        fleet: Any = SimpleNamespace(
            agent_of=np.array([0, 1]), dimension_of=np.array([0, 0, 1, 1]),
            **dict(zip(("claims_before", "claims_now"), sides, strict=True)),
        )  # fmt: skip
        return noise._outliers_seen(fleet).tolist()

    nothing = [False] * 4
    assert seen(nothing, nothing) == nothing
    assert seen(nothing, [False, True, False, False]) == [True, True, False, False]
    assert seen([False, False, False, True], nothing) == [True] * 4


@pytest.mark.parametrize(
    ("before", "known"),
    [
        pytest.param([4.0, 4.0, 2.0], [9.0, 6.0], id="each claim is known by itself: its repeats"),
        pytest.param([4.0, 4.0, 0.0], [9.0, 6.0], id="all are, where one was judged twice for a baseline"),
        pytest.param([0.0, 0.0, 0.0], [5.0, 6.0], id="all of an agent by the same repeats"),
    ],
)
def test_a_dimension_is_known_as_well_as_its_claims_together_or_as_the_agents_own_run(
    before: list[float], known: list[float]
) -> None:
    fleet: Any = SimpleNamespace(
        dimension_of=np.array([0, 0, 1]), agent_of=np.array([0, 1]),
        claims_before=SimpleNamespace(judge=SimpleNamespace(degrees=np.array(before))),
    )  # fmt: skip
    assert noise._dimension_degrees(fleet, np.array([5.0, 4.0, 6.0])).tolist() == known


def drops(drop: float, week: float, source: int) -> Drops:
    one = np.ones(1)
    return Drops(
        drop=drop * one, fallen=drop * one, judge_before=0.1 * one, judge_now=0.1 * one, week=week * one, windows=one,
        degrees=9 * one, source=np.array([source]), one=one,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("other", "taken"),
    [
        pytest.param(drops(2.0, 0.5, FLEET), FLEET, id="a wider week makes less of it"),
        pytest.param(drops(2.0, 0.1, FLEET), OWN, id="a narrower one is not taken"),
        pytest.param(drops(2.0, 0.2, FLEET), OWN, id="the same says nothing new"),
        pytest.param(drops(-2.0, 0.3, FLEET), FLEET, id="of a rise too"),
        pytest.param(replace(drops(2.0, 0.2, FLEET), degrees=np.full(1, 3.0)), FLEET, id="known less well"),
    ],
)
def test_of_two_estimates_the_one_that_makes_less_of_a_drop_is_taken(other: Drops, taken: int) -> None:
    own = drops(float(other.drop[0]), 0.2, OWN)
    assert own.or_more_careful(other).source.tolist() == [taken]
