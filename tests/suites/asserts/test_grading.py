"""One assert graded: verdicts, negation, what goes wrong, and weighted means."""

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persona_pipeline.suites import Assert, Context, Grade, Output
from persona_pipeline.suites.grading.base import run_assert
from persona_pipeline.suites.grading.results import (
    TOLERANCE,
    AssertResult,
    Failure,
    SuiteVerdict,
    verdict_of,
    weighted_mean,
)
from tests.suites.support import assert_result as result
from tests.suites.support import run, suite_of


@pytest.mark.parametrize(
    ("score", "verdict"),
    [
        (1.0, "pass"),
        (0.8, "pass"),
        (0.7999999999999999, "pass"),
        (0.8 - TOLERANCE, "pass"),
        (0.8 - 1e-8, "borderline"),
        (0.6, "borderline"),
        (0.6 - 1e-12, "borderline"),
        (0.59, "fail"),
        (0.0, "fail"),
    ],
)
def test_verdicts(score: float, verdict: str) -> None:
    assert verdict_of(score) == verdict


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
    assert found.error == Failure("invalid_score", f"the score {score!r} is not a number from 0 to 1")


@pytest.mark.parametrize(("score", "kept"), [(1 + TOLERANCE, 1.0), (-TOLERANCE, 0.0), (0.25, 0.25)])
def test_what_rounding_puts_outside_0_to_1_is_put_back(tmp_path: Path, score: float, kept: float) -> None:
    assert graded(tmp_path, Says(type="says", name="s", score=score)).score == kept


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
    assert (whole.to_dict()["required"], "required" in child.to_dict()) == (0.3, False)


def test_a_failure_says_its_reason_and_what_to_do() -> None:
    assert (str(Failure("timeout", "try again")), str(Failure("timeout", ""))) == ("timeout: try again", "timeout")
