"""What runs leave of themselves: points of a history, series of one judge, what a run cost, when an alarm is over."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from persona_pipeline.evaluation.decide import joined
from persona_pipeline.evaluation.history import (
    Point,
    by_need,
    drift_findings,
    series_beside,
    series_of,
)
from persona_pipeline.evaluation.plan import build_case
from persona_pipeline.evaluation.snapshot import AgentScope, Inputs
from persona_pipeline.evaluation.voice import VoiceState, followed, followed_text
from persona_pipeline.guard.baselines.drift import WindowScore
from persona_pipeline.guard.report import AgentEvaluation, AgentReport, Result
from persona_pipeline.judging.verdict import Usage
from persona_pipeline.scoring.results import DimensionEvaluation
from persona_pipeline.scoring.style.model import VoiceModel, VoiceProvenance
from persona_pipeline.scoring.style.monitor import (
    LearntVoice,
    VoiceAlarm,
    VoiceReading,
)
from persona_pipeline.world.messages.store import MessageLog
from persona_pipeline.world.models import Message, Persona, Window
from tests.baselines.worlds import dimension

END = datetime(2026, 3, 15, tzinfo=UTC)
WEEK = timedelta(weeks=1)


def evaluation(*dimensions: DimensionEvaluation, **values: Any) -> AgentEvaluation:
    return AgentEvaluation(run_id="r", agent_id="ann", display_name="Ann", window_end=END, **values).with_dimensions(
        {item.dimension: item for item in dimensions}
    )


ONCE = dimension("adherence", {"p": [7.0], "q": [6.0]})


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
        return evaluation(ONCE.model_copy(update={"usage": Usage(calls=calls, usd=calls / 100)}))

    found = joined(None if before is None else costing(before), costing(now), ["fluency"])
    assert (found.dimensions["adherence"].usage.calls, found.usage.calls if before else kept) == (kept, kept)


def falling(from_week: int, weeks: int = 18) -> list[Point]:
    steady = [8.0, 8.33, 7.67, 8.0, 8.33, 8.0, 7.67, 8.33, 8.0, 8.0]
    return [
        point(week, steady[week % 10] if week < from_week else 8.0 - 0.5 * (week - from_week + 1), claims="set")
        for week in range(weeks)
    ]


@pytest.mark.parametrize(
    ("own", "other", "told"),
    [
        pytest.param(falling(12), falling(99), True, id="its own fall"),
        pytest.param(falling(99), falling(12), False, id="another's fall is not its own"),
    ],
)
def test_a_drift_is_said_of_whose_it_is_beside_all_others(own: list[Point], other: list[Point], told: bool) -> None:
    newest = own[-1]
    score = newest.dimensions["adherence"]["score"]
    item = dimension("adherence", {"p": [7.0]}).model_copy(update={"score": score, "samples": 2})
    evaluated = evaluation(item, provenance={"judge_model": "m", "prompt_version": "1"}).model_copy(
        update={"window_end": newest.window_end, "window_start": newest.window_start}
    )
    # What the others say later is not known yet.
    points = {"ann": own, "bob": [*other, point(18, 1.0)]}
    series = series_beside(evaluated, points)
    assert {key: len(windows) for key, windows in series.items()} == {
        ("ann", "adherence"): 18, ("bob", "adherence"): 18,
    }  # fmt: skip
    assert series["bob", "adherence"][-1].score == other[-1].dimensions["adherence"]["score"]
    assert bool(drift_findings(evaluated, points)) is told
    short = {"ann": own[:5], "bob": other}
    early = evaluated.model_copy(update={"window_end": own[4].window_end})
    assert series_beside(early, short) == {}, "too few of its own to say anything of"


def test_a_series_is_of_the_newest_sixty_windows() -> None:
    points = [point(week) for week in range(70)]
    item = dimension("adherence", {"p": [7.0]}).model_copy(update={"samples": 2, "proposition_set_hash": "set"})
    evaluated = evaluation(item, provenance={"judge_model": "m", "prompt_version": "1"}).model_copy(
        update={"window_end": points[64].window_end, "window_start": points[64].window_start}
    )
    (found,) = series_beside(evaluated, {"ann": points}).values()
    assert (len(found), found[0].end, found[-1].end) == (60, points[5].window_end, points[64].window_end)


def test_who_needs_a_look_most_comes_first() -> None:
    def of(verdict: Result | None, *findings: str) -> AgentReport:
        return cast("AgentReport", SimpleNamespace(conclusion=SimpleNamespace(verdict=verdict), findings=findings))

    reports = {
        "all well": of(Result.HELD), "a warning": of(Result.HELD, "w"), "cannot be told": of(Result.CANNOT_TELL, "c"),
        "fell": of(Result.FELL, "f"), "another fell": of(Result.FELL, "f"), "nothing to judge": of(None),
        "with a warning": of(Result.HELD, "w"),
    }  # fmt: skip
    assert by_need(reports) == [
        *("another fell", "fell", "cannot be told"), *("a warning", "with a warning"), *("all well", "nothing to judge"),
    ]  # fmt: skip


def said(who: str, hours: int, channel: str = "a", run: str | None = None) -> Message:
    return Message(f"{who}{hours}", who, f"words {hours}", END + timedelta(hours=hours), channel, run_id=run)


@pytest.mark.parametrize("synthetic", [False, True])
def test_a_case_has_a_past_unless_it_was_made_up(synthetic: bool) -> None:
    talk = MessageLog.of([said("ann", -30), said("bob", -29), said("ann", -6), said("bob", -5), said("cat", -4, "b")])
    inputs = Inputs(**{"generated" if synthetic else "messages": talk})
    window = Window(END, END - timedelta(days=1))
    scope = AgentScope("ann", window, ("adherence",), Persona("ann", "Ann", "Ann is dry."), synthetic=synthetic)
    case = build_case(inputs, scope, 1)
    before = [] if synthetic else ["ann-30"]
    assert [item.id for item in case.messages] == ["ann-6"]
    assert [item.id for item in case.earlier] == [item.id for item in case.before] == before
    assert {name: [item.id for item in items] for name, items in case.channels.items()} == {"a": ["ann-6", "bob-5"]}
    earlier = {name: [item.id for item in items] for name, items in case.earlier_channels.items()}
    assert earlier == ({} if synthetic else {"a": ["ann-30", "bob-29"]})
    assert case.history == ({} if synthetic else {"ann": ["words -30"], "bob": ["words -29"]})


def alarm(began: int, raised: int) -> VoiceAlarm:
    return VoiceAlarm("ann", said("ann", raised), said("ann", began), 2, ())


def reading(hours: int, total: float) -> VoiceReading:
    return VoiceReading(said("ann", hours), total)


@pytest.mark.parametrize(
    ("sums", "alarms", "stands", "shown"),
    [
        pytest.param([0.5, 1, 1, 1], [(0, 1)], True, [1], id="it stands, though raised before the window"),
        pytest.param([0.5, 1, 0, 1], [(0, 1)], False, [], id="it was over before the window"),
        pytest.param([1, 0, 0.5, 1, 1], [(0, 0), (2, 3)], True, [3], id="the last of two stands"),
        pytest.param([1, 0.5, 0.5, 1, 0], [(0, 0), (2, 3)], False, [3], id="the last is over, in the window"),
        pytest.param([0.1, 0.1], [], False, [], id="none"),
    ],
)
def test_an_alarm_stands_until_the_sum_is_at_nothing(
    monkeypatch: pytest.MonkeyPatch, sums: list[float], alarms: list[tuple[int, int]], stands: bool, shown: list[int]
) -> None:
    told = [reading(n, total) for n, total in enumerate(sums)], [alarm(*item) for item in alarms]
    monkeypatch.setattr("persona_pipeline.evaluation.voice.follow_voice", lambda *_: told)
    window = Window(END + timedelta(hours=9), END + timedelta(hours=1))
    found = followed(LearntVoice("ann", "h", cast("VoiceModel", "learnt")), [], window)
    assert (found.stands, [item.raised_at.id for item in found.alarms]) == (stands, [f"ann{n}" for n in shown])


def learnt(delays: dict[str, int], everyday: int = 900, messages: int = 120) -> VoiceState:
    known = VoiceProvenance(
        agent_id="ann", persona_hash="h", first_message="a", last_message="b", until=END, messages=messages, conversations=24,
        others=99, language="en", everyday=everyday,
    )  # fmt: skip
    rivals = tuple(filter(None, delays))
    return VoiceState(
        LearntVoice("ann", "h", VoiceModel(provenance=known, rivals=rivals, limits=((4.0,),), delays=delays))
    )


STOCK = "everyday language (en) after about 7 messages"
UNSEEN = "ann: a change into another person's voice is not seen (`persona-pipeline evaluate` asks a judge)"
MAYBE = "ann: a change into a stock assistant may not be seen: "


@pytest.mark.parametrize(
    ("state", "towards", "more"),
    [
        pytest.param(
            learnt({"": 7, "bob": 5, "cat": 25}), f"{STOCK}; bob, cat after about 5 to 25", [], id="all that there is",
        ),
        pytest.param(learnt({"": 7}), STOCK, [UNSEEN], id="no other agent"),
        pytest.param(
            learnt({"": 7}, messages=60), STOCK,
            ["ann: too little history (60 of 100 messages): a smaller change is not seen", UNSEEN],
            id="too little",
        ),
        pytest.param(
            learnt({"bob": 5}), "bob after about 5",
            [f"{MAYBE}it is too close to everyday language, or too little is known of it"], id="too near to everyday language",
        ),
        pytest.param(
            learnt({"bob": 5}, everyday=0), "bob after about 5",
            [f"{MAYBE}there is no everyday language for en; write background/en.txt"], id="no everyday language",
        ),
    ],
)  # fmt: skip
def test_what_following_a_voice_can_see_is_said(state: VoiceState, towards: str, more: list[str]) -> None:
    first, *others = followed_text(state)
    assert first.startswith(
        f"ann: followed since 2026-03-15 00:00 UTC; a change is noticed towards {towards}; learnt from "
    )
    assert others == more
