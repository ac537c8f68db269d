import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persona_pipeline.suites import Assert, Context, Grade, Output
from persona_pipeline.suites.asserts.base import run_assert
from persona_pipeline.suites.asserts.grades import AssertResult, Failure, SuiteVerdict, verdict_of, weighted_mean
from persona_pipeline.suites.running.scoring import score_test
from tests.suites.support import run, suite_of


def result(score: float | None, weight: float = 1.0, required: bool | float = False) -> AssertResult:
    error = Failure("timeout", "") if score is None else None
    verdict = SuiteVerdict.ERROR if score is None else verdict_of(score)
    return AssertResult("a", "x", score, weight, verdict, required, error=error)


@pytest.mark.parametrize(
    ("score", "verdict"),
    [
        (1.0, "pass"),
        (0.8, "pass"),
        (0.7999999999999999, "pass"),
        (0.8 - 1e-8, "borderline"),
        (0.6, "borderline"),
        (0.6 - 1e-12, "borderline"),
        (0.59, "fail"),
        (0.0, "fail"),
    ],
)
def test_verdicts(score: float, verdict: str) -> None:
    assert verdict_of(score) == verdict


@pytest.mark.parametrize(
    ("results", "score", "verdict"),
    [
        ([result(1, 3), result(0, 1)], 0.75, "borderline"),
        ([result(1), result(0.8), result(0.6)], 0.8, "pass"),
        ([result(1, 0), result(0, 0)], 0, "fail"),
        ([result(0.79, required=True), result(1)], 0, "fail"),
        ([result(0.8, required=True), result(1)], 0.9, "pass"),
        ([result(0.8 - 1e-12, required=True)], 0.8, "pass"),
        ([result(0.6, required=0.6)], 0.6, "borderline"),
        ([result(0.5, required=0.6), result(1)], 0, "fail"),
        ([result(0, 0, required=True), result(1)], 0, "fail"),
        ([result(0.9, required=1.0)], 0, "fail"),
        ([result(None), result(1)], None, "error"),
        ([result(None, 0), result(1)], None, "error"),
        ([result(None, required=True), result(1)], None, "error"),
        ([result(None), result(0, required=True)], None, "error"),
        ([], None, "error"),
    ],
    ids=[
        "weighted mean",
        "binary fractions that make 0.8",
        "no weight at all",
        "a gate just missed",
        "a gate just reached",
        "a gate reached within the tolerance",
        "a gate of its own threshold, reached",
        "a gate of its own threshold, missed",
        "weight 0 does not disarm a gate",
        "a gate of 1",
        "an error is never left out",
        "an error without weight is an error",
        "an error at a gate is an error",
        "a failed gate does not hide an error",
        "nothing to score",
    ],
)
def test_a_tests_score(results: list[AssertResult], score: float | None, verdict: str) -> None:
    found = score_test(results)
    assert found.score == (None if score is None else pytest.approx(score, abs=1e-12))
    assert found.verdict == verdict


SCORES = st.lists(st.tuples(st.floats(0, 1), st.floats(0.001, 100)), min_size=1, max_size=20)


@given(SCORES)
def test_the_mean_lies_between_the_least_and_the_greatest(pairs: list[tuple[float, float]]) -> None:
    mean = weighted_mean(pairs)
    scores = [score for score, _ in pairs]
    assert min(scores) - 1e-9 <= mean <= max(scores) + 1e-9


@given(SCORES, st.data())
def test_raising_one_score_never_lowers_the_mean(pairs: list[tuple[float, float]], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(pairs) - 1))
    raised = list(pairs)
    raised[index] = (1.0, pairs[index][1])
    assert weighted_mean(raised) >= weighted_mean(pairs) - 1e-9


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6), st.data())
def test_losing_a_score_never_makes_a_test_pass(scores: list[float], data: st.DataObject) -> None:
    results = [result(score) for score in scores]
    lost = data.draw(st.integers(0, len(scores) - 1))
    results[lost] = result(None)
    assert score_test(results).verdict is SuiteVerdict.ERROR


class Raises(Assert):
    def grade(self, output: Output, context: Context) -> Grade:
        raise ZeroDivisionError("division by zero")


class Says(Assert):
    score: float

    def grade(self, output: Output, context: Context) -> Grade:
        return Grade(self.score)


def graded(folder: Path, item: Assert) -> AssertResult:
    suite = suite_of(folder, {"type": "is_json"})
    return run_assert(item, Output(), Context(suite, suite.tests[0]))


@pytest.mark.parametrize("negate", [False, True])
def test_a_crash_is_an_error_also_when_it_is_negated(tmp_path: Path, negate: bool) -> None:
    found = graded(tmp_path, Raises(type="raises", name="r", negate=negate))
    assert (found.score, found.verdict) == (None, "error")
    assert found.error == Failure("crashed", "ZeroDivisionError: division by zero")


@pytest.mark.parametrize("score", [math.nan, math.inf, 1.1, -0.1])
def test_a_score_outside_0_to_1_is_an_error(tmp_path: Path, score: float) -> None:
    found = graded(
        tmp_path, Says.model_construct(type="says", name="s", score=score, weight=1.0, required=False, negate=False)
    )
    assert found.error is not None
    assert found.error.reason == "invalid_score"


class Counts(Assert):
    def grade(self, output: Output, context: Context) -> Grade:
        return Grade(1.0, details={"mean": math.nan})


def test_details_that_are_no_json_are_an_error(tmp_path: Path) -> None:
    found = graded(tmp_path, Counts(type="counts", name="c"))
    assert found.error is not None
    assert found.error.reason == "crashed"


@pytest.mark.parametrize(
    ("answer", "item", "score", "verdict"),
    [
        ("x", {"type": "contains", "value": "x", "negate": True}, 0, "fail"),
        ("y", {"type": "contains", "value": "x", "negate": True}, 1, "pass"),
        ("y", {"type": "contains", "value": "x", "negate": True, "required": True}, 1, "pass"),
    ],
)
def test_negation(tmp_path: Path, answer: str, item: dict[str, Any], score: float, verdict: str) -> None:
    (test,) = run(suite_of(tmp_path, item), {"t": answer}).tests
    assert (test.score, test.verdict) == (score, verdict)


def test_results_round_trip_through_json() -> None:
    child = result(0.5, 2.0)
    whole = AssertResult("a", "x", 0.25, 1.0, SuiteVerdict.FAIL, 0.3, ("h",), ("m",), "r", {"n": 1}, (child,))
    assert AssertResult.from_dict(whole.to_dict()) == whole
    assert AssertResult.from_dict(result(None).to_dict()) == result(None)
