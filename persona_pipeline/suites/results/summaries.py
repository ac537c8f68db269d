"""What reports show of suite runs: counts, and why tests did not pass."""

from collections.abc import Sequence
from typing import Any

from persona_pipeline.suites.asserts.grades import SuiteVerdict
from persona_pipeline.suites.results.suite_result import SuiteResult, TestResult

MOST_FAILURES = 50


def by_target(result: SuiteResult) -> dict[str | None, SuiteResult]:
    """Return the run's results split by target, in order of first appearance."""
    found: dict[str | None, list[TestResult]] = {}
    for test in result.tests:
        found.setdefault(test.target, []).append(test)
    return {
        target: SuiteResult(
            result.suite, result.path, tests, result.suite_hash, result.warnings, result.judge, result.usage
        )
        for target, tests in found.items()
    }


def summary_of(target: str | None, part: SuiteResult) -> dict[str, Any]:
    """Return what a run report shows of one target's part of a run (an entry of ``RunReport.statistics["suites"]``)."""
    counts = part.summary
    failures = [test for test in part.tests if test.verdict is not SuiteVerdict.PASS]
    return {
        "suite": part.suite,
        "target": target,
        "verdict": part.verdict.value,
        "score": part.score,
        "tests": {
            "pass": counts["passed"],
            "borderline": counts["borderline"],
            "fail": counts["failed"],
            "error": counts["errors"],
        },
        "failures": [
            {"id": test.id, "verdict": test.verdict.value, "score": test.score, "reason": reason_of(test)}
            for test in failures[:MOST_FAILURES]
        ],
    }


def reason_of(test: TestResult) -> str:
    """Return in one sentence why a test did not pass, ``""`` when it did."""
    if test.error:
        return str(test.error)
    if test.best.failed_gates:
        named = [item for item in test.best.results if item.name in test.best.failed_gates]
        unjudged = [f"{item.name}: {item.error}" for item in test.best.results if item.error]
        return "; ".join([*(f"gate {item.name}: {_first(item.misses)}" for item in named), *unjudged])
    low = [item for item in test.best.results if item.verdict is not SuiteVerdict.PASS]
    return "; ".join(f"{item.name}: {_first(item.misses) or item.verdict.value}" for item in low)


def _first(misses: Sequence[str]) -> str:
    return misses[0] if misses else ""
