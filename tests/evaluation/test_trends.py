"""Slow drift: never by so much a week that one comparison sees it, and a finding all the same."""

from datetime import UTC, datetime, timedelta

import pytest

from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.evaluation.run import run_evaluation
from persona_pipeline.guard.report import RunReport
from persona_pipeline.testing.judges import ScriptedJudge
from persona_pipeline.world import World
from persona_pipeline.world.messages.store import write_messages
from persona_pipeline.world.models import Message

FIRST = datetime(2026, 3, 15, tzinfo=UTC)


def _week(world: World, week: int) -> datetime:
    """Let ann and bob talk for a week, and return its end."""
    end = FIRST + timedelta(weeks=week)
    said = [
        # The same words every week, so that only the judge's scores change.
        Message(
            f"w{week}-{n}", agent_id, f"The kettle has boiled {n // 2} times.", end - timedelta(hours=40 - n), "general"
        )
        for n, agent_id in enumerate(["ann", "bob"] * 5)
    ]
    write_messages(world.store, said)
    return end


def _evaluate(world: World, week: int, score: float, **asked: object) -> RunReport:
    # Two judgments of three round down, one up: the mean is what is asked for to a third of a point.
    judge = ScriptedJudge(lambda request: int(score) + (request.sample < 3 * (score - int(score))), live=True)
    request = EvaluationRequest(
        agents=["ann"], dimensions=None, as_of=_week(world, week), samples=3, confirm=False, **asked
    )  # pyright: ignore[reportArgumentType]
    return run_evaluation(world, judge, request).report


def _scores(weeks: int, falls_from: int) -> list[float]:
    steady = [8.0, 8.33, 7.67, 8.0, 8.33, 8.0, 7.67, 8.33, 8.0, 8.0]
    return [steady[n % 10] if n < falls_from else 8.0 - 0.34 * (n - falls_from + 1) for n in range(weeks)]


@pytest.mark.parametrize("retaken", [False, True], ids=["an old baseline", "a baseline taken again on the way"])
def test_a_slow_drift_is_told_with_the_week_it_began(small_world: World, retaken: bool) -> None:
    _evaluate(small_world, 0, 8.0, update_baseline=True)
    report = RunReport()
    for week, score in enumerate(_scores(18, 12)):
        report = _evaluate(small_world, week, score, update_baseline=retaken and week == 15)
    found = [finding for finding in report.all_findings() if finding.kind == "moved"]
    assert {finding.dimension for finding in found} >= {"adherence", "consistency"}
    began = FIRST + timedelta(weeks=12)
    assert any(f"{began + timedelta(weeks=n):%d %b %Y}" in found[0].message for n in (-1, 0, 1)), found[0].message
    assert "trend" not in {finding.kind for finding in report.all_findings()}


@pytest.mark.parametrize("name", ["moved", "trend"])
def test_slow_drift_warns_and_fails_only_who_asks_for_it(small_world: World, name: str) -> None:
    for week, score in enumerate(_scores(18, 12)):
        _evaluate(small_world, week, score, update_baseline=week == 16)
    assert _evaluate(small_world, 17, _scores(18, 12)[17], only_fail_on=[name]).exit_code == 1
    assert _evaluate(small_world, 17, _scores(18, 12)[17], only_fail_on=["budget"]).exit_code == 0
    # A window that is past is history: what falls is said of the newest.
    past = _evaluate(small_world, 16, _scores(18, 12)[16])
    assert past.agents["ann"].past and "moved" not in {finding.kind for finding in past.all_findings()}


def test_steady_weeks_have_not_moved(small_world: World) -> None:
    for week, score in enumerate(_scores(14, 99)):
        report = _evaluate(small_world, week, score)
        assert [finding for finding in report.all_findings() if finding.kind in ("trend", "moved")] == []
