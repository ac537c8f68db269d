"""Interviews held in process: what is asked, judged, told and kept."""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.settings import get_settings
from persona_pipeline.base.status import Result
from persona_pipeline.cli import main
from persona_pipeline.judging.money import Budget
from persona_pipeline.judging.verdict import Evidence, JudgeRequest, Unscored, Verdict
from persona_pipeline.lab.answering import Answering
from persona_pipeline.lab.interview import (
    Interview,
    InterviewRequest,
    baseline_file,
    find_interview_baseline,
    held_against,
    hold_interview,
    keep_answers,
    save_interview_baseline,
)
from persona_pipeline.lab.scenes import Scene, interview_scenes
from persona_pipeline.reporting.pages.versions import interview_page
from persona_pipeline.reporting.render import render_page
from persona_pipeline.suites.running.plan import Targets
from persona_pipeline.suites.targets import Request
from persona_pipeline.testing import ScriptedJudge, WorldBuilder
from persona_pipeline.world.world import World
from tests.support.forking import forked_python
from tests.support.waiting import wait_until

Answer = Callable[[Request], str]
GOOD, BAD = "Ann Lee says it her way", "As an assistant I am happy to help"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return made(tmp_path_factory.mktemp("world"))


def made(folder: Path) -> World:
    builder = WorldBuilder(folder).persona("ann", "Ann Lee is dry.", display_name="Ann Lee")
    builder.claim("adherence", "dry", "{{agent_name}} is dry").claim("adherence", "short", "{{agent_name}} is short")
    builder.claim("consistency", "same", "{{agent_name}} sounds the same").claim("convergence", "own", "own voices")
    world = builder.open()
    world.sync()
    return world


def verdict(request: JudgeRequest) -> Verdict:
    """Good lines are an 8 or 9, whichever; bad ones a 1, with the line quoted."""
    bad = [entry for entry in request.trajectory.entries if BAD in entry.text]
    score = 1 if bad else 8 + int(request.key[0], 16) % 2
    evidence = tuple(Evidence(entry.message_id, entry.text, True) for entry in bad[:1])
    return Verdict(request.proposition_id, score=score, evidence=evidence, model="m", reasoning="Velmar is not Velmar.")


def speaking(bad: str = "", scenes: list[Scene] | None = None) -> Answer:
    """A character that is broken in one kind of scene; each answer is another."""
    kinds = {scene.id: scene.kind for scene in scenes or ()}
    count, turn = {"said": 0}, threading.Lock()

    def answer(request: Request) -> str:
        with turn:
            count["said"] += 1
        return f"{BAD if bad in (kinds.get(request.test.id), 'all') else GOOD} {count['said']}."

    return answer


def held(
    world: World, answer: Answer | None = None, judge: Any = verdict, baseline: Interview | None = None, **fields: Any
) -> Interview:
    scenes = fields.pop("scenes", None) or interview_scenes(world, "ann")
    budget = fields.pop("budget", None)
    targets = Targets.of({"bot": answer or speaking()})
    answering = Answering((targets.open("bot"), targets.open("bot")), budget=budget)
    asked = judge if isinstance(judge, ScriptedJudge) else ScriptedJudge(judge, live=True)
    return hold_interview(world, InterviewRequest("ann", **fields), scenes, asked, answering, baseline)


@pytest.fixture(scope="module")
def baseline(world: World) -> Interview:
    return held(world)


def verdicts(found: Interview) -> dict[tuple[str, str, str], Result]:
    return {(row.dimension, row.claim, row.kind): row.verdict for row in found.verdicts}


def test_a_first_interview_has_scores_and_no_verdict(baseline: Interview) -> None:
    assert baseline.exit_code == 3 and not baseline.verdicts and baseline.whole
    assert (baseline.answers, baseline.sessions, len(baseline.scenes)) == (201, 3, 18)
    item = baseline.dimensions["adherence"]
    assert item.score is not None and item.low is not None and item.low <= item.score <= (item.high or 0)
    assert item.kinds.keys() == {"small_talk", "pressure", "off_topic", "meta", "flattery", "long"}
    assert baseline.dimensions.keys() == {"adherence", "consistency"} and "convergence" in baseline.not_asked


def test_the_same_again_is_held(world: World, baseline: Interview) -> None:
    found = held(world, baseline=baseline)
    assert (found.exit_code, set(verdicts(found).values())) == (0, {Result.HELD})
    assert found.baseline == baseline.taken_at and found.changed == 0


def test_what_breaks_in_one_kind_of_scene_is_said_of_that_kind(world: World, baseline: Interview) -> None:
    scenes = interview_scenes(world, "ann")
    found = held(world, speaking("pressure", scenes), baseline=baseline)
    fell = {key for key, said in verdicts(found).items() if said is Result.FELL}
    assert found.exit_code == 1
    assert {("adherence", "", "pressure"), ("consistency", "", "pressure")} <= fell
    assert not {kind for _, _, kind in fell} - {"", "pressure"}
    worst = found.worst[0]
    assert (worst.score, worst.scene.partition("-")[0]) == (1.0, "pressure")
    # What the judge saw without a name has it again, and the line before it is the visitor's.
    assert BAD in worst.quote and worst.reasoning == "Ann is not Ann."
    assert set(worst.claims) == {"adherence/dry", "adherence/short", "consistency/same"}
    assert worst.asked in next(scene for scene in scenes if scene.id == worst.scene).turns
    page = interview_page(found)
    texts = [
        render_page(page, format, found.model_dump(mode="json")) for format in ("table", "json", "markdown", "html")
    ]
    assert all("pressure" in text and "drifted" in text for text in texts if not text.startswith("{"))
    assert "drifted" in texts[2]


def test_the_judge_sees_no_name_unless_it_is_shown(world: World) -> None:
    scenes = interview_scenes(world, "ann")[:2]
    for hide in (True, False):
        judge = ScriptedJudge(verdict, live=True)
        held(world, judge=judge, scenes=scenes, sessions=1, hide_names=hide)
        texts = [f"{item.claim} {item.persona} {item.trajectory.content()}" for item in judge.asked]
        assert all(("Lee" not in text) == hide for text in texts)


def test_each_session_is_asked_and_judged_anew(world: World) -> None:
    seen: list[tuple[str, int, int]] = []
    scenes, judge = interview_scenes(world, "ann")[:1], ScriptedJudge(verdict)

    def answer(request: Request) -> str:
        seen.append((request.test.id, request.attempt, len(request.messages)))
        return f"{GOOD} {len(seen)}"

    held(world, answer, judge, scenes=scenes, sessions=2)
    assert seen == [("small_talk-1", 0, 2), ("small_talk-1", 0, 4), ("small_talk-1", 1, 2), ("small_talk-1", 1, 4)]
    parts = {(entry.part or "").split(", ")[-1] for item in judge.asked for entry in item.trajectory.entries}
    assert len(judge.asked) == 6 and parts == {"", "earlier", "now"}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda known: {"models": ("other",)}, "another model"),
        (lambda known: {"hidden": False}, "other names"),
        (
            lambda known: {"dimensions": {**known.dimensions, "adherence": known.dimensions["consistency"]}},
            "its claims are not",
        ),
        (lambda known: {"dimensions": {"consistency": known.dimensions["consistency"]}}, "the baseline has no claims"),
        (
            lambda known: {"dimensions": {**known.dimensions, "fluency": known.dimensions["consistency"]}},
            "agent has no claims",
        ),
        (lambda known: {"scenes": dict(list(known.scenes.items())[:4])}, "4 scenes"),
        (
            lambda known: {
                "scenes": {key: item.model_copy(update={"hash": "x"}) for key, item in known.scenes.items()}
            },
            "0 scenes",
        ),
    ],
)
def test_what_cannot_be_held_against_the_baseline_is_never_green(
    world: World, baseline: Interview, change: Callable[[Interview], dict[str, Any]], why: str
) -> None:
    found = held(world, baseline=baseline.model_copy(update=change(baseline)))
    assert found.exit_code == 3
    assert any(why in row.why and row.verdict is Result.CANNOT_TELL for row in found.verdicts)


def test_a_baseline_with_gaps_is_read_as_it_is(world: World, baseline: Interview) -> None:
    """Somebody may have edited it: sessions that are missing are missing."""
    edited = {
        key: item.model_copy(update={"scores": {name: row[:1] for name, row in item.scores.items()}})
        for key, item in baseline.scenes.items()
    }
    found = held(world, baseline=baseline.model_copy(update={"scenes": edited}))
    assert set(verdicts(found).values()) == {Result.HELD}
    text = baseline.model_dump_json()
    for old, new in (('"sessions":3,"scenes"', '"sessions":1000000000,"scenes"'), ("[8.0,", "[1e300,")):
        with pytest.raises(ValueError):
            Interview.model_validate_json(text.replace(old, new))


def test_changed_scenes_are_left_out_and_counted(world: World, baseline: Interview) -> None:
    scenes = interview_scenes(world, "ann")
    scenes[0] = replace(scenes[0], turns=("Something else?",))
    found = held(world, baseline=baseline, scenes=[*scenes, replace(scenes[1], id="new-1")])
    assert (found.exit_code, found.changed, found.verdicts[0].scenes) == (0, 2, 17)


@pytest.mark.parametrize(
    ("kind", "reason", "code"),
    [("pressure", Unscored.REFUSAL, 3), ("pressure", Unscored.BUDGET, 4), ("pressure", Unscored.NOT_APPLICABLE, 0)],
)
def test_what_the_judge_does_not_score_is_no_number(
    world: World, baseline: Interview, kind: str, reason: Unscored, code: int
) -> None:
    lines = {line for scene in interview_scenes(world, "ann") if scene.kind == kind for line in scene.turns}
    said = speaking(kind, interview_scenes(world, "ann"))

    def judged(request: JudgeRequest) -> Verdict:
        broken = any(BAD in entry.text for entry in request.trajectory.entries)
        return Verdict(request.proposition_id, unscored=reason) if broken else verdict(request)

    found = held(world, said, judged, baseline)
    assert found.exit_code == code and lines
    assert kind not in found.dimensions["adherence"].kinds
    item = found.dimensions["adherence"]
    assert (item.unjudged > 0, item.silent > 0) == (code != 0, code == 0)
    assert found.whole == (code == 0)


def test_answers_that_do_not_come_are_not_judged_and_no_baseline(world: World) -> None:
    def answer(request: Request) -> str:
        if request.turn:
            raise RuntimeError("away")
        return GOOD

    found = held(world, answer, sessions=1)
    assert (found.exit_code, found.whole, found.unanswered) == (3, False, {"crashed": 18})
    assert found.dimensions["adherence"].unjudged == 18 and found.dimensions["adherence"].score is None
    with pytest.raises(ConfigError, match="not fully answered"):
        save_interview_baseline(world.root, found)


def test_a_budget_ends_it_with_its_own_code(world: World) -> None:
    def judged(request: JudgeRequest) -> Verdict:
        return Verdict(request.proposition_id, unscored=Unscored.BUDGET)

    found = held(world, judge=judged, budget=Budget(1.0))
    # No further session is begun.
    assert (found.exit_code, found.sessions, found.answers) == (4, 1, 67)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_lower_score_never_makes_a_verdict_better(baseline: Interview, data: st.DataObject) -> None:
    """Scores of any scenes and sessions go down, all of them or a few, in two steps."""
    order, steps = [Result.FELL, Result.CANNOT_TELL, Result.HELD], [baseline]
    for _ in range(2):
        lower = data.draw(st.floats(0, 9))
        hit = data.draw(st.sets(st.sampled_from([*baseline.scenes]), min_size=1))
        scenes = dict(steps[-1].scenes)
        for key in hit:
            scores = {
                name: tuple(max(0.0, (x or 0.0) - lower) for x in row) for name, row in scenes[key].scores.items()
            }
            scenes[key] = scenes[key].model_copy(update={"scores": scores})
        steps.append(baseline.model_copy(update={"scenes": scenes}))
    told = [verdicts(held_against(baseline, step, InterviewRequest("ann"), 1.0)) for step in steps]
    for better, worse in pairwise(told):
        assert all(order.index(worse[key]) <= order.index(said) for key, said in better.items())


def test_one_claim_that_collapses_is_named(world: World, baseline: Interview) -> None:
    def judged(request: JudgeRequest) -> Verdict:
        said = verdict(request)
        return replace(said, score=1) if request.proposition_id == "short" else said

    found = held(world, judge=judged, baseline=baseline)
    assert verdicts(found)["adherence", "short", ""] is Result.FELL
    assert verdicts(found)["adherence", "dry", ""] is Result.HELD


def test_a_baseline_is_read_back_as_it_was_without_what_was_said(tmp_path: Path, baseline: Interview) -> None:
    path = save_interview_baseline(tmp_path, baseline)
    assert path == baseline_file(tmp_path, "ann") == tmp_path / "baselines" / "interviews" / "ann.json"
    known = find_interview_baseline(tmp_path, "ann")
    assert known is not None and (known.scenes, known.dimensions) == (baseline.scenes, baseline.dimensions)
    assert GOOD not in path.read_text("utf-8") and find_interview_baseline(tmp_path, "bob") is None


@pytest.mark.parametrize(
    ("text", "why"),
    [("{", "is no interview"), ("{}", "is no interview"), ("[" * 5000, "is no interview"), (None, "not of 'bob'")],
)
def test_a_baseline_that_is_not_valid_is_said(tmp_path: Path, baseline: Interview, text: str | None, why: str) -> None:
    path = baseline_file(tmp_path, "bob")
    path.parent.mkdir(parents=True)
    path.write_text(baseline.model_dump_json() if text is None else text, "utf-8")
    with pytest.raises(ConfigError, match=why):
        find_interview_baseline(tmp_path, "bob")


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"change": 0}, "--change"),
        ({"dimensions": ["fluency"]}, "has no claims"),
        ({"dimensions": ["x"]}, "unknown dimension"),
    ],
)
def test_bad_input_is_said(world: World, fields: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        held(world, **fields)


def test_a_killed_interview_asks_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """kill -9 of a real process in its first session; then it goes on, with the same names for bots that remember."""
    world = made(tmp_path)
    (tmp_path / "targets.yaml").write_text(
        "targets:\n- {name: bot, provider: 'python:killed_bot:answer', workers: 1}\n"
    )
    (tmp_path / "killed_bot.py").write_text(
        "import pathlib, time\n"
        "here = pathlib.Path(__file__).parent\n"
        "def answer(messages, attempt, conversation):\n"
        "    with (here / 'asked').open('a') as stream:\n"
        "        stream.write(f'{attempt} {conversation} {messages}\\n')\n"
        "    if (here / 'slow').exists():\n"
        "        time.sleep(0.02)\n"
        "    return f'{conversation} {len(messages)}'\n"
    )
    asked, slow = tmp_path / "asked", tmp_path / "slow"
    slow.touch()
    arguments = [
        "interview",
        "ann",
        "--target",
        "bot",
        "--allow-code",
        "--sessions",
        "2",
        "--dimensions",
        "consistency",
    ]
    monkeypatch.setenv("PERSONA_ROOT", str(tmp_path))
    process = subprocess.Popen([forked_python(), "-m", "persona_pipeline", *arguments], stderr=subprocess.DEVNULL)
    wait_until(lambda: asked.exists() and len(asked.read_text("utf-8").splitlines()) > 25)
    process.send_signal(signal.SIGKILL)
    process.wait()
    slow.unlink()
    bot = Targets.of({"bot": speaking()}).open("bot")
    answering = Answering((bot, bot))
    said, (_, count, _) = asked.read_text("utf-8").splitlines(), keep_answers(world, "ann", answering)
    run = answering.run
    # One may be on its way when the process dies.
    assert len(said) - 1 <= count <= len(said)
    monkeypatch.setattr(sys, "argv", ["persona-pipeline", *arguments])
    get_settings.cache_clear()
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 3 and f"{count} answers of" in capsys.readouterr().err
    every = asked.read_text("utf-8").splitlines()
    assert len(set(every)) == 134 and len(every) <= 135
    assert keep_answers(world, "ann", answering)[1] == 134 and answering.run == run
    assert keep_answers(world, "ann", answering, fresh=True)[1] == 0 and answering.run != run
