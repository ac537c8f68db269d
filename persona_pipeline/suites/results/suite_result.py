"""What a run brought: attempts, tests, the suite, and its exit code."""

import contextlib
import json
import math
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TextIO

from persona_pipeline.base.errors import (
    EXIT_BUDGET,
    EXIT_COVERAGE,
    EXIT_OK,
    EXIT_REGRESSION,
    ConfigError,
    Problem,
    Result,
)
from persona_pipeline.suites.answering.responses import Output, OutputError, parse_output
from persona_pipeline.suites.format.field_types import PASS
from persona_pipeline.suites.format.javascript import json_rows
from persona_pipeline.suites.grading.grades import AssertResult, Failure, SuiteVerdict

EXIT_FAIL, EXIT_ERROR = EXIT_REGRESSION, EXIT_COVERAGE


@dataclass(frozen=True)
class Attempt:
    """One answer, graded. ``score`` is None exactly when the verdict is ``error``."""

    number: int
    score: float | None
    verdict: SuiteVerdict
    results: Sequence[AssertResult] = ()
    output: Output | None = None
    failed_gates: Sequence[str] = ()
    error: Failure | None = None
    cached: bool = False
    retries: int = 0
    workspace_kept: str | None = None

    @property
    def cost_usd(self) -> float | None:
        return self.output.cost_usd if self.output else None

    def to_dict(self) -> dict[str, Any]:
        """Return a trial's line in the results."""
        data: dict[str, Any] = {"attempt": self.number, "score": self.score, "verdict": self.verdict.value}
        if self.error:
            data["error"] = self.error.to_dict()
        data |= _answered(self.output)
        if self.results:
            data["scores"] = {item.name: item.score for item in self.results}
        return data


def _answered(output: Output | None) -> dict[str, Any]:
    """The answer and what it took, as far as the target said."""
    if output is None:
        return {}
    usage = output.token_usage and output.token_usage.to_dict()
    data = {"output": output.messages, "token_usage": usage, "cost_usd": output.cost_usd}
    return {key: value for key, value in (data | {"duration_ms": output.duration_ms}).items() if value is not None}


@dataclass(frozen=True)
class TestResult:
    """One test with one target.

    Attributes:
        id: the test's id, with ``@<target>`` when the run has several targets.
        score: 0-1; None exactly when the verdict is ``error``.
        best: the attempt whose asserts and answer are shown.
        attempts: all of them, where the test had trials.
        aggregation: how the score came from the attempts.
        request_key: SHA-256 of what the target was asked; digest: of all that the verdict rests on.
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
        """Why there is no score: the target's failure, else the first assert's."""
        if self.verdict is not SuiteVerdict.ERROR:
            return None
        if self.best.error:
            return self.best.error
        item = next((item for item in self.best.results if item.error), None)
        if item and item.error:
            return Failure(item.error.reason, f"{item.name}: {item.error.message}")
        failed = next((attempt.error for attempt in self.attempts if attempt.error), None)
        return failed or Failure("error", "an attempt could not be judged")

    @property
    def coverage(self) -> tuple[int, int]:
        """Asserts that have a score, and asserts there are."""
        return sum(item.score is not None for item in self.best.results), len(self.best.results)

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain JSON."""
        best, output = self.best, self.best.output
        scored, expected = self.coverage
        data: dict[str, Any] = {
            "id": self.id,
            "test_id": self.test_id,
            "target": self.target,
            "dataset": self.dataset,
            "score": self.score,
            "verdict": self.verdict.value,
            "hits": [text for item in best.results for text in item.hits],
            "misses": [text for item in best.results for text in item.misses],
            "reasoning": " | ".join(f"{item.name}: {item.reasoning}" for item in best.results if item.reasoning)
            or None,
            "answer": output.text if output else None,
            "results": [item.to_dict() for item in best.results],
            "coverage": {"n_scored": scored, "n_expected": expected},
        }
        error = self.error
        optional = {
            "error": error.to_dict() if error else None,
            "failed_gates": list(best.failed_gates) or None,
            **_answered(output),
            "file_changes": output.file_changes if output else None,
            "workspace_path": best.workspace_kept,
            "trials": [attempt.to_dict() for attempt in self.attempts] or None,
            "aggregation": self.aggregation,
            "cost_limited": self.cost_limited or None,
            "conversation_id": self.conversation_id,
            "metadata": self.metadata,
            "cached": best.cached or None,
            "notes": list(self.notes) or None,
            "request_key": self.request_key,
            "digest": self.digest,
            "timestamp": self.timestamp,
        }
        return data | {key: value for key, value in optional.items() if value is not None}

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> "TestResult":
        """Return the result a row holds, well enough to report it again."""
        output = parse_output(row) if row.get("output") is not None else None
        best = Attempt(
            0,
            row["score"],
            SuiteVerdict(row["verdict"]),
            tuple(AssertResult.from_dict(item) for item in row["results"]),
            output,
            tuple(row.get("failed_gates", ())),
            _failure(row.get("error")),
            bool(row.get("cached")),
            workspace_kept=row.get("workspace_path"),
        )
        attempts = [
            Attempt(
                item["attempt"],
                item["score"],
                SuiteVerdict(item["verdict"]),
                output=parse_output(item) if "output" in item else None,
                error=_failure(item.get("error")),
            )
            for item in row.get("trials", ())
        ]
        return cls(
            row["id"],
            row.get("test_id", row["id"]),
            row["score"],
            best.verdict,
            best,
            row.get("target"),
            row.get("dataset", ""),
            row.get("conversation_id"),
            row.get("metadata"),
            attempts,
            row.get("aggregation"),
            bool(row.get("cost_limited")),
            row.get("request_key"),
            row.get("digest"),
            row.get("timestamp"),
            resumed=True,
            notes=tuple(row.get("notes", ())),
        )


def _failure(data: Any) -> Failure | None:
    return Failure(str(data.get("reason")), str(data.get("message"))) if isinstance(data, Mapping) else None


@dataclass(frozen=True)
class SuiteResult:
    """A whole run.

    Attributes:
        judge: who judged, None when nobody was asked; usage: what its judgments took.
        reason: of a run without tests, why it has none.
        unchanged: it has none because no test rests on what changed, which is good.
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
        """The run in one of three words: a failed test ``fell``, one that could not be judged, or none at all, ``cannot_tell``,
        else ``held``. None: there was nothing to judge, because nothing changed."""
        if not self.tests:
            return None if self.unchanged else Result.CANNOT_TELL
        found = {test.verdict for test in self.tests}
        return (
            Result.FELL
            if SuiteVerdict.FAIL in found
            else Result.CANNOT_TELL
            if SuiteVerdict.ERROR in found
            else Result.HELD
        )

    @property
    def exit_code(self) -> int:
        """1: something fell; else 4: money ran out; 3: something cannot be told; 0: all held, or none had to."""
        if self.result == Result.FELL:
            return EXIT_FAIL
        if any(test.error.reason == "budget" for test in self.tests if test.error):
            return EXIT_BUDGET
        return EXIT_ERROR if self.result == Result.CANNOT_TELL else EXIT_OK

    @property
    def verdict(self) -> SuiteVerdict:
        """The worst verdict of its tests: error, then fail, borderline, pass; error when there are none."""
        found = {test.verdict for test in self.tests}
        order = (SuiteVerdict.ERROR, SuiteVerdict.FAIL, SuiteVerdict.BORDERLINE, SuiteVerdict.PASS)
        return next((verdict for verdict in order if verdict in found), SuiteVerdict.ERROR)

    @property
    def score(self) -> float | None:
        """Mean of the tests' scores; None when a test has none: a mean over the rest would flatter."""
        scores = [test.score for test in self.tests]
        known = [score for score in scores if score is not None]
        return statistics.fmean(known) if scores and len(known) == len(scores) else None

    @cached_property
    def summary(self) -> dict[str, Any]:
        """Counts, and the distribution of the scores there are."""
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
        reasons = Counter(test.error.reason for test in self.tests if test.error)
        return data | ({"error_reasons": dict(reasons)} if reasons else {})

    def to_dict(self) -> dict[str, Any]:
        """Return the run as plain JSON."""
        head = {"suite": self.suite, "path": self.path, "suite_hash": self.suite_hash}
        return {**head, "tests": [test.to_dict() for test in self.tests], **self.closing()}

    def closing(self) -> dict[str, Any]:
        """Return what stands after the tests: the summary, who judged, what a person should look at."""
        data: dict[str, Any] = {"summary": self.summary}
        if self.judge:
            data["judge"] = {"name": self.judge, "usage": dict(self.usage)}
        return data | ({"warnings": list(self.warnings)} if self.warnings else {})


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


class RowWriter:
    """Appends rows to a JSON lines file, each flushed; what a killed run left half written is cut off first."""

    def __init__(self, path: Path, *, append: bool) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        if append and path.exists():
            _cut_half_line(path)
        self._stream: TextIO = path.open("a" if append else "w", encoding="utf-8", newline="\n")

    def write(self, result: TestResult) -> None:
        self._stream.write(json.dumps(result.to_dict(), ensure_ascii=True, allow_nan=False) + "\n")
        self._stream.flush()

    def close(self) -> None:
        self._stream.close()


def json_parts(result: SuiteResult, parts: Sequence[SuiteResult] = (), *, newline: str = "") -> Iterator[str]:
    """Yield the JSON of a whole run piece by piece, a test at a time: the text of many is never held at once.

    Args:
        parts: the suites of a joined result, to be summed up one by one.
        newline: what stands after each test.
    """
    head = {"suite": result.suite, "path": result.path, "suite_hash": result.suite_hash}
    yield _json(head)[:-1] + ', "tests": [' + newline
    for index, test in enumerate(result.tests):
        yield (f", {newline}" if index else "") + _json(test.to_dict())
    rest = result.closing()
    if len(parts) > 1:
        rest["suites"] = [{"suite": part.suite, "summary": part.summary} for part in parts]
    yield newline + "], " + _json(rest)[1:] + "\n"


def _json(data: Any) -> str:
    return json.dumps(data, ensure_ascii=True, allow_nan=False, default=str)


def _cut_half_line(path: Path) -> None:
    with path.open("rb+") as stream:
        raw = stream.read()
        if raw and not raw.endswith(b"\n"):
            stream.truncate(raw.rfind(b"\n") + 1)


def read_rows(path: Path | str) -> list[dict[str, Any]]:
    """Return the rows of results: JSON lines, or the JSON of a whole run. A later row of the same id replaces an earlier one.

    Raises:
        ConfigError: the file cannot be read or holds something else.
    """
    path = Path(path)
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except (OSError, ValueError) as error:
        raise ConfigError(
            Problem(f"cannot be read ({getattr(error, 'strerror', None) or 'not UTF-8'})", str(path))
        ) from error
    rows: dict[str, dict[str, Any]] = {}
    for number, row in _parsed(text, path):
        if not isinstance(row, dict) or not isinstance(row.get("id"), str) or "verdict" not in row:
            raise ConfigError(Problem("is no row of results: it has no id and verdict", str(path), number, 1))
        score = row.get("score")
        if score is not None and (isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1):
            raise ConfigError(Problem(f"row {row['id']!r}: score must be from 0 to 1 or null", str(path), number, 1))
        rows[row["id"]] = row
    return list(rows.values())


def _parsed(text: str, path: Path) -> Iterator[tuple[int, Any]]:
    if path.suffix.lower() != ".jsonl":
        with contextlib.suppress(ValueError, RecursionError):
            data = json.loads(text)
            if isinstance(data, dict) and isinstance(data.get("tests"), list):
                yield from enumerate(data["tests"], start=1)
                return
    yield from json_rows(text, str(path), "is not results: {error}", json.loads)


def earlier_results(path: Path) -> list[TestResult]:
    """Return the results an interrupted run left; rows that cannot be read again are run again."""
    if not path.exists():
        return []
    found = []
    for row in read_rows(path):
        with contextlib.suppress(KeyError, TypeError, ValueError, OutputError):
            found.append(TestResult.from_dict(row))
    return found
