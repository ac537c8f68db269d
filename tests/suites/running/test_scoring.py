"""A test's score from its asserts: gates first, then the weighted mean."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persona_pipeline.suites.grading.base import score_test
from persona_pipeline.suites.grading.results import AssertResult, SuiteVerdict
from tests.suites.support import assert_result as result

SCORES: dict[str, tuple[list[AssertResult], float | None, str]] = {
    "weighted mean": ([result(1, 3), result(0, 1)], 0.75, "borderline"),
    "binary fractions that make 0.8": ([result(1), result(0.8), result(0.6)], 0.8, "pass"),
    "no weight at all": ([result(1, 0), result(0, 0)], 0, "fail"),
    "a gate just missed": ([result(0.79, required=True), result(1)], 0, "fail"),
    "a gate just reached": ([result(0.8, required=True), result(1)], 0.9, "pass"),
    "a gate reached within the tolerance": ([result(0.8 - 1e-12, required=True)], 0.8, "pass"),
    "a gate of its own threshold, reached": ([result(0.6, required=0.6)], 0.6, "borderline"),
    "a gate of its own threshold, missed": ([result(0.5, required=0.6), result(1)], 0, "fail"),
    "weight 0 does not disarm a gate": ([result(0, 0, required=True), result(1)], 0, "fail"),
    "a gate of 1": ([result(0.9, required=1.0)], 0, "fail"),
    "an error is never left out": ([result(None), result(1)], None, "error"),
    "an error without weight is an error": ([result(None, 0), result(1)], None, "error"),
    "an error at a gate is an error": ([result(None, required=True), result(1)], None, "error"),
    "a failed gate beside an error": ([result(None), result(0, required=True)], 0, "fail"),
    "nothing to score": ([], None, "error"),
}


@pytest.mark.parametrize("name", SCORES)
def test_a_tests_score(name: str) -> None:
    results, score, verdict = SCORES[name]
    found = score_test(results)
    assert found.score == (None if score is None else pytest.approx(score, abs=1e-12))
    assert found.verdict == verdict


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6), st.data())
def test_losing_a_score_never_makes_a_test_pass(scores: list[float], data: st.DataObject) -> None:
    results = [result(score) for score in scores]
    lost = data.draw(st.integers(0, len(scores) - 1))
    results[lost] = result(None)
    assert score_test(results).verdict is SuiteVerdict.ERROR
