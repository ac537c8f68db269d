"""Statuses of dimensions, agents and runs. Each is declared once; every surface reads what it shows of a status here."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from persona_pipeline.base.errors import EXIT_CONFIG, EXIT_COVERAGE, EXIT_OK, EXIT_REGRESSION

Tone = Literal["", "good", "bad", "warn", "dim"]


class Result(StrEnum):
    """The three verdicts on claims, dimensions, agents and runs. Tests of suites have other words."""

    HELD = "held"
    FELL = "fell"
    CANNOT_TELL = "cannot_tell"

    @property
    def rank(self) -> int:
        """Its place among the three, the worst first."""
        return (Result.FELL, Result.CANNOT_TELL, Result.HELD).index(self)

    @property
    def status(self) -> "Status":
        """The status that an agent or a run with this verdict has."""
        return STATUSES[self.value]


@dataclass(frozen=True)
class Status:
    """A status and what each surface shows of it.

    Attributes:
        name: the value in JSON, SQL and HTML classes.
        word: what a person reads.
        exit_code: of a run in which this status is the worst; the findings of a run decide between several.
        tone: the colour.
        severity: of a Dagster check that fails for it; "": the check passes.
        junit: the kind of a JUnit result; "": the case passes.
        mark: the sign before a row in a terminal; ``icon``: in Markdown.
    """

    name: str
    word: str
    exit_code: int
    tone: Tone
    severity: Literal["", "ERROR", "WARN"] = ""
    junit: Literal["", "failure", "error", "skipped"] = ""
    mark: str = " "
    icon: str = ""


_DECLARED = (
    # Of agents and runs, the worst first.
    Status("broken", "broken", EXIT_CONFIG, "bad", "ERROR", "error", "!", "❌"),
    Status("fell", "drifted", EXIT_REGRESSION, "bad", "ERROR", "failure", "!", "🔻"),
    Status("cannot_tell", "cannot be told", EXIT_COVERAGE, "warn", "WARN", "error", "?", "❔"),
    Status("accepted", "accepted", EXIT_OK, "warn", "", "skipped", "~", "☑️"),
    Status("nothing", "nothing to judge", EXIT_OK, "dim", "", "skipped", "-", "⚪"),
    Status("held", "in character", EXIT_OK, "good", icon="✅"),
    # Of dimensions compared with a baseline.
    Status("regressed", "regressed", EXIT_REGRESSION, "bad", "ERROR", "failure", "*", "🔻"),
    Status("undecided", "cannot be told", EXIT_COVERAGE, "warn", "WARN", "error", "?", "❔"),
    Status("incomplete", "not all judged", EXIT_COVERAGE, "warn", "WARN", "error"),
    Status("unscored", "no score now", EXIT_COVERAGE, "warn", "WARN", "error"),
    Status("other_judge", "another judge's baseline", EXIT_COVERAGE, "warn", "WARN", "error"),
    Status("no_baseline", "no baseline", EXIT_COVERAGE, "warn", "WARN", "error"),
    Status("ok", "as before", EXIT_OK, ""),
    # Of a dimension that was scored and compared with nothing.
    Status("scored", "scored", EXIT_OK, ""),
)
STATUSES = {status.name: status for status in _DECLARED}
# The statuses an agent or a run may have, the worst first.
VERDICTS = _DECLARED[:6]
NOTHING, BROKEN, ACCEPTED = STATUSES["nothing"], STATUSES["broken"], STATUSES["accepted"]


def status_of(exit_code: int) -> Status:
    """Return the status of a finding or a run by its exit code: 0 in character, 1 drifted, 2 broken, 3 and 4 inconclusive."""
    by_code = {EXIT_OK: Result.HELD, EXIT_REGRESSION: Result.FELL}
    return BROKEN if exit_code == EXIT_CONFIG else by_code.get(exit_code, Result.CANNOT_TELL).status
