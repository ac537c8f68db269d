"""From asserts to a test's score: gates first, then the weighted mean (spec/4)."""

from collections.abc import Sequence
from dataclasses import dataclass

from persona_pipeline.suites.asserts.grades import AssertResult, SuiteVerdict, verdict_of, weighted_mean


@dataclass(frozen=True)
class TestScore:
    """A test's score (None for an error) and verdict; ``failed_gates`` names the gates that brought it to 0."""

    __test__ = False

    score: float | None
    verdict: SuiteVerdict
    failed_gates: tuple[str, ...] = ()


def score_test(results: Sequence[AssertResult]) -> TestScore:
    """Return a test's score from its asserts.

    A gate that is not met makes the score 0, whatever the others say. Otherwise an assert without a score makes the test an error:
    a number without it would be a guess. Otherwise the score is the weighted mean.
    """
    gates = tuple(item.name for item in results if item.gate_failed)
    if gates:
        return TestScore(0.0, SuiteVerdict.FAIL, gates)
    scored = [(item.score, item.weight) for item in results if item.score is not None]
    if len(scored) < len(results) or not results:
        return TestScore(None, SuiteVerdict.ERROR)
    score = weighted_mean(scored)
    return TestScore(score, verdict_of(score))
