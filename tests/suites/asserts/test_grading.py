"""One assert graded: verdicts, negation, what goes wrong, and weighted means."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given as drawn
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


@drawn(SCORES)
def test_the_mean_lies_between_the_least_and_the_greatest(pairs: list[tuple[float, float]]) -> None:
    mean = weighted_mean(pairs)
    scores = [score for score, _ in pairs]
    assert min(scores) - 1e-9 <= mean <= max(scores) + 1e-9


@drawn(SCORES, st.data())
def test_raising_one_score_never_lowers_the_mean(pairs: list[tuple[float, float]], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(pairs) - 1))
    raised = list(pairs)
    raised[index] = (1.0, pairs[index][1])
    assert weighted_mean(raised) >= weighted_mean(pairs) - 1e-9


class Gives(Assert):
    given: Callable[[], Any]

    def grade(self, output: Output, context: Context) -> Grade:
        return self.given()


@pytest.mark.parametrize("negate", [False, True])
@pytest.mark.parametrize(
    ("given", "score", "said"),
    [
        (lambda: 1 / 0, None, "crashed: ZeroDivisionError: division by zero"),
        (lambda: Grade(math.nan), None, "invalid_score: the score nan is not a number from 0 to 1"),
        (lambda: Grade(math.inf), None, "invalid_score"),
        (lambda: Grade(1.1), None, "invalid_score"),
        (lambda: Grade(-0.1), None, "invalid_score"),
        (lambda: Grade(1.0, details={"mean": math.nan}), None, "crashed: ValueError"),
        # What rounding puts outside 0 to 1 is put back.
        (lambda: Grade(1 + TOLERANCE), 1.0, ""),
        (lambda: Grade(-TOLERANCE), 0.0, ""),
        (lambda: Grade(0.25), 0.25, ""),
    ],
)
def test_only_a_score_from_0_to_1_is_one(
    tmp_path: Path, given: Callable[[], Any], score: float | None, said: str, negate: bool
) -> None:
    suite = suite_of(tmp_path, {"type": "is_json"})
    item = Gives(type="gives", name="g", given=given, negate=negate)
    found = run_assert(item, Output(), Context(suite, suite.tests[0]))
    assert found.score == (score if score is None or not negate else 1 - score)
    assert (found.verdict == "error", bool(found.error)) == (score is None, score is None)
    assert found.error is None or str(found.error).startswith(said)


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
