"""The check of the judge in an evaluation: asked, kept, decisive for verdicts and baselines, compared, replayed."""

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.base.settings import get_settings
from persona_pipeline.base.status import Result
from persona_pipeline.evaluation.estimate import estimate_run
from persona_pipeline.evaluation.run import Run, replayed, run_evaluation
from persona_pipeline.evaluation.snapshot import load_replay, save_replay
from persona_pipeline.guard.anchors import FILE, AnchoredAgent, load_anchors
from persona_pipeline.guard.baselines.golden import BASELINES, find_baseline
from persona_pipeline.guard.findings import ANCHORS, judge_check
from persona_pipeline.judging.open import RECORDINGS, open_judge
from persona_pipeline.judging.verdict import Question, Unscored
from persona_pipeline.reporting.pages.evaluation import short_page
from persona_pipeline.reporting.render import render, render_page
from persona_pipeline.scoring.messages.reading import KIND
from persona_pipeline.testing.judges import ScriptedJudge
from persona_pipeline.testing.worlds import WorldBuilder
from persona_pipeline.world.world import World

FIRST, WEEKS = datetime(2026, 3, 2, 9, tzinfo=UTC), 6
# A word of each agent's that a reader knows it by.
WORDS = {"ann": "starboard", "bob": "invoice", "stock-character": "lamp"}
Verdict = Callable[[str, str, str], str]


@pytest.fixture(autouse=True)
def _asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERSONA_ANCHORS", "20")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    builder = (
        WorldBuilder(tmp_path / "world").persona("ann", "A sailor: starboard.").persona("bob", "A clerk: invoice.")
    )
    builder.claim("adherence", "dry", "{{agent_name}} is dry").claim("fluency", "varied", "It is varied")
    for day in range(7 * WEEKS):
        at = FIRST + timedelta(days=day)
        for hour in (0, 1):
            when = at + timedelta(hours=hour)
            builder.say("ann", f"Aye captain, the starboard rigging needs mending, {day}/{hour}, aye", at=when)
            builder.say("bob", f"The invoice {day}/{hour} was approved and is paid by procurement", at=when)
    opened = builder.open(f"sqlite:///{tmp_path / 'store.db'}")
    yield opened
    opened.store.close()


def reader(verdict: Verdict) -> Callable[[Question], Mapping[str, Any] | Unscored]:
    def reply(question: Question) -> Mapping[str, Any] | Unscored:
        if question.kind != KIND:
            return Unscored.UNRECORDED
        own = [entry for talk in json.loads(question.evidence) for entry in talk["entries"] if "id" in entry]
        said = {entry["id"]: verdict(question.agent_id, entry["text"], entry["id"]) for entry in own}
        out = [entry for entry in own if said[entry["id"]] == "out"]
        why = [{"id": entry["id"], "claims": [], "quote": entry["text"][:20], "reason": "other"} for entry in out]
        return {"verdicts": [{"id": key, "verdict": role} for key, role in said.items()], "why": why}

    return reply


def reads(agent_id: str, text: str, _: str) -> str:
    return "in" if WORDS[agent_id] in text.casefold() else "out"


def by_text(_: str, text: str, __: str) -> str:
    return "in" if "starboard" in text else "out"


def upgraded(agent_id: str, text: str, place: str) -> str:
    """Read as before, but for two messages."""
    right = reads(agent_id, text, place)
    return {"in": "out", "out": "in"}[right] if agent_id == "ann" and text in FLIPPED else right


FLIPPED: list[str] = []


def run(world: World, verdict: Verdict = reads, score: int = 8, **asked: Any) -> Run:
    return run_evaluation(world, ScriptedJudge(lambda _: score, reply=reader(verdict)), EvaluationRequest(**asked))


def week_end(week: int) -> datetime:
    return FIRST + timedelta(days=7 * week, hours=-1)


def kinds(done: Run) -> set[str]:
    return {item.kind for item in done.report.all_findings()}


def anchors(world: World) -> list[AnchoredAgent]:
    return load_anchors(world.root / BASELINES / FILE)


def test_a_judge_that_reads_is_checked_and_the_anchors_are_kept_with_the_golden_files(world: World) -> None:
    done = run(world, update_baseline=True, as_of=week_end(3))
    assert {path.name for path in done.baselines} == {"ann.json", "bob.json"}
    assert sum(len(item.anchors) for item in anchors(world)) == 20
    baseline = find_baseline(world.root / BASELINES, "ann")
    assert baseline is not None and len(baseline.provenance[ANCHORS]["right"]) == 20
    later = run(world, as_of=week_end(4))
    found = judge_check(later.report)
    assert (found.passed, found.asked, found.right, found.before, found.changed) == (True, 20, 20, (20, 20), False)
    assert later.report.exit_code == 0
    said = "udge checked: 20 of 20 (none labelled by people)"
    shown = (
        render_page(short_page(later.report), "table"),
        render(later.report, "html"),
        render(later.report, "markdown"),
    )
    assert all(said in text.replace("\\", "") for text in shown)


@pytest.mark.parametrize(
    ("verdict", "messages"),
    [
        (by_text, "0"),
        (by_text, "400"),
        (lambda *_: "in", "400"),
        (lambda *_: "out", "400"),
        (lambda *_: "unclear", "400"),
        (lambda agent, *_: {"ann": "in"}.get(agent, "out"), "400"),
    ],
)
def test_a_judge_that_does_not_read_decides_nothing(
    tmp_path: Path, verdict: Verdict, messages: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setenv("PERSONA_MESSAGE_VERDICTS", messages)
    world: World = request.getfixturevalue("world")
    run(world, update_baseline=True, as_of=week_end(3))
    for score in (8, 1):
        done = run(world, verdict, score, as_of=week_end(4))
        assert judge_check(done.report).passed is False
        assert done.report.exit_code == 3 and "judge_health" in kinds(done)
        assert {item.conclusion.verdict for item in done.report.agents.values()} == {Result.CANNOT_TELL}
        assert not any(item.comparison.regressed for item in done.report.agents.values())
    for path in (world.root / BASELINES).glob("*.json"):
        path.unlink()
    refused = run(world, verdict, update_baseline=True)
    assert refused.baselines == []
    shown = render_page(short_page(refused.report), "table")
    assert judge_check(refused.report).passed is not True, (
        "asked about messages out of character alone, it is not known"
    )
    if judge_check(refused.report).passed is False:
        assert "no baseline was taken: judge failed its check" in shown and "baseline --agents" not in shown


def test_a_silent_upgrade_is_found_over_runs_with_both_rates(world: World) -> None:
    run(world, update_baseline=True, as_of=week_end(2))
    FLIPPED[:] = [item.text for item in anchors(world)[0].anchors][:2]
    done = [run(world, upgraded, as_of=week_end(week)) for week in (3, 4, 5)]
    assert [judge_check(item.report).changed for item in done] == [False, False, True]
    assert [item.report.exit_code for item in done] == [0, 0, 0], "a warning fails nothing unless it is named"
    [text, _] = [item.message for item in done[-1].report.all_findings() if item.kind == "judge_changed"]
    assert "judge checked: 18 of 20 (none labelled by people); it changed: 20 of 20 before" in text
    assert run(world, upgraded, as_of=week_end(5), fail_on=["judge_changed"]).report.exit_code == 3


def test_the_same_anchors_are_asked_in_every_run(world: World) -> None:
    run(world, update_baseline=True, as_of=week_end(2))
    kept = anchors(world)
    run(world, as_of=week_end(3))
    run(world, update_baseline=True, as_of=week_end(5))
    assert anchors(world) == kept


@pytest.mark.parametrize("no_answer", [Unscored.UNRECORDED, Unscored.API_ERROR, Unscored.BUDGET])
def test_without_answers_the_judge_is_not_checked_and_nothing_changes(world: World, no_answer: Unscored) -> None:
    run(world, update_baseline=True, as_of=week_end(3))
    asked = ScriptedJudge(lambda _: 8, reply=lambda _: no_answer)
    done = run_evaluation(world, asked, EvaluationRequest(as_of=week_end(4)))
    assert (done.report.exit_code, judge_check(done.report).passed) == (0, None)
    assert "Judge not checked" in render_page(short_page(done.report), "table")


def test_a_setting_switches_the_check_off(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERSONA_ANCHORS", "0")
    get_settings.cache_clear()
    off = World(world.root, world.store)
    done = run(off, update_baseline=True)
    assert judge_check(done.report).asked == 0 and anchors(off) == []


def test_a_saved_run_says_the_same_again(world: World, tmp_path: Path) -> None:
    run(world, update_baseline=True, as_of=week_end(3))
    done = run(world, by_text, as_of=week_end(4))
    assert done.replay is not None
    save_replay(tmp_path / "run.json", done.replay())
    again = replayed(load_replay(tmp_path / "run.json"))
    assert judge_check(again.report) == judge_check(done.report)
    assert again.report.exit_code == 3


@pytest.mark.parametrize("is_recorded", [True, False])
def test_a_replay_says_what_was_recorded_of_anchors(sample_world: World, is_recorded: bool) -> None:
    for path in (sample_world.root / RECORDINGS / "messages").iterdir():
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        # An agent has ten anchors, and twice as many messages a week.
        kept = [line for line in lines if is_recorded or len(json.loads(line)["answer"]["verdicts"]) != 10]
        path.write_text("".join(kept), encoding="utf-8")
    report = run_evaluation(sample_world, open_judge("recorded", sample_world), EvaluationRequest()).report
    said = "judge checked: 20 of 20 (none labelled by people)" if is_recorded else "judge not checked"
    assert judge_check(report).text == said and report.exit_code == 1


def test_an_estimate_counts_the_calls(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    run(world, update_baseline=True, as_of=week_end(3))
    calls = estimate_run(world, EvaluationRequest(as_of=week_end(4)), count=False).judging.usage.calls
    monkeypatch.setenv("PERSONA_ANCHORS", "0")
    get_settings.cache_clear()
    off = World(world.root, world.store)
    assert calls == 2 + estimate_run(off, EvaluationRequest(as_of=week_end(4)), count=False).judging.usage.calls


def test_what_the_check_cost_is_an_expense_of_the_first_agent(world: World) -> None:
    class Paid(ScriptedJudge):
        async def ask(self, questions: Any) -> Any:
            from dataclasses import replace

            from persona_pipeline.judging.verdict import Usage

            return [replace(item, usage=Usage(calls=1, usd=0.001)) for item in await super().ask(questions)]

    run(world, update_baseline=True, as_of=week_end(3))
    done = run_evaluation(world, Paid(lambda _: 8, reply=reader(reads)), EvaluationRequest(as_of=week_end(4)))
    paid = [(item.agent_id, item.usage.calls) for item in done.report.expenses if item.mechanism == "judge_check"]
    assert paid == [("ann", 2)]
