"""Slow drift over stored windows."""

import random
from datetime import UTC, datetime, timedelta

import pytest

from persona_pipeline.guard.baselines.drift import WindowScore, find_trends

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


def test_a_steady_fleet_has_no_trend() -> None:
    assert find_trends(fleet()) == {}


def test_a_slow_drift_is_found_with_the_week_it_began() -> None:
    found = find_trends(fleet(falls=0.3))
    assert found.keys() == {("ann", "adherence")}
    trend = found["ann", "adherence"]
    assert START + timedelta(weeks=7) <= trend.began <= START + timedelta(weeks=10)
    assert trend.before == pytest.approx(7, abs=0.4)
    assert trend.now < 6
    assert trend.strength > 1
    text = trend.text("ann", "adherence")
    assert text.startswith(f"ann: adherence has been dropping since the week of {trend.began:%d %b %Y}")


def test_what_recovered_is_no_trend_any_more() -> None:
    windows = fleet(weeks=20, falls=0.3)
    drifted = windows["ann", "adherence"]
    back = [*drifted[:14], *series(random.Random(6), 30)]
    ends = [START + timedelta(weeks=week) for week in range(len(back))]
    windows["ann", "adherence"] = [
        WindowScore(end, item.score, item.judgments) for end, item in zip(ends, back, strict=True)
    ]
    assert find_trends(windows) == {}


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"falls": 1.0, "weeks": 8, "since": 4}, id="eight windows only make up the level"),
        pytest.param({"falls": 1.0, "judgments": 2}, id="judged twice is too noisy"),
    ],
)
def test_too_little_is_no_trend(changed: dict) -> None:
    assert find_trends(fleet(**changed)) == {}


def test_windows_without_a_score_are_passed_over() -> None:
    windows = fleet(falls=0.3)
    own = windows["ann", "adherence"]
    gap = WindowScore(own[9].end + timedelta(days=1), None, 3)
    windows["ann", "adherence"] = [*own[:10], gap, *own[10:]]
    assert find_trends(windows) == find_trends(fleet(falls=0.3))


def test_nothing_is_no_trend() -> None:
    assert find_trends({}) == {}
