"""Slow drift over stored windows."""

import math
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from persona_pipeline.guard.baselines import drift
from persona_pipeline.guard.baselines.drift import WindowScore, find_moved, winnings

START = datetime(2026, 1, 4, tzinfo=UTC)
Fleet = dict[tuple[str, str], list[WindowScore]]


def series(
    generator: random.Random, weeks: int, *, falls: float = 0.0, since: int = 8, judgments: int = 3
) -> list[WindowScore]:
    """Return windows around 7 with sd 0.4 that fall by ``falls`` a week from week ``since`` on."""
    return [
        WindowScore(
            START + timedelta(weeks=week), generator.gauss(7 - falls * max(0, week - since + 1), 0.4), judgments
        )
        for week in range(weeks)
    ]


def fleet(weeks: int = 14, **changed: float) -> Fleet:
    generator = random.Random(5)
    steady: Fleet = {(f"a{number}", "fluency"): series(generator, weeks) for number in range(12)}
    return steady | {("ann", "adherence"): series(generator, weeks, **changed)}  # pyright: ignore[reportArgumentType]


def test_a_steady_fleet_and_an_empty_one_have_not_moved() -> None:
    assert find_moved(fleet()) == find_moved({}) == {}


def test_windows_without_a_score_are_passed_over() -> None:
    windows = fleet(falls=0.5)
    own = windows["ann", "adherence"]
    gap = WindowScore(own[9].end + timedelta(days=1), None, 3)
    windows["ann", "adherence"] = [*own[:10], gap, *own[10:]]
    assert find_moved(windows) == find_moved(fleet(falls=0.5)) != {}


@pytest.mark.parametrize("since", [8, 9, 11])
def test_a_fall_begins_with_its_first_window(since: int) -> None:
    """A steady level, then a fall of a point and a half a week: nothing about the week it began is a matter of chance."""
    levels = [7.2, 7.0] * 8
    scores = [*levels[:since], *(levels[n] - 1.5 * (n - since + 1) for n in range(since, 16))]
    moved = find_moved({("ann", "x"): windows_of(scores), ("bob", "x"): windows_of(levels)})
    assert f"since the week of {START + timedelta(weeks=since):%d %b %Y}: 7.1 before" in moved["ann", "x"]


def windows_of(scores: Sequence[float], judgments: int = 3) -> list[WindowScore]:
    return [WindowScore(START + timedelta(weeks=week), score, judgments) for week, score in enumerate(scores)]


def test_what_is_at_its_limit_is_not_beyond_it(monkeypatch: pytest.MonkeyPatch) -> None:
    drifted = fleet(falls=0.3)
    table = np.array([[item.score for item in windows] for windows in drifted.values()])
    held = winnings(table)[-1, -1]
    for times, found in ((1.0, {("ann", "adherence")}), (1 + 1e-9, set())):
        monkeypatch.setattr(drift, "CERTAIN", times * math.exp(held) / len(drifted) * (1 - 1e-12))
        assert find_moved(drifted).keys() == found


def stepped(fall: float, at: int, weeks: int) -> Fleet:
    """Return a fleet that goes up and down by .2 around 7, of whom ann is lower by ``fall`` from week ``at`` on."""

    def scores(of: float) -> list[WindowScore]:
        return [
            WindowScore(START + timedelta(weeks=week), 7 + 0.2 * (-1) ** (week + 1) - (of if week >= at else 0.0), 3)
            for week in range(weeks)
        ]

    return {(f"a{number}", "fluency"): scores(0.0) for number in range(12)} | {("ann", "adherence"): scores(fall)}


def test_what_truly_moved_is_told_with_its_week_and_the_scores_of_both_sides() -> None:
    said = find_moved(stepped(2.0, 12, 24))
    assert said.keys() == {("ann", "adherence")}
    week = START + timedelta(weeks=12)
    assert f"has truly moved since the week of {week:%d %b %Y}: 7.0 before, 5.0 since;" in said["ann", "adherence"]
