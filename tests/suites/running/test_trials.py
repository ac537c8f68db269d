from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persona_pipeline.suites.answering.output import Output
from persona_pipeline.suites.format.models import TrialsFields
from persona_pipeline.suites.grading.results import Attempt, Failure, SuiteVerdict, TestResult, verdict_of
from persona_pipeline.suites.running.cells import run_trials


def trials(count: int, strategy: str = "pass_at_k", limit: float | None = None) -> TrialsFields:
    return TrialsFields(count=count, strategy=strategy, cost_limit_usd=limit)


def outcome(asked: TrialsFields, scores: Sequence[float | None], costs: Sequence[float | None] = ()) -> TestResult:
    def attempt(number: int) -> Attempt:
        score = scores[number]
        output = Output(cost_usd=costs[number] if costs else None)
        if score is None:
            return Attempt(number, None, SuiteVerdict.ERROR, error=Failure("timeout", ""))
        return Attempt(number, score, verdict_of(score), output=output)

    return run_trials(asked, attempt)


@pytest.mark.parametrize(
    ("scores", "score", "verdict", "made"),
    [
        ([0.2, 1.0, 0.4], 1.0, "pass", 2),
        ([0.2, 0.6, 0.4], 0.6, "borderline", 3),
        ([None, 0.8, 0.4], 0.8, "pass", 2),
        ([None, 0.6, 0.4], None, "error", 3),
        ([None, None, None], None, "error", 3),
    ],
    ids=[
        "stops at the first pass",
        "takes the best",
        "a pass decides",
        "an error might have been the pass",
        "all errors",
    ],
)
def test_pass_at_k(scores: list[float | None], score: float | None, verdict: str, made: int) -> None:
    found = outcome(trials(3), scores)
    assert (found.score, found.verdict, len(found.attempts)) == (score, verdict, made)
    assert found.aggregation["total_attempts"] == made


def test_mean_shows_its_best_attempt() -> None:
    found = outcome(trials(3, "mean"), [1.0, 0.6, 0.2])
    assert found.score == pytest.approx(0.6)
    assert found.aggregation == {"strategy": "mean", "mean": pytest.approx(0.6), "min": 0.2, "max": 1.0}
    assert found.best.number == 0


@pytest.mark.parametrize("strategy", ["mean", "confidence_interval"])
def test_an_error_is_never_left_out_of_a_mean(strategy: str) -> None:
    found = outcome(trials(3, strategy), [1.0, None, 1.0])
    assert (found.score, found.verdict) == (None, "error")


@pytest.mark.parametrize(
    ("scores", "lower", "upper"),
    [
        ([1.0, 0.8, 0.6], 0.30313235833540797, 1.0),
        ([0.8, 0.8, 0.8, 0.8], 0.8, 0.8),
        ([1.0, 0.8], 0.0, 1.0),
    ],
)
def test_the_lower_end_of_the_interval_is_the_score(scores: list[float], lower: float, upper: float) -> None:
    found = outcome(trials(len(scores), "confidence_interval"), scores)
    assert found.score == pytest.approx(lower, abs=1e-12)
    assert found.aggregation["ci95_upper"] == pytest.approx(upper)


def test_one_attempt_has_no_interval() -> None:
    assert outcome(trials(1, "confidence_interval"), [0.9]).score == pytest.approx(0.9)


def test_the_cost_limit_ends_the_attempts() -> None:
    found = outcome(trials(4, "mean", 0.1), [0.5, 0.5, 0.5, 0.5], [0.06, 0.06, 0.06, 0.06])
    assert (len(found.attempts), found.cost_limited) == (2, True)


def test_an_unknown_cost_is_said_and_not_taken_for_nothing() -> None:
    found = outcome(trials(2, "mean", 0.1), [0.5, 0.5])
    assert (len(found.attempts), found.cost_limited, len(found.notes)) == (2, False, 1)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=10))
def test_an_interval_holds_its_mean_and_stays_within_0_and_1(scores: list[float]) -> None:
    aggregation = outcome(trials(len(scores), "confidence_interval"), scores).aggregation
    assert -1e-9 <= aggregation["ci95_lower"] <= aggregation["mean"] + 1e-9
    assert aggregation["mean"] <= aggregation["ci95_upper"] + 1e-9 <= 1 + 2e-9
