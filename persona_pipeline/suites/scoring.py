"""From asserts to a test's score: gates first, then the weighted mean (spec/4)."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from persona_pipeline.errors import ConfigError
from persona_pipeline.suites.grades import (
    TOLERANCE,
    AssertResult,
    Failure,
    SuiteVerdict,
    UngradedError,
    verdict_of,
)

if TYPE_CHECKING:
    from persona_pipeline.suites.asserts.base import Assert
    from persona_pipeline.suites.context import Context
    from persona_pipeline.suites.output import Output


@dataclass(frozen=True)
class TestScore:
    """A test's score (None for an error) and verdict; ``failed_gates`` names the gates that brought it to 0."""

    __test__ = False

    score: float | None
    verdict: SuiteVerdict
    failed_gates: tuple[str, ...] = ()
    n_scored: int = 0
    n_expected: int = 0


def weighted_mean(pairs: Iterable[tuple[float, float]]) -> float:
    """Return sum(score * weight) / sum(weight) of (score, weight) pairs, 0 when the weights add up to 0."""
    total = weights = 0.0
    for score, weight in pairs:
        total += score * weight
        weights += weight
    return total / weights if weights else 0.0


def score_test(results: Sequence[AssertResult]) -> TestScore:
    """Return a test's score from its asserts.

    An assert without a score makes the test an error: a number without it would be a guess. A gate below its threshold makes the
    score 0. Otherwise the score is the weighted mean.
    """
    scored = [(item.score, item.weight) for item in results if item.score is not None]
    n_scored, n_expected = len(scored), len(results)
    if n_scored < n_expected or not results:
        return TestScore(None, SuiteVerdict.ERROR, (), n_scored, n_expected)
    gates = tuple(item.name for item in results if item.gate_failed)
    if gates:
        return TestScore(0.0, SuiteVerdict.FAIL, gates, n_scored, n_expected)
    score = weighted_mean(scored)
    return TestScore(score, verdict_of(score), (), n_scored, n_expected)


def run_assert(item: "Assert", output: "Output", context: "Context") -> AssertResult:
    """Grade an output with one assert; whatever goes wrong is an ``error`` result."""
    result = AssertResult(item.name, item.type, None, item.weight, SuiteVerdict.ERROR, item.required)
    try:
        grade = item.grade(output, context)
        if not -TOLERANCE <= grade.score <= 1 + TOLERANCE:
            raise UngradedError("invalid_score", f"the score {grade.score!r} is not a number from 0 to 1")
        if grade.details:
            json.dumps(grade.details, allow_nan=False)
    except UngradedError as problem:
        return replace(result, error=problem.failure)
    except ConfigError:
        # The judge cannot be opened: that is no matter of one assert.
        raise
    except Exception as problem:  # A user's assert may raise anything; one crash must not end the run.
        return replace(result, error=Failure("crashed", f"{type(problem).__name__}: {problem}"))
    if item.negate:
        grade = grade.negated()
    score = min(1.0, max(0.0, grade.score))
    return AssertResult(
        item.name,
        item.type,
        score,
        item.weight,
        grade.verdict or verdict_of(score),
        item.required,
        grade.hits,
        grade.misses,
        grade.reasoning,
        grade.details,
        grade.children,
    )
