"""What runs leave of themselves: points of a history, series of one judge, what a run cost, what changed around an alarm."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from persona_pipeline.evaluation.decide import joined
from persona_pipeline.evaluation.history import Point, score_history, series_of, summary_of
from persona_pipeline.evaluation.voice import known_changes
from persona_pipeline.guard.baselines.drift import WindowScore
from persona_pipeline.guard.report import AgentEvaluation
from persona_pipeline.scoring.results import DimensionEvaluation, UsageSummary
from persona_pipeline.world.changes import Commit
from persona_pipeline.world.models import Window
from persona_pipeline.world.runs import Row
from tests.baselines.worlds import dimension

END = datetime(2026, 3, 15, tzinfo=UTC)
WEEK = timedelta(weeks=1)


def evaluation(*dimensions: DimensionEvaluation, **values: Any) -> AgentEvaluation:
    return AgentEvaluation(run_id="r", agent_id="ann", display_name="Ann", window_end=END, **values).with_dimensions(
        {item.dimension: item for item in dimensions}
    )


ONCE = dimension("adherence", {"p": [7.0], "q": [6.0]})
THRICE = dimension("fluency", {"p": [7.0, 8.0, 6.0], "q": [6.0, 5.0, 6.0]}).model_copy(update={"samples": 3})


@pytest.mark.parametrize(
    ("dimensions", "known"), [((ONCE,), False), ((ONCE, THRICE), True), ((THRICE,), True), ((), False)]
)
def test_a_point_has_margins_where_anything_was_judged_more_than_once(
    dimensions: Sequence[DimensionEvaluation], known: bool
) -> None:
    assert bool(summary_of(evaluation(*dimensions))["margins"]) is known


@pytest.mark.parametrize("margins", [{}, {"adherence": 0.4, "overall": 0.3}])
def test_a_report_draws_margins_where_a_point_has_them(margins: dict[str, float]) -> None:
    point = Point(END, 7.0, {"adherence": {"score": 6.5}}, ("m", "1"), margins=margins)
    (drawn,) = score_history({"ann": [point]})["ann"]
    assert drawn.pop("margins", {}) == margins
    assert drawn == {"window_end": END.isoformat(), "overall": 7.0, "dimensions": {"adherence": 6.5}}


def point(
    week: int, score: float | None = 7.0, *, judge: str = "m", claims: str = "set", days: float | None = 7
) -> Point:
    end = END + week * WEEK
    start = None if days is None else end - timedelta(days=days)
    scored = {"adherence": {"score": score, "samples": 2, "claims": claims}}
    return Point(end, score, scored, (judge, "1"), window_start=start)


@pytest.mark.parametrize(
    ("points", "weeks"),
    [
        pytest.param([point(0), point(1), point(2)], [0, 1, 2], id="one after another"),
        pytest.param([point(0), point(1, judge="other"), point(2)], [0, 2], id="another judge's is left out"),
        pytest.param([point(0), point(1, days=8), point(2)], [1, 2], id="one that overlaps a later one, too"),
        pytest.param([point(0), point(1, judge="other", days=9), point(2)], [0, 2], id="not by one that is left out"),
        pytest.param([point(0), point(1), point(2, days=None)], [0, 1, 2], id="where a window began is not known"),
        pytest.param([point(0, claims="old"), point(1), point(2)], [1, 2], id="other claims"),
        pytest.param([point(0, None), point(1)], [0, 1], id="without a score"),
        pytest.param([point(2)], [2], id="one"),
        pytest.param([], [], id="none"),
    ],
)
def test_a_series_is_of_windows_that_can_be_compared(points: list[Point], weeks: list[int]) -> None:
    found = series_of("ann", points)
    scores = {item.window_end: item.overall for item in points}
    ends = [END + week * WEEK for week in weeks]
    assert found == ({("ann", "adherence"): [WindowScore(end, scores[end], 2) for end in ends]} if points else {})


@pytest.mark.parametrize(
    ("before", "now", "kept"),
    [
        pytest.param(9, 0, 9, id="answered from the cache: what it did cost"),
        pytest.param(9, 1, 1, id="asked again: what that cost"),
        pytest.param(None, 0, 0, id="nothing came before"),
    ],
)
def test_a_run_costs_what_was_paid_for_its_scores(before: int | None, now: int, kept: int) -> None:
    def costing(calls: int) -> AgentEvaluation:
        return evaluation(ONCE.model_copy(update={"usage": UsageSummary(calls=calls, usd=calls / 100)}))

    found = joined(None if before is None else costing(before), costing(now), ["adherence"])
    assert (found.dimensions["adherence"].usage.calls, found.usage.calls if before else kept) == (kept, kept)


def made(days: int, persona: str = "a", model: str | None = "m1") -> SimpleNamespace:
    return SimpleNamespace(window_end=END + timedelta(days=days), persona_hash=persona * 64, judge_model=model)


@pytest.mark.parametrize(
    ("makers", "told"),
    [
        pytest.param([made(-1), made(1, "b")], {"persona aaaaaaaa became bbbbbbbb"}, id="another persona"),
        pytest.param([made(-1), made(1, model="m2")], {"the judge's model m1 became m2"}, id="another model"),
        pytest.param([made(-1), made(1)], set(), id="nothing"),
        pytest.param([made(-1), made(0, "b"), made(1, "b")], set(), id="at the start of the span"),
        pytest.param([made(-1), made(7, "b")], {"persona aaaaaaaa became bbbbbbbb"}, id="at its end"),
        pytest.param([made(-1), made(8, "b")], set(), id="after it"),
        pytest.param([made(-1, ""), made(1, "b", None)], set(), id="not known before"),
    ],
)
def test_what_changed_is_what_two_runs_in_a_span_say_differently(makers: list[SimpleNamespace], told: set[str]) -> None:
    span = Window(END + WEEK, END)
    assert {item.what for item in known_changes("ann", span, [], cast("list[Row]", makers))} == told


@pytest.mark.parametrize(
    ("paths", "told"),
    [
        (("personas/ann.yaml",), "personas/ann.yaml"),
        (("personas/bob.yaml", "recordings/a.jsonl"), None),
        (("prompt.txt", "personas/ann.yml"), "personas/ann.yml, prompt.txt"),
        (("a.py", "b.py", "personas/ann.yaml", "c.py"), "personas/ann.yaml, a.py and 2 more"),
        (("a.py", "b.py"), "a.py, b.py"),
    ],
)
def test_of_a_commit_is_told_what_may_change_how_an_agent_speaks(paths: tuple[str, ...], told: str | None) -> None:
    commit = Commit(END, "abc123", "a shorter persona", paths)
    found = [item.what for item in known_changes("ann", Window(END + WEEK, END), [commit], [])]
    assert found == ([] if told is None else [f"commit abc123 ({told}): a shorter persona"])
