"""The kill matrix: the drop of each claim under each fault, and conclusions from it."""

import math
from collections.abc import Iterable
from statistics import NormalDist, fmean, stdev
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from persona_pipeline.base.options import PROPOSITION_DELTA
from persona_pipeline.guard.report import EXIT_BUDGET, EXIT_COVERAGE, EXIT_OK
from persona_pipeline.judging.verdict import Unscored, Usage
from persona_pipeline.scoring.results import PropositionResult

# Standard deviation of a judgment without enough repeats: judges were measured to have 0.5-1.5.
ASSUMED_SD = 1.0
# A score is a whole number: no judge is steadier than its rounding.
_LEAST_SD = math.sqrt(1 / 12)
# Chance that noise alone makes one kill or more in the whole matrix.
_FALSE_KILLS = 0.05
# The fault that puts another agent's words in place of the agent's.
BORROWED = "borrowed"
# Claims needed to say that a judge reads nothing, and standard errors that all of them drop if it reads.
_FEWEST_CLAIMS, _SURELY = 4, 2.0


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ClaimCell(_Model):
    """One claim on one window.

    Attributes:
        score: 0-9, high is good for inverted claims too, before hard mode; None: unscored, for the reason given.
        judgments: behind the score.
        middle: the median of the judgments, which a single bad verdict does not move.
        fall: points below the intact window; None: one of the two has no score. middle_fall: the same of medians.
        needed: the drop above which it is a kill.
    """

    score: float | None = None
    unscored: str | None = None
    judgments: int = 0
    middle: float | None = None
    fall: float | None = None
    middle_fall: float | None = None
    needed: float | None = None

    @property
    def killed(self) -> bool:
        if self.fall is None or self.middle_fall is None or self.needed is None:
            return False
        return self.fall > self.needed and self.middle_fall > PROPOSITION_DELTA

    @property
    def silent(self) -> bool:
        """Whether the judge found no evidence, or the claim not applicable."""
        return self.unscored in ("not_applicable", "no_evidence")


class ClaimRow(_Model):
    """A claim's row. ``own``: it should distinguish the agent from others; ``faults``: cells by planted fault."""

    dimension: str
    id: str
    claim: str
    inverted: bool = False
    own: bool = False
    intact: ClaimCell
    faults: dict[str, ClaimCell] = Field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.dimension}/{self.id}"

    @property
    def kills(self) -> list[str]:
        return [name for name, cell in self.faults.items() if cell.killed]

    @property
    def testable(self) -> bool:
        """Whether it is high enough on the intact window to drop."""
        score = self.intact.score
        return score is not None and any(c.needed is not None and score > c.needed for c in self.faults.values())


class FaultColumn(_Model):
    """A fault as it was planted.

    Attributes:
        what: describes the fault.
        changed: share (0-1) of the agent's messages that differ.
        why_not: it could not be planted.
        case: the agent's case with the fault; None: it could not be planted.
    """

    name: str
    what: str
    changed: float = 0.0
    why_not: str = ""
    case: Any = Field(default=None, exclude=True, repr=False)


class KillMatrix(_Model):
    """The result of breaking an agent.

    Attributes:
        models: of the verdicts; several where some were recorded by another model.
        judge_sd: of a single judgment, in points; ``sd_measured``: from the repeats of this test, else assumed.
        failed: judgments that failed, by reason.
        judgments: number of requested judgments.
    """

    agent_id: str
    window_start: str | None
    window_end: str
    messages: int
    samples: int
    seed: int
    judge: str
    models: list[str]
    judge_sd: float
    sd_measured: bool
    claims: list[ClaimRow]
    faults: list[FaultColumn]
    usage: Usage = Field(default_factory=Usage)
    failed: dict[str, int] = Field(default_factory=dict)
    judgments: int = 0

    @property
    def planted(self) -> list[FaultColumn]:
        return [fault for fault in self.faults if not fault.why_not]

    @property
    def blind_spots(self) -> list[str]:
        """Faults that no claim catches, though every claim that could was judged on them."""
        cells = {fault.name: [row.faults[fault.name] for row in self.claims] for fault in self.planted}
        return [
            name
            for name, own in cells.items()
            if any(c.fall is not None for c in own) and not any(c.killed for c in own)
        ]

    @property
    def low(self) -> list[str]:
        """Claims that are low on healthy data: too low on the intact window to drop."""
        return [row.name for row in self.claims if row.intact.score is not None and row.faults and not row.testable]

    @property
    def dead(self) -> list[str]:
        return [
            row.name
            for row in self.claims
            if row.testable and not row.kills and any(cell.fall is not None for cell in row.faults.values())
        ]

    @property
    def everybody(self) -> list[str]:
        """Claims about this agent alone that hold for another agent's words too."""
        return [
            row.name
            for row in self.claims
            if row.own
            and row.testable
            and (cell := row.faults.get(BORROWED))
            and cell.fall is not None
            and not cell.killed
        ]

    @property
    def reads_nothing(self) -> bool:
        """Whether the judge seems to ignore messages: no claim catches anything, and all together they do not surely drop.

        A claim's mean drop over faults is one value. A few claims that catch nothing may themselves be at fault.
        """
        rows = [row for row in self.claims if row.testable]
        known = [[cell.fall for cell in row.faults.values() if cell.fall is not None] for row in rows]
        falls = [fmean(own) for own in known if own]
        if len(falls) < _FEWEST_CLAIMS or any(row.kills for row in rows):
            return False
        return fmean(falls) <= _SURELY * stdev(falls) / math.sqrt(len(falls))

    @property
    def silent(self) -> dict[str, list[str]]:
        """Faults under which a claim no longer applies, and so leaves the score instead of lowering it, by claim."""
        found = {
            row.name: [name for name, cell in row.faults.items() if row.intact.score is not None and cell.silent]
            for row in self.claims
        }
        return {name: faults for name, faults in found.items() if faults}

    @property
    def untested(self) -> dict[str, str]:
        """Claims without a score on the intact window, and why."""
        return {row.name: row.intact.unscored for row in self.claims if row.intact.unscored is not None}

    @property
    def exit_code(self) -> int:
        """Return 0 when all was judged, 4 when the budget ended it, else 3."""
        return EXIT_BUDGET if Unscored.BUDGET in self.failed else EXIT_COVERAGE if self.failed else EXIT_OK

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON with the conclusions."""
        return self.model_dump(mode="json") | {
            "findings": {
                "blind_spots": self.blind_spots,
                "dead": self.dead,
                "low": self.low,
                "everybody": self.everybody,
                "silent": self.silent,
                "reads_nothing": self.reads_nothing,
                "untested": self.untested,
            },
            "kills": {row.name: row.kills for row in self.claims},
        }


def good(result: PropositionResult, value: float) -> float:
    """Return a judge's score with high as good, also for inverted claims."""
    return 9 - value if result.inverted else value


def pooled_sd(results: Iterable[PropositionResult]) -> tuple[float, int] | None:
    """Return the standard deviation of a single judgment and its degrees of freedom, from repeated judgments."""
    # Parts are channels or actions.
    contexts = ((r, len({part["part"] for part in r.parts}) or 1) for r in results)
    found = [(r.spread, len(r.samples) - count) for r, count in contexts if r.spread is not None]
    spreads = [(spread, freedom) for spread, freedom in found if freedom > 0]
    degrees = sum(freedom for _, freedom in spreads)
    if not degrees:
        return None
    return math.sqrt(sum(spread**2 * freedom for spread, freedom in spreads) / degrees), degrees


def noise_quantile(cells: int, degrees: int | None) -> float:
    """Return the standard errors of a drop that noise alone exceeds in one matrix of twenty (Bonferroni)."""
    chance = 1 - _FALSE_KILLS / max(cells, 1)
    if degrees is None:
        return NormalDist().inv_cdf(chance)
    from scipy.special import stdtrit

    return float(stdtrit(degrees, chance))


def needed_fall(sd: float, quantile: float, before: int, now: int) -> float:
    """Return the drop above which a claim catches a fault.

    More than the 3.0 points at which the guard reports a claim, and more than the judge's noise on both sides. The medians must
    drop by 3.0 too, so that one bad verdict is not a kill.
    """
    error = max(sd, _LEAST_SD) * math.sqrt(1 / max(before, 1) + 1 / max(now, 1))
    return max(PROPOSITION_DELTA, quantile * error)
