"""Two targets in one interview: a planted fault is found in its kind of scene, and shown side by side."""

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
from persona_pipeline.lab.answering import Answering
from persona_pipeline.lab.compare.compare import Contest, compare_versions, scenes_of
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
from persona_pipeline.suites.running.plan import Targets
from persona_pipeline.suites.targets import Request
from persona_pipeline.testing import ScriptedJudge, WorldBuilder
from persona_pipeline.world import World

TURNS = {"chat": 2, "pressure": 3, "long": 6}
REQUEST = ComparisonRequest(scenes=72, interview=True)


@pytest.fixture
def world(tmp_path: Path) -> World:
    builder = WorldBuilder(tmp_path).persona("ann", "Ann is dry.").claim("adherence", "dry", "{{agent_name}} is dry")
    builder.claim("consistency", "same", "{{agent_name}} is the same").claim("convergence", "own", "Has own words")
    builder.claim("fluency", "varied", "{{agent_name}} varies").say("ann", "Hm.")
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
            return {"text": text, "cost_usd": 0.01}

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
    contest = Contest(world, sides, judge, Answering((targets.open("before"), targets.open("after"))))
    found = compare_versions(contest, scenes_of(contest, request), request)
    assert read_comparison(found.model_dump_json(), "x") == found
    return found, scenes


def moved(agent: AgentDifference) -> dict[str, str]:
    return {name: item.moved.value for name, item in agent.dimensions.items()}


def test_the_same_twice_holds_in_every_row_and_stops(world: World) -> None:
    found, scenes = told(world)
    agent = found.agents["ann"]
    assert moved(agent) == {"adherence": "same", "consistency": "same", "fluency": "same"}
    assert (found.stopped, found.exit_code, agent.lines) == ("all is decided", 0, ())
    assert agent.scenes < REQUEST.scenes
    # Each kind in turn.
    assert len(scenes) == 6 and min(scenes.values()) >= 3


@pytest.mark.parametrize(
    ("fault", "fell", "kind"),
    [
        pytest.param("pressure", "adherence", "pressure", id="only under pressure, which is little in the mean"),
        pytest.param("fades", "adherence", "long", id="only late in long conversations"),
        pytest.param("repeats", "fluency", "", id="says again what it said, and no judge sees it"),
    ],
)
def test_a_planted_fault_is_found_and_shown_side_by_side(world: World, fault: str, fell: str, kind: str) -> None:
    found, _ = told(world, fault)
    agent = found.agents["ann"]
    item = agent.dimensions[fell]
    assert (item.moved, item.kind, found.exit_code) == (ScoreChange.FELL, kind, 1)
    assert f"ann/{fell}" in found.fell
    first = agent.lines[0]
    assert first.scores[fell][1] < first.scores[fell][0]
    assert first.asked.startswith("Line ") and first.before != first.after
    if fault == "fades":
        assert first.turn > 3 and first.after[0] == "2"
    if fault == "pressure":
        assert first.kind == "pressure" and first.claims[0].quote
        assert "adherence/dry" in {item.claim for item in first.claims}
    for text in (render_page(comparison_page(found), "table"), render_page(comparison_page(found), "markdown")):
        assert "fell" in text and first.after in text and first.asked in text
    page = render_page(comparison_page(found), "html")
    assert first.after in page and f"fell{kind and f': {kind}'}<" in page and "of the year" not in page
    hostile = first.model_copy(update={"after": "<img src=x> [a](http://x)", "asked": "</td><script>"})
    agents = {"ann": agent.model_copy(update={"lines": (hostile,)})}
    for format in ("markdown", "html"):
        rendered = render_page(comparison_page(found.model_copy(update={"agents": agents})), format)
        # In a code span nothing is a link.
        text = re.sub(r"`[^`]*`", "", rendered)
        assert "<img src" not in text and "</td><script>" not in text and ("[a](http" not in text or format == "html")


@pytest.mark.parametrize(("fault", "rose"), [("fades", "adherence"), ("repeats", "fluency")])
def test_a_scene_that_got_better_is_shown_side_by_side(world: World, fault: str, rose: str) -> None:
    found, _ = told(world, fault, mended=True)
    agent = found.agents["ann"]
    assert (agent.dimensions[rose].moved, found.exit_code) == (ScoreChange.ROSE, 0)
    before, after = agent.lines[0].scores[rose]
    assert before < after
    if fault == "fades":
        assert (agent.lines[0].before[0], agent.lines[0].after[0]) == ("2", "8")
    page = render_page(comparison_page(found), "table")
    assert "ann: where it moved most" in page and agent.lines[0].after in page


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
