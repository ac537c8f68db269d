"""What can be said of what was evaluated, agents and suites alike, and the exit code that says it."""

from collections.abc import Collection
from enum import StrEnum

EXIT_OK, EXIT_REGRESSION, EXIT_CONFIG, EXIT_COVERAGE, EXIT_BUDGET = 0, 1, 2, 3, 4
_SEVERITY = (EXIT_CONFIG, EXIT_REGRESSION, EXIT_BUDGET, EXIT_COVERAGE)


class Result(StrEnum):
    """The three verdicts on agents and runs. The tests of suites have words of their own."""

    HELD = "held"
    FELL = "fell"
    CANNOT_TELL = "cannot_tell"


def worst_exit_code(codes: Collection[int]) -> int:
    """Return the one code that stands for several: 2 over 1 over 4 over 3 over 0."""
    return next((code for code in _SEVERITY if code in codes), EXIT_OK)
