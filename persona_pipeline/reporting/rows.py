"""One agent's line in a report, and one dimension of it beside its baseline."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from statistics import fmean

from persona_pipeline.baselines.models import DimensionComparison, People, PropositionDrop
from persona_pipeline.evaluation.report import EXIT_OK, AgentReport, Conclusion, Result
from persona_pipeline.reporting.words import unscored_label
from persona_pipeline.scoring.results import NOT_IN_OVERALL, DimensionEvaluation, PropositionResult

# Below this a proposition's recommendation is worth reading (semantics 2: below the threshold; 5.0 is the gate's default).
LOW_SCORE = 5.0


class AgentStatus(StrEnum):
    """What the row of an agent says at a glance: what is concluded of it, or that there was nothing to judge."""

    HELD = "held"
    FELL = "fell"
    CANNOT_TELL = "cannot_tell"
    NOTHING = "nothing"


@dataclass(frozen=True)
class ScoreCell:
    """One dimension of one agent beside its baseline. Scores are 0-9, ``delta`` = score - baseline."""

    agent_id: str
    dimension: str
    evaluation: DimensionEvaluation | None
    comparison: DimensionComparison | None
    conclusion: Conclusion | None = None

    @property
    def score(self) -> float | None:
        return self.evaluation.score if self.evaluation else None

    @property
    def baseline(self) -> float | None:
        return self.comparison.baseline if self.comparison else None

    @property
    def delta(self) -> float | None:
        if self.comparison and self.comparison.delta is not None:
            return self.comparison.delta
        return None if self.score is None or self.baseline is None else self.score - self.baseline

    @property
    def status(self) -> str:
        """The comparison's status; ``scored`` or ``unscored`` where nothing was compared."""
        if self.comparison:
            return self.comparison.status
        return "unscored" if self.score is None else "scored"

    @property
    def drops(self) -> list[PropositionDrop]:
        return self.comparison.drops if self.comparison else []

    @property
    def interval(self) -> tuple[float, float] | None:
        """Where the score lies with 95 % as far as the baseline is right: baseline plus the interval of the change, within 0-9."""
        if self.comparison is None or self.comparison.interval is None or self.baseline is None:
            return None
        low, high = (min(max(self.baseline + change, 0.0), 9.0) for change in self.comparison.interval)
        return low, high

    @property
    def people(self) -> People | None:
        """What people's labels say of it."""
        return self.comparison.people if self.comparison else None

    @property
    def drifted(self) -> bool:
        """Whether the dimension or one of its propositions fell beyond what is allowed."""
        return self.status == "regressed" or bool(self.drops)

    @property
    def untold(self) -> bool:
        """Whether the dimension has a score, and how it stands cannot be told."""
        return self.conclusion is not None and self.conclusion.verdict is Result.CANNOT_TELL and not self.drifted

    @property
    def n_scored(self) -> int:
        return self.evaluation.n_scored if self.evaluation else 0

    @property
    def n_expected(self) -> int:
        return self.evaluation.n_expected if self.evaluation else 0

    @property
    def why_unscored(self) -> str:
        return unscored_label(self.evaluation.unscored if self.evaluation else None)


@dataclass(frozen=True)
class AgentRow:
    """One agent's line in a table of scores."""

    agent_id: str
    report: AgentReport
    cells: tuple[ScoreCell, ...]

    @property
    def name(self) -> str:
        return self.report.evaluation.display_name or self.agent_id

    @property
    def overall(self) -> float | None:
        return self.report.evaluation.overall

    @cached_property
    def overall_baseline(self) -> float | None:
        """Mean baseline of the dimensions behind ``overall``; None unless each of them has one."""
        parts = [
            cell.baseline for cell in self.cells if cell.dimension not in NOT_IN_OVERALL and cell.score is not None
        ]
        known = [value for value in parts if value is not None]
        return fmean(known) if known and len(known) == len(parts) else None

    @property
    def overall_delta(self) -> float | None:
        if self.overall is None or self.overall_baseline is None:
            return None
        return self.overall - self.overall_baseline

    @property
    def n_scored(self) -> int:
        return sum(cell.n_scored for cell in self.cells)

    @property
    def n_expected(self) -> int:
        return sum(cell.n_expected for cell in self.cells)

    @cached_property
    def conclusion(self) -> Conclusion:
        """What is concluded of it, and why."""
        return self.report.conclusion

    @cached_property
    def status(self) -> AgentStatus:
        verdict = self.conclusion.verdict
        return AgentStatus(verdict.value) if verdict else AgentStatus.NOTHING

    @property
    def is_new(self) -> bool:
        """Whether nothing is wrong but that it has no baseline yet."""
        serious = {finding.kind for finding in self.report.findings if finding.exit_code != EXIT_OK}
        return serious == {"no_baseline"} and not any(cell.baseline is not None for cell in self.cells)

    @property
    def severity(self) -> int:
        """What to look at first: 0 for who drifted, then who cannot be told, has nothing to judge, and is in character."""
        order = (AgentStatus.FELL, AgentStatus.CANNOT_TELL, AgentStatus.NOTHING, AgentStatus.HELD)
        return 2 * order.index(self.status) + self.is_new

    def propositions(self) -> Iterator[tuple[str, PropositionResult]]:
        """Yield (dimension, result) of every proposition, dimensions in their order."""
        for cell in self.cells:
            if cell.evaluation:
                for result in cell.evaluation.propositions.values():
                    yield cell.dimension, result

    @property
    def failures(self) -> list[tuple[str, PropositionResult]]:
        """Propositions that should have a score and have none."""
        return [
            (cell.dimension, result)
            for cell in self.cells
            if cell.evaluation
            for result in cell.evaluation.failures.values()
        ]
