"""Slow drift over stored windows, and weeks since a baseline."""

import random
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from persona_pipeline.guard.baselines.drift import CERTAIN, WindowScore, find_moved, winnings
from persona_pipeline.guard.baselines.models import Baseline
from persona_pipeline.guard.baselines.regression import weeks_since
from tests.baselines.worlds import NOW

START = datetime(2026, 1, 4, tzinfo=UTC)
Fleet = dict[tuple[str, str], list[WindowScore]]


def windows_of(scores: Iterable[float]) -> list[WindowScore]:
    return [WindowScore(START + timedelta(weeks=week), score, 3) for week, score in enumerate(scores)]


def fleet(falls: float = 0.0) -> Fleet:
    """Return 13 series around 7 with sd 0.4, of which ann's falls by so much a week from week 8 on."""
    draw, names = random.Random(5), [*((f"a{number}", "fluency") for number in range(12)), ("ann", "adherence")]
    return {
        name: windows_of(draw.gauss(7 - falls * (name[0] == "ann") * max(0, week - 7), 0.4) for week in range(14))
        for name in names
    }


def test_a_steady_fleet_and_an_empty_one_have_not_moved() -> None:
    assert find_moved(fleet()) == find_moved({}) == {}


def test_windows_without_a_score_are_passed_over() -> None:
    windows = fleet(falls=0.5)
    own = windows["ann", "adherence"]
    gap = WindowScore(own[9].end + timedelta(days=1), None, 3)
    windows["ann", "adherence"] = [*own[:10], gap, *own[10:]]
    assert find_moved(windows) == find_moved(fleet(falls=0.5)) != {}


def test_a_fall_is_told_in_the_week_that_makes_it_sure() -> None:
    for weeks in range(9, 15):
        now = {name: own[:weeks] for name, own in fleet(falls=0.4).items()}
        held = winnings(np.array([[item.score for item in own] for own in now.values()]))[:, -1]
        sure = [name for name, won in zip(now, held, strict=True) if won > np.log(CERTAIN * len(now))]
        assert list(find_moved(now)) == sure and bool(sure) is (weeks == 14)


@pytest.mark.parametrize("since", [8, 9, 11])
def test_a_fall_begins_with_its_first_window(since: int) -> None:
    """A steady level, then a fall of a point and a half a week: nothing about the week it began is a matter of chance."""
    levels = [7.2, 7.0] * 8
    scores = [*levels[:since], *(levels[n] - 1.5 * (n - since + 1) for n in range(since, 16))]
    moved = find_moved({("ann", "x"): windows_of(scores), ("bob", "x"): windows_of(levels)})
    assert f"since the week of {START + timedelta(weeks=since):%d %b %Y}: 7.1 before" in moved["ann", "x"]


@pytest.mark.parametrize(
    ("days", "week"), [(-30, 1), (0, 1), (7, 1), (8, 2), (14, 2), (7 * 52, 52)], ids=lambda value: str(value)
)
def test_the_week_is_counted_from_the_baselines_newest_window(days: int, week: int) -> None:
    golden = Baseline(
        agent_id="ann", captured_at=NOW, dimensions={"fluency": 8.0},
        provenance={"dimensions": {"fluency": {"window_end": NOW.isoformat()}}},
    )  # fmt: skip
    now = {"window_end": (NOW + timedelta(days=days)).isoformat()}
    assert weeks_since(golden, "fluency", now) == week
    assert weeks_since(golden, "adherence", now) == weeks_since(golden, "fluency", None) == 1


def test_betting_on_steady_weeks_wins_nothing() -> None:
    """Of so many series a share of 1 / k at most ever holds k times what it began with."""
    held = winnings(np.random.default_rng(8).normal(7, 0.5, (2000, 34)))
    assert (held[:, :8] == 0).all()
    for times in (CERTAIN, 100.0):
        assert (held > np.log(times)).any(axis=1).mean() <= 1.2 / times


def test_weeks_that_resemble_the_week_before_are_no_fall() -> None:
    generator = np.random.default_rng(9)
    weeks = generator.normal(0, 1, (400, 34))
    for week in range(1, 34):
        weeks[:, week] = 0.5 * weeks[:, week - 1] + 0.75**0.5 * weeks[:, week]
    assert (winnings(7 + 0.5 * weeks) > np.log(CERTAIN * 400)).any(axis=1).sum() <= 1
