"""Results: grades of asserts, attempts, tests, the suite, and its exit code."""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

from persona_pipeline.base.errors import EXIT_BUDGET, EXIT_OK
from persona_pipeline.base.shares import wilson
from persona_pipeline.base.status import Result
from persona_pipeline.suites.answering.output import Output, known_sum, parse_output
from persona_pipeline.suites.format.files import ReasonedError
from persona_pipeline.suites.format.models import BORDERLINE, PASS, present

# Scores are sums of binary fractions: 1, 0.8 and 0.6 average to 0.7999999999999999, which is 0.8.
TOLERANCE = 1e-9


class SuiteVerdict(StrEnum):
    """Verdict of a test or an assert. ``error``: it could not be judged, which is neither a pass nor a fail."""

    PASS = "pass"
    BORDERLINE = "borderline"
    FAIL = "fail"
    ERROR = "error"


WORST_FIRST = [*SuiteVerdict][::-1]


def share_interval(count: int, total: int) -> tuple[float, float] | None:
    """Return the 95 % interval of a share of tests, 0-1; None of no tests."""
    if total == 0:
        return None
    low, high = wilson(count / total, total)
    return max(0.0, low), min(1.0, high)


def weighted_mean(pairs: Iterable[tuple[float, float]]) -> float | None:
    """Return sum(score * weight) / sum(weight) of (score, weight) pairs, None when the weights add up to 0."""
    total = weights = 0.0
    for score, weight in pairs:
        total += score * weight
        weights += weight
    return total / weights if weights else None


def reaches(score: float, threshold: float) -> bool:
    """Return whether a score reaches a threshold, within the tolerance."""
    return score >= threshold - TOLERANCE


def verdict_of(score: float) -> SuiteVerdict:
    """Return the verdict of a score: pass from 0.8, borderline from 0.6, else fail (spec/4)."""
    if reaches(score, PASS):
        return SuiteVerdict.PASS
    return SuiteVerdict.BORDERLINE if reaches(score, BORDERLINE) else SuiteVerdict.FAIL


def gate_of(required: bool | float) -> float | None:
    """Return the score that a gate needs; None: it is not a gate."""
    if isinstance(required, bool):
        return PASS if required else None
    return required


@dataclass(frozen=True)
class Failure:
    """Why a test could not be judged. ``reason``: a word for machines; ``message``: with a remedy."""

    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}" if self.message else self.reason

    def to_dict(self) -> dict[str, str]:
        return {"reason": self.reason, "message": self.message}


class UngradedError(ReasonedError):
    """An assert cannot give a score. It becomes an ``error`` in the results, never a number."""

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}"


@dataclass(frozen=True, slots=True)
class Grade:
    """Grade of an assert.

    Attributes:
        score: 0-1.
        hits, misses: one short sentence each.
        verdict: only if it does not follow from the score.
        details: numbers behind the score, plain JSON.
        children: results of the asserts inside it.
        failed_gates: gates among the children that were missed; the score is then 0.
        empty: nothing had a weight, so the score is 0 and its opposite is unknown.
    """

    score: float
    hits: Sequence[str] = ()
    misses: Sequence[str] = ()
    reasoning: str | None = None
    verdict: SuiteVerdict | None = None
    details: Mapping[str, Any] | None = None
    children: Sequence["AssertResult"] = ()
    failed_gates: Sequence[str] = ()
    empty: bool = False

    @classmethod
    def of(cls, met: bool, hit: str, miss: str) -> "Grade":
        """Return 1 with a hit, or 0 with a miss."""
        return cls.saying(hit if met else miss, met, float(met))

    @classmethod
    def saying(cls, said: str, met: bool, score: float, **more: Any) -> "Grade":
        """Return a score with a sentence, a hit if ``met``, else a miss. ``more``: fields of the grade."""
        return cls(score, **{"hits" if met else "misses": (said,)}, **more)

    def negated(self) -> "Grade":
        """Return the opposite: 1 - score, with hits and misses, pass and fail exchanged, and gates inside ignored.

        Raises ``UngradedError``: nothing had a weight.
        """
        if self.empty:
            raise UngradedError("nothing_weighed", "nothing that has a weight was graded, so its opposite is not known")
        verdict = self.verdict or verdict_of(self.score)
        opposite = {SuiteVerdict.PASS: SuiteVerdict.FAIL, SuiteVerdict.FAIL: SuiteVerdict.PASS}
        turned = replace(self, score=1.0 - self.score, hits=self.misses, misses=self.hits, failed_gates=())
        return replace(turned, verdict=opposite.get(verdict, verdict))


# Fields that rows hold unchanged, of an assert and of a test.
_OF_AN_ASSERT = ("name", "type", "score", "weight", "required", "reasoning", "details")
_OF_SOME_TESTS = ("conversation_id", "metadata", "aggregation", "request_key", "digest", "timestamp")
_OF_A_TEST = ("id", "score", "target", "dataset", *_OF_SOME_TESTS)


@dataclass(frozen=True, slots=True)
class AssertResult:
    """Result of an assert. ``score`` is None exactly if ``error`` is set. ``failed_gates``: missed gates among its children."""

    name: str
    type: str
    score: float | None
    weight: float
    verdict: SuiteVerdict
    required: bool | float = False
    hits: Sequence[str] = ()
    misses: Sequence[str] = ()
    reasoning: str | None = None
    details: Mapping[str, Any] | None = None
    children: Sequence["AssertResult"] = ()
    error: Failure | None = None
    failed_gates: Sequence[str] = ()
    empty: bool = False

    @property
    def gate(self) -> float | None:
        """The score it needs as a gate; None: it is not a gate."""
        return gate_of(self.required)

    @property
    def gate_failed(self) -> bool:
        """Whether it, or a gate inside it, makes the test 0. ``required: true`` needs a pass, a number that score."""
        if self.failed_gates:
            return True
        if self.gate is None or self.score is None:
            return False
        return self.verdict is not SuiteVerdict.PASS if self.required is True else not reaches(self.score, self.gate)

    def to_dict(self) -> dict[str, Any]:
        data = {name: getattr(self, name) for name in ("name", "type", "score", "weight", "reasoning")}
        data |= {"verdict": self.verdict.value, "hits": list(self.hits), "misses": list(self.misses)}
        optional = {
            "required": self.required or None,
            "details": dict(self.details or {}) or None,
            "failed_gates": list(self.failed_gates) or None,
            "scores": [child.to_dict() for child in self.children] or None,
            "error": self.error and self.error.to_dict(),
        }
        return data | present(optional)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "AssertResult":
        """Return the result that ``to_dict`` wrote."""
        return cls(
            **{name: data[name] for name in _OF_AN_ASSERT if name in data},
            verdict=SuiteVerdict(data["verdict"]),
            hits=tuple(data.get("hits", ())),
            misses=tuple(data.get("misses", ())),
            children=tuple(cls.from_dict(child) for child in data.get("scores", ())),
            error=_failure(data.get("error")),
            failed_gates=tuple(data.get("failed_gates", ())),
        )


@dataclass(frozen=True)
class Attempt:
    """One graded answer. ``score`` is None exactly if the verdict is ``error``."""

    number: int
    score: float | None
    verdict: SuiteVerdict
    results: Sequence[AssertResult] = ()
    output: Output | None = None
    failed_gates: Sequence[str] = ()
    error: Failure | None = None
    cached: bool = False
    workspace_kept: str | None = None

    @property
    def cost_usd(self) -> float | None:
        """Reported cost in US dollars, simulated user included; None: not reported."""
        output = self.output
        return output and known_sum([*(turn.cost_usd for turn in output.turns or [output]), output.user_cost_usd])

    def to_dict(self) -> dict[str, Any]:
        """Return a trial's line in the results."""
        data: dict[str, Any] = {"attempt": self.number, "score": self.score, "verdict": self.verdict.value}
        if self.error:
            data["error"] = self.error.to_dict()
        data |= _answered(self.output)
        if self.results:
            data["scores"] = {item.name: item.score for item in self.results}
        return data

    @classmethod
    def from_dict(cls, row: Mapping[str, Any], results: Sequence[Mapping[str, Any]]) -> "Attempt":
        """Return the attempt of a trial's line or of a test's row. ``results``: those of its asserts."""
        return cls(
            row.get("attempt", 0),
            row["score"],
            SuiteVerdict(row["verdict"]),
            tuple(AssertResult.from_dict(item) for item in results),
            parse_output(row) if row.get("output") is not None else None,
            tuple(row.get("failed_gates", ())),
            _failure(row.get("error")),
            bool(row.get("cached")),
            row.get("workspace_path"),
        )


def _answered(output: Output | None) -> dict[str, Any]:
    """Return the answer and its figures."""
    return {} if output is None else {"output": output.messages, **output.measured()}


@dataclass(frozen=True)
class TestResult:
    """Result of a test with a target.

    Attributes:
        id: the test's id, with ``@<target>`` if the run has several targets.
        score: 0-1; None exactly if the verdict is ``error``.
        best: the attempt whose asserts and answer are shown.
        attempts: all attempts, for a test with trials.
        aggregation: how the score was computed from the attempts.
        request_key: SHA-256 of the request to the target.
        digest: digest of all inputs of the verdict.
    """

    __test__ = False

    id: str
    test_id: str
    score: float | None
    verdict: SuiteVerdict
    best: Attempt
    target: str | None = None
    dataset: str = ""
    conversation_id: str | None = None
    metadata: Mapping[str, Any] | None = None
    attempts: Sequence[Attempt] = ()
    aggregation: Mapping[str, Any] | None = None
    cost_limited: bool = False
    request_key: str | None = None
    digest: str | None = None
    timestamp: str | None = None
    resumed: bool = False
    notes: Sequence[str] = ()

    @property
    def error(self) -> Failure | None:
        """Why the score is missing: the target's failure, else the first failure of an assert."""
        if self.verdict is not SuiteVerdict.ERROR:
            return None
        if self.best.error:
            return self.best.error
        item = next((item for item in self.best.results if item.error), None)
        if item and item.error:
            return Failure(item.error.reason, f"{item.name}: {item.error.message}")
        failed = next((attempt.error for attempt in self.attempts if attempt.error), None)
        why = (self.aggregation or {}).get("why", "an attempt could not be judged")
        return failed or Failure("undecided", str(why))

    @property
    def coverage(self) -> tuple[int, int]:
        """Number of asserts with a score, and of all asserts."""
        return sum(item.score is not None for item in self.best.results), len(self.best.results)

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain JSON."""
        best, output = self.best, self.best.output
        scored, expected = self.coverage
        data = {name: getattr(self, name) for name in ("id", "test_id", "target", "dataset", "score")}
        data |= {
            "verdict": self.verdict.value,
            "hits": [text for item in best.results for text in item.hits],
            "misses": [text for item in best.results for text in item.misses],
            "reasoning": " | ".join(f"{item.name}: {item.reasoning}" for item in best.results if item.reasoning)
            or None,
            "answer": output.text if output else None,
            "results": [item.to_dict() for item in best.results],
            "coverage": {"n_scored": scored, "n_expected": expected},
        }
        optional = {
            "error": self.error and self.error.to_dict(),
            "failed_gates": list(best.failed_gates) or None,
            **_answered(output),
            "file_changes": output.file_changes if output else None,
            "workspace_path": best.workspace_kept,
            "trials": [attempt.to_dict() for attempt in self.attempts] or None,
            "cost_limited": self.cost_limited or None,
            "cached": best.cached or None,
            "notes": list(self.notes) or None,
            **{name: getattr(self, name) for name in _OF_SOME_TESTS},
        }
        return data | present(optional)

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> "TestResult":
        """Return the result of a row, complete enough for reports."""
        best = Attempt.from_dict(row, row["results"])
        return cls(
            **{name: row[name] for name in _OF_A_TEST if name in row},
            test_id=row.get("test_id", row["id"]),
            verdict=best.verdict,
            best=best,
            attempts=[Attempt.from_dict(item, ()) for item in row.get("trials", ())],
            cost_limited=bool(row.get("cost_limited")),
            resumed=True,
            notes=tuple(row.get("notes", ())),
        )


def _failure(data: Any) -> Failure | None:
    return Failure(str(data.get("reason")), str(data.get("message"))) if isinstance(data, Mapping) else None


@dataclass(frozen=True)
class SuiteResult:
    """A whole run.

    Attributes:
        judge: name of the judge; None: it was not asked.
        usage: tokens and cost of the judge.
        reason: why the run, or a suite of it, has no tests.
        unchanged: it has no tests because no test depends on a change.
    """

    suite: str
    path: str
    tests: Sequence[TestResult]
    suite_hash: str = ""
    warnings: Sequence[str] = ()
    judge: str | None = None
    usage: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""
    unchanged: bool = False

    @property
    def result(self) -> Result | None:
        """The result of the run: ``fell`` with a failed test, ``cannot_tell`` with an error or without tests, else ``held``.

        None: nothing changed, so there was nothing to judge.
        """
        if not self.tests:
            return None if self.unchanged else Result.CANNOT_TELL
        found = {test.verdict for test in self.tests}
        if SuiteVerdict.FAIL in found:
            return Result.FELL
        return Result.CANNOT_TELL if SuiteVerdict.ERROR in found or self.reason else Result.HELD

    @property
    def exit_code(self) -> int:
        """1: a test failed; else 4: the budget is spent; 3: inconclusive; 0: all passed, or nothing had to run."""
        if self.result != Result.FELL and any(test.error.reason == "budget" for test in self.tests if test.error):
            return EXIT_BUDGET
        return self.result.status.exit_code if self.result else EXIT_OK

    @property
    def verdict(self) -> SuiteVerdict:
        """The worst verdict of its tests: error, then fail, borderline, pass; error without tests."""
        return min((test.verdict for test in self.tests), key=WORST_FIRST.index, default=SuiteVerdict.ERROR)

    @property
    def score(self) -> float | None:
        """Mean score of the tests; None if a test has no score."""
        scores = [test.score for test in self.tests]
        known = [score for score in scores if score is not None]
        return statistics.fmean(known) if scores and len(known) == len(scores) else None

    @cached_property
    def summary(self) -> dict[str, Any]:
        """Counts, and the distribution of the scores."""
        verdicts = Counter(test.verdict for test in self.tests)
        scores = [test.score for test in self.tests if test.score is not None]
        costs = [test.best.cost_usd for test in self.tests if test.best.cost_usd is not None]
        data: dict[str, Any] = {
            "total": len(self.tests),
            "passed": verdicts[SuiteVerdict.PASS],
            "borderline": verdicts[SuiteVerdict.BORDERLINE],
            "failed": verdicts[SuiteVerdict.FAIL],
            "errors": verdicts[SuiteVerdict.ERROR],
            "result": self.result,
            "verdict": self.verdict.value,
            "score": self.score,
            "coverage": {"n_scored": len(scores), "n_expected": len(self.tests)},
            "exit_code": self.exit_code,
        }
        if scores:
            bins = [0] * 5
            for score in scores:
                bins[min(4, math.floor(score * 5 + 1e-9))] += 1
            data |= {
                "mean": statistics.fmean(scores),
                "median": statistics.median(scores),
                "min": min(scores),
                "max": max(scores),
                "stddev": statistics.stdev(scores) if len(scores) > 1 else None,
                "histogram": bins,
                "pass_rate": sum(score >= PASS - 1e-9 for score in scores) / len(self.tests),
            }
        if self.reason:
            data["reason"] = self.reason
        if costs:
            data["cost_usd"] = math.fsum(costs)
        took = [test.best.output.duration_ms for test in self.tests if test.best.output]
        if times := sorted(time for time in took if time is not None):
            # By nearest rank, so that it is a measured time.
            data["duration_ms"] = {f"p{n}": times[math.ceil(n / 100 * len(times)) - 1] for n in (50, 95)}
        rates = [(test.aggregation or {}).get("flake_rate") for test in self.tests]
        if flakes := [rate["value"] for rate in rates if rate]:
            data["flake_rate"] = statistics.fmean(flakes)
        reasons = Counter(test.error.reason for test in self.tests if test.error)
        return data | ({"error_reasons": dict(reasons)} if reasons else {})

    def to_dict(self) -> dict[str, Any]:
        """Return the run as plain JSON."""
        head = {"suite": self.suite, "path": self.path, "suite_hash": self.suite_hash}
        return {**head, "tests": [test.to_dict() for test in self.tests], **self.closing()}

    def closing(self) -> dict[str, Any]:
        """Return the part of the JSON after the tests: summary, judge and warnings."""
        data: dict[str, Any] = {"summary": self.summary}
        if self.judge:
            data["judge"] = {"name": self.judge, "usage": dict(self.usage)}
        return data | ({"warnings": list(self.warnings)} if self.warnings else {})


def pass_interval(summary: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return the 95 % interval of the pass rate (0-1); None for a run without tests."""
    return share_interval(summary["passed"], summary["total"])


def by_target(result: SuiteResult) -> dict[str | None, SuiteResult]:
    """Return the run's results by target, in order of first appearance."""
    found: dict[str | None, list[TestResult]] = {}
    for test in result.tests:
        found.setdefault(test.target, []).append(test)
    return {target: replace(result, tests=tests) for target, tests in found.items()}


def reason_of(test: TestResult) -> str:
    """Return in one sentence why a test did not pass; "" if it passed."""
    if test.error:
        return str(test.error)
    if test.verdict is not SuiteVerdict.PASS and "why" in (test.aggregation or {}):
        return str((test.aggregation or {})["why"])
    if test.best.failed_gates:
        named = [item for item in test.best.results if item.name in test.best.failed_gates]
        unjudged = [f"{item.name}: {item.error}" for item in test.best.results if item.error]
        return "; ".join([*(f"gate {item.name}: {next(iter(item.misses), '')}" for item in named), *unjudged])
    low = [item for item in test.best.results if item.verdict is not SuiteVerdict.PASS]
    return "; ".join(f"{item.name}: {next(iter(item.misses), None) or item.verdict.value}" for item in low)
