"""The base class of asserts, their context, and running one. A new type is a subclass with fields and ``grade``."""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.text import storable_data
from persona_pipeline.suites.answering.output import Need, Output
from persona_pipeline.suites.format.files import ReasonedError
from persona_pipeline.suites.format.models import AssertFields, Suite, Test
from persona_pipeline.suites.format.text import content_texts, under_roles
from persona_pipeline.suites.grading.results import (
    TOLERANCE,
    AssertResult,
    Attempt,
    Failure,
    Grade,
    SuiteVerdict,
    UngradedError,
    verdict_of,
    weighted_mean,
)

if TYPE_CHECKING:
    from persona_pipeline.suites.grading.suite_judge import SuiteJudge

DEFAULT_TIMEOUT = 120.0
# Older names of what programs and prompts are given.
OLDER = {"candidate_answer": "answer", "expected_messages": "expected_output", "expected_outcome": "criteria"}
# The reason for missing evidence.
NOT_REPORTED = "not_reported"
# Fields of a grade that an assert's result copies.
_SAID = ("hits", "misses", "reasoning", "details", "children", "failed_gates", "empty")


@dataclass(frozen=True)
class Services:
    """Services of a run for asserts.

    Attributes:
        judge: opened when the first assert needs it, so a run without judged asserts needs no recordings.
        allow_code: whether code of the suite may run.
        world_root: returns the world's folder, for persona asserts.
    """

    judge: "SuiteJudge | None" = None
    allow_code: bool = False
    world_root: Callable[[], Path] | None = None


@dataclass(frozen=True)
class Context:
    """One test while it is graded. ``deadline``: on the monotonic clock; ``request_key``: key of the request to the target."""

    suite: Suite
    test: Test
    services: Services = field(default_factory=Services)
    attempt: int = 0
    deadline: float | None = None
    request_key: str | None = None

    def time_left(self, most: float = DEFAULT_TIMEOUT) -> float:
        """Return the seconds that are left for an assert. Raises ``UngradedError``: the test's time is over."""
        if self.deadline is None:
            return most
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise UngradedError("timeout", "the test's time was up before this assert began; raise --timeout")
        return min(most, left)

    def require_code(self, what: str) -> None:
        """Raise ``UngradedError`` if code of the suite may not run."""
        if not self.services.allow_code:
            raise UngradedError("code_not_allowed", f"{what} runs code of the suite; pass --allow-code if you trust it")

    @property
    def judge(self) -> "SuiteJudge":
        """The judge. Raises ``UngradedError``: the run has none."""
        if self.services.judge is None:
            raise UngradedError("unrecorded", "this run has no judge; pass --judge recorded or --judge anthropic")
        return self.services.judge

    @property
    def question(self) -> str:
        """The request as text for a judge."""
        return shown_messages(self.test.input_messages)


def shown_messages(messages: Iterable[Mapping[str, Any]]) -> str:
    """Return messages as text for a judge: one visible message alone, several under their roles."""
    said = ((message["role"], content_texts(message.get("content"))) for message in messages)
    return under_roles((role, "\n".join(texts).strip()) for role, texts in said)


class Assert(AssertFields):
    """One condition for an output. Subclasses add fields and ``grade``, and ``prepare`` for other spellings.

    ``needs``: the evidence for ``grade``. Without it the assert is the error ``not_reported``.
    """

    needs: ClassVar[Sequence[Need]] = ()

    @property
    def needed(self) -> Iterable[Need]:
        """The evidence that it needs with its fields."""
        return self.needs

    def require_evidence(self, output: Output) -> None:
        """Raise ``UngradedError`` if an answer lacks evidence."""
        for evidence in self.needed:
            missing, is_in = evidence.value
            if not is_in(output):
                raise UngradedError(NOT_REPORTED, f"not reported: {missing}")

    def grade(self, output: Output, context: Context) -> Grade:
        """Return the grade of an output. Raises ``UngradedError``: it is inconclusive, and the test is an error."""
        raise NotImplementedError


def run_assert(item: Assert, output: Output, context: Context) -> AssertResult:
    """Grade an output with one assert; any failure is an ``error`` result."""
    result = AssertResult(item.name, item.type, None, item.weight, SuiteVerdict.ERROR, item.required)
    try:
        item.require_evidence(output)
        grade = item.grade(output, context)
        if not -TOLERANCE <= grade.score <= 1 + TOLERANCE:
            raise UngradedError("invalid_score", f"the score {grade.score!r} is not a number from 0 to 1")
        if grade.details:
            json.dumps(grade.details, allow_nan=False)
        if item.negate:
            grade = grade.negated()
    except ReasonedError as problem:
        return replace(result, error=Failure(problem.reason, problem.message))
    except ConfigError:
        # The judge cannot be opened: this ends the run.
        raise
    except Exception as problem:  # A user's assert may raise anything; one crash must not end the run.
        return replace(result, error=Failure("crashed", f"{type(problem).__name__}: {problem}"))
    score = min(1.0, max(0.0, grade.score))
    said = {name: storable_data(getattr(grade, name)) for name in _SAID}
    return replace(result, score=score, verdict=grade.verdict or verdict_of(score), **said)


def score_test(results: Sequence[AssertResult], output: Output | None = None, number: int = 0) -> Attempt:
    """Return an answer with its score.

    A missed gate makes the score 0. Otherwise an assert without a score makes the test an error, because a number without it
    would be a guess. Otherwise the score is the weighted mean.
    """
    gates = tuple(item.name for item in results if item.gate_failed)
    if gates:
        return Attempt(number, 0.0, SuiteVerdict.FAIL, results, output, gates)
    scored = [(item.score, item.weight) for item in results if item.score is not None]
    if len(scored) < len(results) or not results:
        return Attempt(number, None, SuiteVerdict.ERROR, results, output)
    score = weighted_mean(scored) or 0.0
    return Attempt(number, score, verdict_of(score), results, output)
