"""What made an agent's scores fall, on real repositories; 300 of them are benchmarks/versions.py bisect."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.versions import AGENT, History, generate, judged, plant
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.evaluation.run import run_evaluation
from persona_pipeline.judging.verdict import JudgeRequest, Usage, Verdict
from persona_pipeline.lab.bisect.bisect import (
    BisectRequest,
    Interval,
    bisect_commits,
    bisect_evaluations,
    find_step,
    has_messages,
)
from persona_pipeline.lab.bisect.causes import changed_places
from persona_pipeline.lab.results import Bisection, CauseKind
from persona_pipeline.testing import ScriptedJudge
from persona_pipeline.world import World
from persona_pipeline.world.messages.files import parse_time

ALL = BisectRequest(AGENT, window="all")


@pytest.mark.parametrize(
    ("scores", "found"),
    [
        ([8, 8, 8, 3, 3], Interval(2, 3)),
        ([8, 3], Interval(0, 1)),
        ([8, None, 8, None, 3, None, 3], Interval(2, 4, (3,))),
        ([8, None, None, 3], Interval(0, 3, (1, 2))),
        ([8, 8, None, 8, 8, 8, 3, None, 3], Interval(5, 6)),
    ],
)
def test_search_by_halves_passes_over_what_has_no_score(scores: list[float | None], found: Interval) -> None:
    assert find_step(scores.__getitem__, 0, len(scores) - 1) == found


def test_halving_looks_at_few_points() -> None:
    looked = set()

    def value(place: int) -> float:
        looked.add(place)
        return 8.0 if place < 300 else 3.0

    assert find_step(value, 0, 1000) == Interval(299, 300)
    assert len(looked) <= 14


def test_places_that_changed_are_named_by_their_line() -> None:
    found = changed_places("p.yaml", "a\nb\nc\nd\n", "a\nB\nc\nd\ne\n")
    assert found == [("p.yaml:2", ["- b", "+ B"]), ("p.yaml:5", ["+ e"])]


# Each cause, and each way to stand beside something else.
@pytest.mark.parametrize("seed", [0, 5, 10, 3, 9])
def test_planted_cause_is_named_or_said_to_be_unknown(tmp_path: Path, seed: int) -> None:
    planted, _ = generate(tmp_path, seed, most=2)
    found, _ = bisect_commits(World.open(tmp_path), ALL)
    assert judged(found, planted) in (("named",) if planted.tellable else ("named", "said that it cannot be told"))
    assert found.calls == 0
    assert found.exit_code == (0 if found.falls[0].cause else 3)


def together(tmp_path: Path) -> History:
    """A persona that forgets, and a plain message beside it, in one commit."""
    history = History(tmp_path, random.Random(0))
    history.commit("Begin")
    plant(history, CauseKind.PERSONA, "together")
    return history


def test_a_live_judge_tells_what_the_recordings_do_not(tmp_path: Path) -> None:
    history = together(tmp_path)
    silent, missing = bisect_commits(World.open(tmp_path), ALL)
    assert silent.falls[0].candidates == (CauseKind.MESSAGES, CauseKind.PERSONA)
    assert silent.missing == len(missing) > 0
    told = {request.key for request in missing}

    def answer(request: JudgeRequest) -> Verdict:
        said = history.verdict(request)
        return Verdict(said.proposition_id, score=said.score, model="judge-1", usage=Usage(calls=1, usd=0.01))

    judge = ScriptedJudge(answer, live=True)
    found, _ = bisect_commits(World.open(tmp_path), ALL, judge)
    cause = found.falls[0].cause
    assert cause is not None and cause.kind is CauseKind.PERSONA
    assert {request.key for request in judge.asked} <= told
    assert found.calls == len(judge.asked)
    assert found.usd == pytest.approx(0.01 * found.calls)


def test_another_model_is_no_witness(tmp_path: Path) -> None:
    history = together(tmp_path)
    judge = ScriptedJudge(
        lambda request: Verdict(request.proposition_id, score=history.verdict(request).score, model="judge-9"),
        live=True,
    )
    found, _ = bisect_commits(World.open(tmp_path), ALL, judge)
    assert found.falls[0].cause is None


def test_all_changed_places_of_a_persona_are_shown(tmp_path: Path) -> None:
    history = History(tmp_path, random.Random(1))
    history.commit("Begin")
    history.persona[1] = "Ann cares about tea."
    history.persona[6] = "Ann FORGETS who she is."
    history.commit("Two places")
    found, _ = bisect_commits(World.open(tmp_path), ALL)
    cause = found.falls[0].cause
    assert cause is not None and cause.what == (f"personas/{AGENT}.yaml:4", f"personas/{AGENT}.yaml:9")
    assert "+ Ann FORGETS who she is." in " ".join(" ".join(cause.evidence).split())


def test_commits_without_judgments_are_passed_over_and_named(tmp_path: Path) -> None:
    history = History(tmp_path, random.Random(2))
    history.commit("Begin")
    history.persona[5] = "Ann FORGETS who she is."
    history.write()
    history.git("add", "-A")
    history.git("commit", "-q", "-m", "Edited, not recorded")
    history.salt += 1
    history.commit("Recorded")
    found, _ = bisect_commits(World.open(tmp_path), ALL)
    fall = found.falls[0]
    # What was recorded later is of the same question.
    assert fall.first_bad is not None and fall.first_bad.subject == "Edited, not recorded"
    assert fall.cause is not None and fall.cause.kind is CauseKind.PERSONA


def test_nothing_fell(tmp_path: Path) -> None:
    history = History(tmp_path, random.Random(3))
    history.commit("Begin")
    history.commit(history.harmless())
    found, _ = bisect_commits(World.open(tmp_path), ALL)
    assert (found.falls, found.exit_code) == ((), 0)
    with pytest.raises(ConfigError):
        bisect_commits(World.open(tmp_path), BisectRequest("nobody"))


def evaluated(world: World, history: History, as_of: str) -> None:
    judge = ScriptedJudge(history.verdict)
    request = EvaluationRequest(agents=[AGENT], window="1d", as_of=parse_time(as_of, name="as-of"), confirm=False)
    run_evaluation(world, judge, request)


def stored(tmp_path: Path, change: Callable[[History], None]) -> tuple[World, History]:
    """Two days that are evaluated into the store, with something changed between them; messages are in no commit."""
    history = History(tmp_path, random.Random(4))
    (tmp_path / ".gitignore").write_text("messages\nrecordings\n.persona\n", "utf-8")
    history.commit("Begin")
    world = World.open(tmp_path)
    evaluated(world, history, "2026-03-02T12:00:00Z")
    change(history)
    for number in range(4):
        name = history.say(f"Plain line {number} of the next day.")
        history.said[-1]["created_at"] = f"2026-03-03T09:0{number}:00+00:00"
        assert name
    history.commit("Change")
    world.sync()
    evaluated(world, history, "2026-03-03T12:00:00Z")
    return world, history


def forget(history: History) -> None:
    history.persona[5] = "Ann FORGETS who she is."


def speak(history: History) -> None:
    history.say("A FOREIGN line.")
    history.said[-1]["created_at"] = "2026-03-03T08:00:00+00:00"


def by_evaluations(world: World, judge: ScriptedJudge | None = None) -> Bisection:
    return bisect_evaluations(world, ALL, judge)[0]


def test_stored_evaluations_name_messages_where_nothing_else_changed(tmp_path: Path) -> None:
    world, _ = stored(tmp_path, speak)
    assert not has_messages(world, "HEAD")
    cause = by_evaluations(world).falls[0].cause
    assert cause is not None and cause.kind is CauseKind.MESSAGES
    assert cause.what[0].startswith("m")


def test_stored_evaluations_say_what_changed_together_and_a_live_judge_tells(tmp_path: Path) -> None:
    world, history = stored(tmp_path, forget)
    found = by_evaluations(world)
    assert found.falls[0].cause is None
    assert found.falls[0].candidates == (CauseKind.MESSAGES, CauseKind.PERSONA)
    assert found.missing
    cause = by_evaluations(world, ScriptedJudge(history.verdict, live=True)).falls[0].cause
    assert cause is not None and cause.kind is CauseKind.PERSONA
    assert cause.what == (f"personas/{AGENT}.yaml:8",)
