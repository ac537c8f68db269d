"""The one shape of every assert, how one is graded, and what it may use besides the output: the test, the time left, the services
of the run. A new type is a subclass with its fields and ``grade``.
"""

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
from persona_pipeline.suites.format.loading.messages import content_texts, under_roles
from persona_pipeline.suites.format.models import AssertFields, Suite, Test
from persona_pipeline.suites.grading.results import (
    TOLERANCE,
    AssertResult,
    Failure,
    Grade,
    SuiteVerdict,
    UngradedError,
    verdict_of,
)

if TYPE_CHECKING:
    from persona_pipeline.suites.grading.suite_judge import SuiteJudge

DEFAULT_TIMEOUT = 120.0
# Why an assert has no score whose evidence is missing, whatever it negates or allows.
NOT_REPORTED = "not_reported"
# What a grade says of itself, and an assert's result takes from it.
_SAID = ("hits", "misses", "reasoning", "details", "children", "failed_gates", "empty")


@dataclass(frozen=True)
class Services:
    """What a run gives to every assert.

    Attributes:
        judge: opens itself when the first assert needs it, so that a run without one needs no recordings.
        allow_code: whether code of the suite may run.
        world_root: gives the world whose personas, propositions and baselines persona asserts use.
        answer: lets a target, by name, answer the test that is graded, for asserts that compare answers.
    """

    judge: "SuiteJudge | None" = None
    allow_code: bool = False
    world_root: Callable[[], Path] | None = None
    answer: Callable[[str, "Context"], Output] | None = None


@dataclass(frozen=True)
class Context:
    """One test being graded. ``deadline``: ``time.monotonic()`` by which it must be done."""

    suite: Suite
    test: Test
    services: Services = field(default_factory=Services)
    attempt: int = 0
    deadline: float | None = None

    def time_left(self, most: float = DEFAULT_TIMEOUT) -> float:
        """Return the seconds an assert may still take.

        Raises:
            UngradedError: the test's time is up.
        """
        if self.deadline is None:
            return most
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise UngradedError("timeout", "the test's time was up before this assert began; raise --timeout")
        return min(most, left)

    def require_code(self, what: str) -> None:
        """Raises ``UngradedError`` unless code of the suite may run."""
        if not self.services.allow_code:
            raise UngradedError("code_not_allowed", f"{what} runs code of the suite; pass --allow-code if you trust it")

    @property
    def judge(self) -> "SuiteJudge":
        """The judge. Raises ``UngradedError`` where the run has none."""
        if self.services.judge is None:
            raise UngradedError("unrecorded", "this run has no judge; pass --judge recorded or --judge anthropic")
        return self.services.judge

    @property
    def question(self) -> str:
        """What was asked, for a judge."""
        return shown_messages(self.test.input_messages)


def shown_messages(messages: Iterable[Mapping[str, Any]]) -> str:
    """Return messages for a judge: a single visible one flat, several under their roles."""
    said = ((message["role"], content_texts(message.get("content"))) for message in messages)
    return under_roles((role, "\n".join(texts).strip()) for role, texts in said)


class Assert(AssertFields):
    """One condition an output must satisfy. Fields are checked strictly; an unknown key is an error.

    Subclasses add fields and override ``grade``; those whose spelling differs from their fields override ``prepare`` too.

    Attributes:
        needs: what ``grade`` rests on. An answer that lacks it is not graded: the assert is the error ``not_reported``.
    """

    needs: ClassVar[Sequence[Need]] = ()

    @property
    def needed(self) -> Iterable[Need]:
        """What this one needs, given its fields."""
        return self.needs

    def require_evidence(self, output: Output) -> None:
        """Raise ``UngradedError`` where an answer lacks what this one needs."""
        for evidence in self.needed:
            if not evidence.is_in(output):
                raise UngradedError(NOT_REPORTED, f"not reported: {evidence.value}")

    def grade(self, output: Output, context: Context) -> Grade:
        """Return the grade of an output.

        Raises:
            UngradedError: there is no way to tell; the test becomes an error.
        """
        raise NotImplementedError


def run_assert(item: Assert, output: Output, context: Context) -> AssertResult:
    """Grade an output with one assert; whatever goes wrong is an ``error`` result."""
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
        # The judge cannot be opened: that is no matter of one assert.
        raise
    except Exception as problem:  # A user's assert may raise anything; one crash must not end the run.
        return replace(result, error=Failure("crashed", f"{type(problem).__name__}: {problem}"))
    score = min(1.0, max(0.0, grade.score))
    said = {name: storable_data(getattr(grade, name)) for name in _SAID}
    return replace(result, score=score, verdict=grade.verdict or verdict_of(score), **said)
