"""What Python's users pass where a world and a judge are asked for: folders, functions, judges of their own that fail."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import persona_pipeline as pp
from persona_pipeline.testing import ScriptedJudge, WorldBuilder


@pytest.fixture
def world(tmp_path: Path) -> pp.World:
    builder = WorldBuilder(tmp_path).persona("ann", "Ann is dry.").say("ann", "Hm.")
    return builder.claim("adherence", "dry", "Ann is dry").claim("adherence", "wet", "Ann is wet").open()


def claims(world: Any, judge: Any) -> dict[str, Any]:
    """Return what came of each claim: its score, or why there is none."""
    found = pp.evaluate(world, judge=judge, dimensions="adherence").agents["ann"].evaluation.dimensions["adherence"]
    rows = {name: row for name, row in found.propositions.items() if not row.algorithmic}
    return {name: row.unscored if row.score is None else row.score for name, row in rows.items()}


def test_a_folder_is_a_world_wherever_one_is_asked_for(world: pp.World) -> None:
    judge = ScriptedJudge(lambda request: 7)
    for given in (world.root, str(world.root)):
        assert claims(given, judge) == {"dry": 7, "wet": 7}
        assert pp.estimate(given).judging.usage.calls == 2
        assert pp.load_baseline(given, "ann") is None
        assert pp.open_judge(given).name == "recorded"
        assert pp.open_gate(given, backend=judge).world.root == world.root
    suite = pp.make_suite("s", [pp.Test(input="x", asserts=[lambda answer: answer == "hi"])])
    assert pp.run_suite(suite, targets=lambda prompt: "hi", world=str(world.root)).result == "held"


def test_what_is_no_world_says_so(tmp_path: Path) -> None:
    with pytest.raises(pp.ConfigError, match="personas"):
        pp.evaluate(tmp_path / "nowhere")


async def later(request: pp.JudgeRequest) -> pp.Verdict:
    return pp.Verdict(request.proposition_id, score=6)


def refused(request: pp.JudgeRequest) -> pp.Verdict:
    return pp.Verdict(request.proposition_id, unscored=pp.Unscored.REFUSAL)


@pytest.mark.parametrize(
    ("judge", "found"),
    [
        (lambda request: 8 if "dry" in request.claim else 2, {"dry": 8, "wet": 2}),
        (later, {"dry": 6, "wet": 6}),
        (refused, {"dry": "refusal", "wet": "refusal"}),
        (lambda request: 7.5, {"dry": "invalid_output", "wet": "invalid_output"}),
        (lambda request: True, {"dry": "invalid_output", "wet": "invalid_output"}),
        (lambda request: 1 // 0 if "wet" in request.claim else 8, {"dry": 8, "wet": "api_error"}),
    ],
)
def test_a_function_judges(world: pp.World, judge: Callable[[pp.JudgeRequest], Any], found: dict[str, Any]) -> None:
    assert claims(world, judge) == found


class Own:
    """A judge that returns or raises what it is made with, and says nothing else of itself unless it is told to."""

    name: str
    notes: tuple[str, ...]

    def __init__(self, said: Callable[[Sequence[pp.JudgeRequest]], list[pp.Verdict]]) -> None:
        self.said = said

    async def judge(self, requests: Sequence[pp.JudgeRequest]) -> list[pp.Verdict]:
        return self.said(requests)


def test_what_a_judge_of_ones_own_says_of_itself_is_in_the_report(world: pp.World) -> None:
    judge = Own(lambda requests: [pp.Verdict(each.proposition_id, score=5) for each in requests])
    judge.name, judge.notes = "ours", ("answers from a table",)
    provenance = pp.evaluate(world, judge=judge, dimensions="adherence").report.provenance
    assert (provenance["judge"], provenance["judge_notes"]) == ("ours", ["answers from a table"])


def fail(_: object) -> list[pp.Verdict]:
    raise ConnectionError("no route")


def test_a_judge_that_raises_leaves_its_requests_unscored_with_the_reason(world: pp.World) -> None:
    found = pp.evaluate(world, judge=Own(fail), dimensions="adherence")
    frame = found.to_frame("claim").set_index("claim_id")
    row = found.agents["ann"].evaluation.dimensions["adherence"].propositions["dry"]
    assert (row.unscored, row.detail) == ("api_error", "Own: ConnectionError: no route")
    assert frame.loc["dry", "unscored"] == "api_error" and found.conclusion.verdict == "cannot_tell"


@pytest.mark.parametrize("count", [0, 1, 3])
def test_verdicts_that_are_not_one_a_request_are_an_error_by_name(world: pp.World, count: int) -> None:
    judge = Own(lambda requests: [pp.Verdict("dry", score=5)] * count)
    with pytest.raises(pp.ConfigError, match=rf"judge 'Own' returned {count} verdicts for 2 requests; return one"):
        claims(world, judge)


def test_functions_by_name_all_answer(world: pp.World) -> None:
    functions = {"one": lambda prompt: "hi", "two": lambda prompt: "hello"}
    suite = pp.make_suite("s", [pp.Test(input="x", asserts=[lambda answer: answer == "hi"])])
    run = pp.run_suite(suite, targets=functions)
    assert {test.target: test.verdict.value for test in run.tests} == {"one": "pass", "two": "fail"}
    only = pp.run_suite(suite, targets=functions, target="two")
    assert [test.target for test in only.tests] == ["two"]


def test_a_function_that_plays_the_user_answers_no_test() -> None:
    test = pp.Test(input="x", user={"target": "asker", "goal": "tea", "turns": 1}, asserts=[lambda answer: True])
    functions = {"agent": lambda messages: "Tea.", "asker": lambda messages: "Tea?"}
    run = pp.run_suite(pp.make_suite("s", [test]), targets=functions)
    assert [test.target for test in run.tests] == ["agent"]
