"""The one shape of every assert, and how one is graded. A new type is a subclass with its fields and ``grade``."""

import json
from dataclasses import replace

from persona_pipeline.errors import ConfigError
from persona_pipeline.suites.asserts.context import Context
from persona_pipeline.suites.asserts.grades import (
    TOLERANCE,
    AssertResult,
    Failure,
    Grade,
    SuiteVerdict,
    UngradedError,
    verdict_of,
)
from persona_pipeline.suites.format.assert_fields import AssertFields
from persona_pipeline.suites.targets.output import Output


class Assert(AssertFields):
    """One condition an output must satisfy. Fields are checked strictly; an unknown key is an error.

    Subclasses add fields and override ``grade``; those whose spelling differs from their fields override ``prepare`` too.
    """

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
        failed_gates=grade.failed_gates,
    )
