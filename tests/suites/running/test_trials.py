from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from persona_pipeline.suites.answering.output import Output
from persona_pipeline.suites.format.models import TrialsFields
from persona_pipeline.suites.grading.results import (
    Attempt,
    Failure,
    SuiteVerdict,
    TestResult,
    reason_of,
    verdict_of,
)
from persona_pipeline.suites.running.trials import run_trials


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


def test_mean_shows_its_best_attempt() -> None:
    found = outcome(trials(3, "mean"), [1.0, 0.6, 0.2])
    assert found.score == pytest.approx(0.6)
    flakes = found.aggregation.pop("flake_rate")
    assert found.aggregation == {"strategy": "mean", "mean": pytest.approx(0.6), "min": 0.2, "max": 1.0}
    assert 0 < flakes["low"] < flakes["value"] < flakes["high"] < 1
    assert found.best.number == 0


@pytest.mark.parametrize("strategy", ["mean", "confidence_interval"])
def test_an_error_is_never_left_out_of_a_mean(strategy: str) -> None:
    found = outcome(trials(3, strategy), [1.0, None, 1.0])
    assert (found.score, found.verdict) == (None, "error")


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


ANY, ALL, MOST = {"count": 3}, {"strategy": "all"}, {"strategy": {"at_least": 3, "of": 5}}


def asked_for(count: int = 5, **fields: object) -> TrialsFields:
    return TrialsFields.model_validate({"count": count} | fields)


@pytest.mark.parametrize(
    ("fields", "scores", "score", "verdict", "made"),
    [
        (ANY, [0.2, 1.0, 0.4], 1.0, "pass", 2),
        (ANY, [0.2, 0.6, 0.4], 0.6, "borderline", 3),
        (ANY, [None, 0.8, 0.4], 0.8, "pass", 2),
        (ANY, [None, 0.6, 0.4], None, "error", 3),
        (ANY, [None, None, None], None, "error", 3),
        (ALL, [1.0, 0.9, 1.0, 0.8, 1.0], 0.8, "pass", 5),
        (ALL, [1.0, 0.4], 0.4, "fail", 2),
        (ALL, [0.7, 1.0, 1.0, 1.0, 1.0], 0.7, "borderline", 5),
        (ALL, [0.7, 0.2], 0.2, "fail", 2),
        (ALL, [1.0, None, 1.0, 1.0, 1.0], None, "error", 5),
        (ALL, [1.0, None, 0.1], 0.1, "fail", 3),
        (MOST, [1.0, 0.2, 0.9, 0.8], 0.8, "pass", 4),
        (MOST, [1.0, 1.0, 1.0], 1.0, "pass", 3),
        (MOST, [0.1, 0.2, 0.3], 0.3, "fail", 3),
        (MOST, [1.0, None, 1.0, None, 1.0], 1.0, "pass", 5),
        (MOST, [1.0, None, 1.0, None, 0.1], None, "error", 5),
        (MOST, [1.0, 0.7, 1.0, 0.7, 0.7], 0.7, "borderline", 5),
    ],
)
def test_no_more_attempts_than_can_change_the_verdict(
    fields: dict, scores: list[float | None], score: float | None, verdict: str, made: int
) -> None:
    found = outcome(asked_for(**fields), scores)
    assert (found.score, found.verdict, len(found.attempts)) == (score, verdict, made)
    assert found.aggregation is not None and found.aggregation["total_attempts"] == made
    if score is not None:
        assert found.best.score == score
    else:
        assert "cannot be told" in found.aggregation["why"]


@given(
    st.integers(1, 6).flatmap(
        lambda n: st.tuples(st.integers(1, n), st.lists(st.sampled_from([0.2, 0.7, 1.0, None]), min_size=n, max_size=n))
    )
)
def test_what_is_stopped_early_ends_as_it_would_have(case: tuple[int, list[float | None]]) -> None:
    least, scores = case
    found = outcome(asked_for(len(scores), strategy={"at_least": least, "of": len(scores)}), scores)
    # What every unjudged attempt might have been.
    ends = set()
    for instead in (0.0, 1.0):
        ends.add(verdict_of(sorted((instead if item is None else item for item in scores), reverse=True)[least - 1]))
    assert found.verdict == (ends.pop() if len(ends) == 1 else "error")


def gate_missed(at: int, scores: Sequence[float], asked: TrialsFields) -> TestResult:
    def attempt(number: int) -> Attempt:
        if number == at:
            return Attempt(number, 0.0, SuiteVerdict.FAIL, failed_gates=("polite",))
        return Attempt(number, scores[number], verdict_of(scores[number]))

    return run_trials(asked, attempt, gated=True)


@pytest.mark.parametrize(
    ("fields", "verdict", "made"),
    [
        ({"strategy": {"at_least": 2, "of": 5}}, "fail", 4),
        (ALL, "fail", 4),
        ({"strategy": "mean"}, "fail", 4),
        ({"strategy": "confidence_interval"}, "fail", 4),
        ({"strategy": "pass_at_k"}, "pass", 1),
    ],
)
def test_a_gate_holds_in_every_attempt_where_that_is_asked(fields: dict, verdict: str, made: int) -> None:
    found = gate_missed(3, [1.0] * 5, asked_for(**fields))
    assert (found.verdict, len(found.attempts)) == (verdict, made)
    if verdict == "fail":
        assert found.best.number == 3
        assert "attempt 4 missed" in reason_of(found)


@pytest.mark.parametrize("strategy", ["all", {"at_least": 2, "of": 3}])
def test_money_that_ran_out_is_no_pass(strategy: object) -> None:
    asked = asked_for(3, strategy=strategy, cost_limit_usd=0.01)
    found = outcome(asked, [1.0, 1.0, 1.0], [0.02, 0.0, 0.0])
    assert (found.verdict, found.cost_limited, found.error and found.error.reason) == ("error", True, "undecided")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"strategy": {"at_least": 4, "of": 3}}, "K is at most COUNT"),
        ({"strategy": {"at_least": 2, "of": 3}, "count": 4}, "count 4 is not the 3 of strategy"),
        ({"strategy": {"at_least": 2}}, "whole numbers"),
        ({"strategy": {"at_least": 0, "of": 3}}, "greater than or equal to 1"),
        ({"strategy": "at_least", "count": 3}, "is written as strategy"),
    ],
)
def test_trials_that_decide_nothing_are_refused(fields: dict, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        TrialsFields.model_validate(fields)
