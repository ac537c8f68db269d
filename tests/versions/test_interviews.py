"""Two targets in one interview: what is told of answers beside what a judge says, and where a fault is planted."""

import random
import re
from collections import Counter
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml

from persona_pipeline.judging.verdict import Evidence, JudgeRequest, Usage, Verdict
from persona_pipeline.lab.answering import Answering, SceneAnswers
from persona_pipeline.lab.compare.compare import Contest, compare_versions, scenes_of
from persona_pipeline.lab.compare.signals import SignalReader, expenses_of, repetition_score, voice_score
from persona_pipeline.lab.results import (
    AgentDifference,
    ComparisonRequest,
    ScoreChange,
    VersionComparison,
    read_comparison,
)
from persona_pipeline.lab.versions import Version
from persona_pipeline.reporting.pages.versions import comparison_page
from persona_pipeline.reporting.render import render_page
from persona_pipeline.suites.answering.base import TargetError
from persona_pipeline.suites.answering.output import Output
from persona_pipeline.suites.running.plan import Targets
from persona_pipeline.suites.targets import Request
from persona_pipeline.testing import ScriptedJudge, WorldBuilder
from persona_pipeline.world import World

TURNS = {"chat": 2, "pressure": 3, "long": 6}
REQUEST = ComparisonRequest(scenes=72, interview=True)
SAID = yaml.safe_load(Path("benchmarks/everyday/en.yaml").read_text("utf-8"))


@pytest.fixture
def world(tmp_path: Path) -> World:
    builder = WorldBuilder(tmp_path).persona("ann", "Ann is dry.").claim("adherence", "dry", "{{agent_name}} is dry")
    builder.claim("consistency", "same", "{{agent_name}} is the same").claim("convergence", "own", "Has own words")
    builder.say("ann", "Hm.")
    scenes = [
        {
            "id": f"{kind}-{place}",
            "kind": {"chat": "small_talk"}.get(kind, kind),
            "turns": [f"Line {n}?" for n in range(turns)],
        }
        for kind, turns in TURNS.items()
        for place in range(2)
    ]
    (builder.root / "interviews").mkdir()
    (builder.root / "interviews" / "ann.yaml").write_text(yaml.safe_dump({"scenes": scenes}), "utf-8")
    return builder.open()


def told(
    world: World, fault: str = "", *, mended: bool = False, **asked: Any
) -> tuple[VersionComparison, Counter[str]]:
    """Return what is said of two targets, the second (``mended``: the first) with a fault; answers say how good they are."""
    numbers, scenes = count(), Counter[str]()
    rng = random.Random(f"{fault}{asked}")

    def answering(after: bool) -> Any:
        said: dict[str, list[str]] = {}

        def answer(request: Request) -> dict[str, Any]:
            scene, own = request.test.id, said.setdefault(request.conversation, [])
            scenes[scene] += after and not own
            if fault == "fails" and after and request.turn == 1:
                raise TargetError("refusal", "no")
            broken = after and (
                (fault == "pressure" and scene.startswith("pressure")) or (fault == "fades" and request.turn >= 3)
            )
            text = f"{2 if broken else 8} word{next(numbers)} token{rng.randrange(10**9)}"
            if fault == "repeats" and after and own:
                text = own[0]
            own.append(text)
            dear = after and fault == "dearer"
            return {
                "text": text,
                "cost_usd": 0.02 if dear else 0.01,
                "duration_ms": 400 * (1 + rng.random()) * (1 + dear),
            }

        return answer

    def judged(request: JudgeRequest) -> Verdict:
        entries = [entry for entry in request.trajectory.entries if entry.text[0].isdigit()]
        worst = min(entries, key=lambda entry: entry.text[0])
        score = round(sum(int(entry.text[0]) for entry in entries) / len(entries)) + rng.choice((-1, 0, 0, 1))
        quotes = (Evidence(worst.message_id, worst.text, verified=True),)
        return Verdict(request.proposition_id, score=score, evidence=quotes, usage=Usage(calls=1, usd=0.001))

    targets = Targets.of({"before": answering(mended), "after": answering(not mended)})
    judge, sides = ScriptedJudge(judged, live=True), (Version("before", world.root), Version("after", world.root))
    request = replace(REQUEST, **asked)
    contest = Contest(world, sides, (judge, judge), Answering((targets.open("before"), targets.open("after"))))
    found = compare_versions(contest, scenes_of(contest, request), request)
    assert read_comparison(found.model_dump_json(), "x") == found
    return found, scenes


def moved(agent: AgentDifference) -> dict[str, str]:
    return {name: item.moved.value for name, item in agent.rows.items()}


def test_the_same_twice_holds_in_every_row_and_stops(world: World) -> None:
    found, scenes = told(world)
    agent = found.agents["ann"]
    assert moved(agent) == {
        "adherence": "same", "consistency": "same", "said_again": "same", "late_turns": "same", "voice": "open",
    }  # fmt: skip
    assert "30 are needed" in agent.signals["voice"].note
    assert (found.stopped, found.exit_code, agent.lines) == ("all is decided", 0, ())
    assert agent.scenes < REQUEST.scenes
    # Each kind in turn.
    assert len(scenes) == 6 and min(scenes.values()) >= 4
    assert agent.expenses["cost_usd"].ratio == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize(
    ("fault", "fell", "kind"),
    [
        pytest.param("pressure", "adherence", "pressure", id="only under pressure, which is little in the mean"),
        pytest.param("fades", "late_turns", "", id="only late in long conversations"),
        pytest.param("repeats", "said_again", "", id="says again what it said, and no judge sees it"),
    ],
)
def test_a_planted_fault_is_found_and_shown_side_by_side(world: World, fault: str, fell: str, kind: str) -> None:
    found, _ = told(world, fault)
    agent = found.agents["ann"]
    item = agent.rows[fell]
    assert (item.moved, item.kind, found.exit_code) == (ScoreChange.FELL, kind, 1)
    assert f"ann/{fell}" in found.fell
    first = agent.lines[0]
    assert first.scores[fell][1] < first.scores[fell][0]
    assert first.asked.startswith("Line ") and first.before != first.after
    if fault == "fades":
        assert first.turn > 3 and first.after[0] == "2"
    if fault == "pressure":
        assert first.kind == "pressure" and first.claims[0].claim == "adherence/dry" and first.claims[0].quote
    for text in (render_page(comparison_page(found), "table"), render_page(comparison_page(found), "markdown")):
        assert "fell" in text and first.after in text and first.asked in text
        assert "cost an answer: " in text
    page = render_page(comparison_page(found), "html")
    assert first.after in page and f"fell{kind and f': {kind}'}<" in page and "of the year" not in page
    hostile = first.model_copy(update={"after": "<img src=x> [a](http://x)", "asked": "</td><script>"})
    agents = {"ann": agent.model_copy(update={"lines": (hostile,)})}
    for format in ("markdown", "html"):
        rendered = render_page(comparison_page(found.model_copy(update={"agents": agents})), format)
        # In a code span nothing is a link.
        text = re.sub(r"`[^`]*`", "", rendered)
        assert "<img src" not in text and "</td><script>" not in text and ("[a](http" not in text or format == "html")


@pytest.mark.parametrize(("fault", "rose"), [("fades", "late_turns"), ("repeats", "said_again")])
def test_a_scene_that_got_better_is_shown_side_by_side(world: World, fault: str, rose: str) -> None:
    found, _ = told(world, fault, mended=True)
    agent = found.agents["ann"]
    assert (agent.rows[rose].moved, found.exit_code) == (ScoreChange.ROSE, 0)
    before, after = agent.lines[0].scores[rose]
    assert before < after
    if fault == "fades":
        assert (agent.lines[0].before[0], agent.lines[0].after[0]) == ("2", "8")
    page = render_page(comparison_page(found), "table")
    assert "ann: where it moved most" in page and agent.lines[0].after in page


def test_what_answers_cost_is_shown_and_decides_nothing(world: World) -> None:
    found, _ = told(world, "dearer")
    cost, latency = (found.agents["ann"].expenses[name] for name in ("cost_usd", "latency_seconds"))
    assert (cost.before, cost.after, found.exit_code) == (0.01, 0.02, 0)
    assert 1.9 < cost.ratio < 2.1 and latency.ratio > 1.5
    assert latency.after_p95 > latency.after > latency.before
    said = render_page(comparison_page(found), "table")
    assert "cost an answer: " in said and "latency an answer: " in said


def test_what_one_side_never_answers_is_no_pair(world: World) -> None:
    found, _ = told(world, "fails", scenes=12)
    agent = found.agents["ann"]
    assert (agent.dimensions["adherence"].scenes, agent.dimensions["adherence"].unjudged) == (0, 12)
    assert (found.exit_code, found.unanswered) == (3, {"refusal": 12})
    assert set(moved(agent).values()) == {"open"}


def test_a_kind_that_was_hardly_seen_is_not_called_held(world: World) -> None:
    """With four scenes of each kind a fault of one is not ruled out, however well the others do."""
    found, _ = told(world, scenes=12)
    item = found.agents["ann"].dimensions["adherence"]
    assert item.moved is ScoreChange.OPEN
    assert not item.open_kinds or set(item.open_kinds) <= {"small_talk", "pressure", "long"}


def test_a_voice_that_was_learnt_tells_its_own_lines_from_a_stock_assistants(tmp_path: Path) -> None:
    builder = WorldBuilder(tmp_path).persona("ann", "Ann.")
    for number, text in enumerate(SAID["voice"][:100]):
        builder.say("ann", text, at=f"2026-03-{1 + number // 8:02}T09:{number % 8:02}:00Z", channel=f"c{number // 8}")
    world = builder.open()
    world.sync()
    reader = SignalReader.of(world, Version("x", world.root).agent("ann", []), [], [])
    assert reader.voice is not None and reader.rows == ("voice",)
    own, stock = voice_score(reader.voice, SAID["voice"][100:120]), voice_score(reader.voice, SAID["assistant"][:20])
    assert own is not None and stock is not None
    assert own > 6 > 4 > stock
    assert voice_score(reader.voice, ["Guten Morgen, wie geht es dir heute? Ich habe gut geschlafen."]) is None


@pytest.mark.parametrize(
    ("texts", "score"),
    [
        (["The museum closes at five."], None),
        (["The museum closes at five.", "Ducks like bread."], 9.0),
        (["The museum closes at five.", "As I said, the museum closes at five.", "Ducks like bread."], 4.5),
        (["The museum closes at five."] * 3, 0.0),
    ],
)
def test_repetition_is_the_share_of_answers_that_say_an_earlier_one_again(
    texts: list[str], score: float | None
) -> None:
    assert repetition_score(texts) == score


def answers(cost: float | None, took: float | None) -> SceneAnswers:
    return SceneAnswers([Output([{"role": "assistant", "content": "Hm."}], cost_usd=cost, duration_ms=took)])


def test_what_targets_do_not_tell_is_not_compared() -> None:
    known = [(answers(0.1, 100), answers(0.1, 300))] * 8
    found = expenses_of([*known, (answers(None, 100), answers(0.1, 300))])
    assert (found["cost_usd"].scenes, found["latency_seconds"].scenes) == (8, 9)
    assert found["latency_seconds"].ratio == pytest.approx(3)
    assert expenses_of([(answers(0.0, None), answers(0.0, None))]) == {}
