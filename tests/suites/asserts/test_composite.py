import json
import sys
from pathlib import Path
from typing import Any

import pytest

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.judging.verdict import Unscored
from persona_pipeline.suites import UngradedError
from tests.suites.support import Services, calls, grade, judged, run, suite_of, write

YES, NO = {"type": "contains", "value": "ok", "name": "yes"}, {"type": "contains", "value": "NO", "name": "no"}
PART = {"type": "tool_trajectory", "mode": "any_order", "minimums": {"a": 1, "b": 0, "c": 0}, "name": "part"}


def composite(members: list[Any], **aggregator: Any) -> dict[str, Any]:
    return {"type": "composite", "name": "c", "assert": members, "aggregator": aggregator}


@pytest.mark.parametrize(
    ("members", "aggregator", "score", "verdict"),
    [
        ([YES, NO], {"type": "weighted_average"}, 0.5, None),
        ([YES, NO], {"type": "weighted_average", "weights": {"yes": 0.7, "no": 0.3}}, 0.7, None),
        ([YES, NO], {"type": "weighted_average", "weights": {"yes": 3}}, 0.75, None),
        ([{**YES, "weight": 3}, NO], {"type": "weighted_average"}, 0.75, None),
        ([{**YES, "weight": 3}, NO], {"type": "weighted_average", "weights": {"yes": 1}}, 0.5, None),
        ([{**NO, "required": True}, YES], {"type": "weighted_average"}, 0.0, "fail"),
        ([{**NO, "required": True}, YES], {"type": "threshold", "threshold": 0.5}, 0.0, "fail"),
        ([{**YES, "required": True}, NO], {"type": "weighted_average"}, 0.5, None),
        (
            [composite([{**NO, "required": True}, YES], type="weighted_average"), YES],
            {"type": "weighted_average"},
            0.0,
            "fail",
        ),
        ([YES, NO], {"type": "threshold", "threshold": 0.5}, 0.5, "pass"),
        ([YES, NO], {"type": "threshold", "threshold": 0.6}, 0.5, "fail"),
        ([PART, NO], {"type": "threshold", "threshold": 0.5}, 0.5, "pass"),
        ([composite([YES, NO], type="weighted_average"), YES], {"type": "weighted_average"}, 0.75, None),
    ],
)
def test_aggregators(tmp_path: Path, members: list[Any], aggregator: Any, score: float, verdict: str | None) -> None:
    found = grade(tmp_path, composite(members, **aggregator), calls(text="ok"))
    assert found.score == pytest.approx(score)
    assert found.verdict == verdict


GATE = {**NO, "required": True}


class TestAGateInside:
    """A gate is a gate wherever it stands: it brings the test to 0."""

    def test_brings_the_test_to_0_though_the_composite_is_no_gate(self, tmp_path: Path) -> None:
        suite = suite_of(tmp_path, composite([GATE, YES], type="weighted_average"), YES)
        test = run(suite, {"t": "ok"}).tests[0]
        assert (test.score, test.verdict, test.best.failed_gates) == (0.0, "fail", ("c",))
        row = test.to_dict()["results"][0]
        assert (row["score"], row["verdict"], row["failed_gates"]) == (0.0, "fail", ["no"])
        assert row["misses"] == ["[no] The answer does not contain 'NO'."]

    def test_is_named_with_the_composites_it_stands_in(self, tmp_path: Path) -> None:
        inner = {**composite([GATE], type="weighted_average"), "name": "inner"}
        found = grade(tmp_path, composite([YES, inner], type="weighted_average"), "ok")
        assert found.failed_gates == ["inner > no"]

    def test_speaks_before_what_could_not_be_judged(self, tmp_path: Path) -> None:
        broken = {"type": "code_judge", "script": ["false"], "name": "broken"}
        suite = suite_of(tmp_path, composite([broken, GATE], type="weighted_average"))
        test = run(suite, {"t": "ok"}, allow_code=True).tests[0]
        assert (test.score, test.verdict) == (0.0, "fail")
        first, second = test.best.results[0].misses
        assert first.startswith("[no]") and second.startswith("[broken] could not be judged: ")

    def test_is_part_of_what_must_not_hold(self, tmp_path: Path) -> None:
        suite = suite_of(tmp_path, {**composite([GATE, YES], type="weighted_average"), "negate": True})
        assert run(suite, {"t": "ok"}).tests[0].score == 1.0
        assert ["missed, it helps to pass" in warning.message for warning in suite.warnings] == [True]
        plain = suite_of(tmp_path, {**composite([NO, YES], type="weighted_average"), "negate": True})
        assert plain.warnings == ()

    def test_is_met_by_a_verdict_of_its_own(self, tmp_path: Path) -> None:
        half = {**composite([YES, NO], type="threshold", threshold=0.5), "required": True}
        test = run(suite_of(tmp_path, half), {"t": "ok"}).tests[0]
        assert (test.score, test.best.failed_gates) == (0.5, ())


def test_children_keep_their_results_and_prefix_their_sentences(tmp_path: Path) -> None:
    found = grade(tmp_path, composite([YES, NO], type="weighted_average", weights={"yes": 0.7, "no": 0.3}), "ok")
    assert [(child.name, child.score, child.weight) for child in found.children] == [("yes", 1, 0.7), ("no", 0, 0.3)]
    assert found.hits == ["[yes] The answer contains 'ok'."]
    assert found.misses == ["[no] The answer does not contain 'NO'."]


def test_every_member_that_cannot_be_judged_is_named_and_the_first_one_gives_the_reason(tmp_path: Path) -> None:
    members = [YES, {"type": "llm_judge", "name": "j"}, {"type": "code_judge", "name": "k", "script": ["x"]}]
    with pytest.raises(UngradedError) as caught:
        grade(tmp_path, composite(members, type="threshold", threshold=0), "ok")
    assert caught.value.reason == "unrecorded"
    assert [part[:3] for part in caught.value.message.split("; ") if part.startswith("[")] == ["[j]", "[k]"]


def test_members_nobody_named_are_numbered_and_named_ones_must_differ(tmp_path: Path) -> None:
    same = {"type": "contains", "value": "ok"}
    item = composite([same, same, NO, same], type="weighted_average", weights={"contains-ok-3": 1})
    (found,) = suite_of(tmp_path, item).tests[0].asserts
    assert [member["name"] for member in found.dump()["assert"]] == [
        "contains-ok",
        "contains-ok-2",
        "no",
        "contains-ok-3",
    ]
    assert all(member.keys() == {"name", "type", "weight", "required", "value"} for member in found.dump()["assert"])
    with pytest.raises(ConfigError, match="members 'yes' are there twice; give each its own name"):
        suite_of(tmp_path, composite([YES, NO, YES], type="weighted_average"))
    with pytest.raises(ConfigError, match=r"aggregator\.weights: there is no member 'yess'; did you mean 'yes'"):
        suite_of(tmp_path, composite([YES, NO], type="weighted_average", weights={"yess": 1}))


@pytest.mark.parametrize(
    ("members", "aggregator", "needs"),
    [
        ([YES], {"type": "weighted_average"}, (False, False)),
        ([YES, {"type": "llm_judge"}], {"type": "weighted_average"}, (True, False)),
        ([YES, {"type": "code_judge", "script": ["x"]}], {"type": "weighted_average"}, (False, True)),
        ([YES], {"type": "llm_judge"}, (True, False)),
        ([YES], {"type": "code_judge", "path": ["x"]}, (False, True)),
    ],
)
def test_it_needs_what_its_members_and_its_aggregator_need(
    tmp_path: Path, members: list[Any], aggregator: Any, needs: tuple[bool, bool]
) -> None:
    (found,) = suite_of(tmp_path, composite(members, **aggregator)).tests[0].asserts
    assert (found.needs_judge, found.needs_code) == needs


SCRIPT = """
import json, sys
results = json.load(sys.stdin)["results"]
print(json.dumps({
    "score": min(item["score"] for item in results.values()),
    "verdict": "borderline",
    "hits": ["all"],
    "misses": ["least"],
    "reasoning": "least",
    "details": {"n": len(results)},
}))
"""


@pytest.mark.parametrize(("kind", "key"), [("code_judge", "path"), ("code-judge", "script")])
def test_a_program_may_aggregate_and_its_verdict_counts(tmp_path: Path, kind: str, key: str) -> None:
    write(tmp_path, {"least.py": SCRIPT})
    item = composite([YES, NO], type=kind, **{key: f"'{sys.executable}' least.py"})
    found = grade(tmp_path, item, "ok", services=Services(allow_code=True))
    assert (found.score, found.verdict, found.reasoning, found.details) == (0, "borderline", "least", {"n": 2})
    assert (found.hits[1:], found.misses[1:]) == (["all"], ["least"])
    assert [child.name for child in found.children] == ["yes", "no"]
    with pytest.raises(UngradedError, match="code_not_allowed: the aggregator of 'c' runs code"):
        grade(tmp_path, item, "ok")


REPLY = {"reasoning": "half", "hits": [], "misses": [], "score": 0.5}


@pytest.mark.parametrize(
    ("prompt", "ask"),
    [
        (None, "Give the score"),
        ("Sum up {{EVALUATOR_RESULTS_JSON}}", 'Sum up [the field "results" of the evidence]'),
        ("./sum.md", 'Weigh [the field "results" of the evidence] by hand'),
    ],
    ids=["its own words", "a text", "a file"],
)
def test_a_judge_may_aggregate(tmp_path: Path, prompt: str | None, ask: str) -> None:
    write(tmp_path, {"sum.md": "Weigh {{ EVALUATOR_RESULTS_JSON }} by hand"})
    item = composite([YES, NO], type="llm_judge", **({} if prompt is None else {"prompt": prompt}))
    found, (question,) = judged(tmp_path, item, REPLY, "ok")
    assert (found.score, question.kind, question.label) == (0.5, "composite", "c of suite/t")
    assert question.ask.startswith(ask)
    shown = json.loads(question.evidence)
    assert (shown["question"], shown["criteria"]) == ("hi", "be good")
    assert {name: item["score"] for name, item in shown["results"].items()} == {"yes": 1, "no": 0}
    assert suite_of(tmp_path, item).warnings == ()


def test_a_judge_that_fails_to_aggregate_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UngradedError, match="timeout"):
        judged(tmp_path, composite([YES], type="llm_judge"), Unscored.TIMEOUT, "ok")
    with pytest.raises(ConfigError, match=r"aggregator: prompt: file '\./none\.md' does not exist"):
        suite_of(tmp_path, composite([YES], type="llm_judge", prompt="./none.md"))
