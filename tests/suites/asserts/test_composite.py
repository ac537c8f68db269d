import sys
from pathlib import Path
from typing import Any

import pytest

from persona_pipeline.errors import ConfigError
from persona_pipeline.judging.verdict import Unscored
from persona_pipeline.suites import UngradedError
from persona_pipeline.suites.asserts.grades import Grade
from tests.suites.support import Services, grade, judging, run, suite_of, write

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
        ([{**YES, "weight": 100}, NO], {"type": "weighted_average"}, 0.5, None),
        ([{**NO, "required": True}, YES], {"type": "weighted_average"}, 0.5, None),
        ([YES], {"type": "weighted_average", "weights": {"yes": 0}}, 0, None),
        ([YES, NO], {"type": "threshold", "threshold": 0.5}, 0.5, "pass"),
        ([YES, NO], {"type": "threshold", "threshold": 0.6}, 0.5, "fail"),
        ([PART, NO], {"type": "threshold", "threshold": 0.5}, 0.5, "pass"),
        ([composite([YES, NO], type="weighted_average"), YES], {"type": "weighted_average"}, 0.75, None),
    ],
    ids=[
        "plain mean",
        "weights by name",
        "a member without a weight counts 1",
        "members' own weights are not used",
        "members' own gates are not used",
        "no weight at all",
        "threshold reached",
        "threshold missed",
        "borderline is good enough for a threshold",
        "nested",
    ],
)
def test_aggregators(tmp_path: Path, members: list[Any], aggregator: Any, score: float, verdict: str | None) -> None:
    found = grade(tmp_path, composite(members, **aggregator), "ok")
    assert found.score == pytest.approx(score)
    assert found.verdict == verdict


def test_children_keep_their_results_and_prefix_their_sentences(tmp_path: Path) -> None:
    found = grade(tmp_path, composite([YES, NO], type="weighted_average", weights={"yes": 0.7, "no": 0.3}), "ok")
    assert [(child.name, child.score, child.weight) for child in found.children] == [("yes", 1, 0.7), ("no", 0, 0.3)]
    assert found.hits[0].startswith("[yes] ")
    assert found.misses[0].startswith("[no] ")


def test_an_older_name_for_members(tmp_path: Path) -> None:
    item = {"type": "composite", "evaluators": [YES], "aggregator": {"type": "weighted-average"}}
    assert grade(tmp_path, item, "ok").score == 1


def test_a_member_that_cannot_be_judged_makes_the_composite_an_error(tmp_path: Path) -> None:
    suite = suite_of(tmp_path, composite([YES, {"type": "llm_judge", "name": "j"}], type="weighted_average"))
    (test,) = run(suite, {"t": "ok"}).tests
    assert (test.score, test.verdict, test.error and test.error.reason) == (None, "error", "unrecorded")
    assert "[j]" in str(test.error)


SCRIPT = """
import json, sys
results = json.load(sys.stdin)["results"]
print(json.dumps({"score": min(item["score"] for item in results.values()), "verdict": "borderline"}))
"""


def test_a_program_may_aggregate_and_its_verdict_counts(tmp_path: Path) -> None:
    write(tmp_path, {"least.py": SCRIPT})
    item = composite([YES, NO], type="code_judge", path=f"'{sys.executable}' least.py")
    found = grade(tmp_path, item, "ok", services=Services(allow_code=True))
    assert (found.score, found.verdict) == (0, "borderline")
    with pytest.raises(UngradedError, match="code_not_allowed"):
        grade(tmp_path, item, "ok")


def test_a_judge_may_aggregate(tmp_path: Path) -> None:
    item = composite([YES, NO], type="llm_judge", prompt="Sum up {{EVALUATOR_RESULTS_JSON}}")
    reply = {"reasoning": "half", "hits": [], "misses": [], "score": 0.5}
    with judging(lambda question: reply) as (services, judge):
        assert grade(tmp_path, item, "ok", services=services).score == 0.5
    (question,) = judge.backend.asked
    assert question.kind == "composite"
    assert '[the field "results" of the evidence]' in question.ask
    assert '"yes":' in question.evidence


def test_the_prompt_of_a_judge_that_aggregates_may_be_a_file(tmp_path: Path) -> None:
    write(tmp_path, {"sum.md": "Weigh {{ EVALUATOR_RESULTS_JSON }} by hand"})
    reply = {"reasoning": "half", "hits": [], "misses": [], "score": 0.5}
    with judging(lambda question: reply) as (services, judge):
        grade(tmp_path, composite([YES], type="llm_judge", prompt="./sum.md"), "ok", services=services)
    assert judge.backend.asked[0].ask == 'Weigh [the field "results" of the evidence] by hand'
    assert suite_of(tmp_path, composite([YES], type="llm_judge", prompt="./sum.md")).warnings == ()
    with pytest.raises(ConfigError, match=r"aggregator: prompt: file '\./none\.md' does not exist"):
        suite_of(tmp_path, composite([YES], type="llm_judge", prompt="./none.md"))


def test_a_judge_that_fails_to_aggregate_is_an_error(tmp_path: Path) -> None:
    with (
        judging(lambda question: Unscored.TIMEOUT) as (services, _),
        pytest.raises(UngradedError, match="timeout"),
    ):
        grade(tmp_path, composite([YES], type="llm_judge"), "ok", services=services)


def test_negating_a_composite_turns_its_verdict_round() -> None:
    turned = Grade(0.25, ["h"], ["m"]).negated()
    assert (turned.score, turned.verdict, turned.hits, turned.misses) == (0.75, "pass", ["m"], ["h"])
