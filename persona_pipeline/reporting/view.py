"""The rows and cells every report shows, read once from a ``RunReport``."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from statistics import fmean

from persona_pipeline.baselines.models import DimensionComparison, People, PropositionDrop, Sight
from persona_pipeline.evaluation.report import (
    EXIT_BUDGET,
    EXIT_CONFIG,
    EXIT_COVERAGE,
    EXIT_OK,
    EXIT_REGRESSION,
    AgentReport,
    Finding,
    RunReport,
    worst_exit_code,
)
from persona_pipeline.propositions.models import ALL_DIMENSIONS, Dimension
from persona_pipeline.reporting.people import people_lines
from persona_pipeline.scoring.results import DimensionEvaluation, PropositionResult

DIMENSION_LABELS = {name: name.replace("_", " ").capitalize() for name in ALL_DIMENSIONS} | {
    Dimension.IDEAS_QUANTITY.value: "Ideas"
}
UNSCORED_LABELS = {
    "no_evidence": "no evidence",
    "not_applicable": "not applicable",
    "refusal": "judge refused",
    "truncated": "answer cut off",
    "invalid_output": "invalid answer",
    "timeout": "timed out",
    "api_error": "API error",
    "budget": "budget spent",
    "unrecorded": "not recorded",
}
OUTCOMES = {
    EXIT_OK: "in character",
    EXIT_REGRESSION: "drifted",
    EXIT_CONFIG: "not evaluated: configuration",
    EXIT_COVERAGE: "not fully judged",
    EXIT_BUDGET: "stopped by the budget",
}
# Below this a proposition's recommendation is worth reading (semantics 2: below the threshold; 5.0 is the gate's default).
LOW_SCORE = 5.0


# Findings that ask a person to look and are no fault of the agent's.
REMARKS = frozenset(
    {"no_baseline", "trend", "injection", "names", "clone", "voices", "voice_alarm", "doubted", "judge_changed"}
)


class AgentStatus(StrEnum):
    """What the row of an agent says at a glance; a drift stands before missing judgments. ``new``: it has no baseline yet."""

    OK = "ok"
    NEW = "new"
    DRIFTED = "drifted"
    INCOMPLETE = "incomplete"


# Headings of columns where there is little room, by their labels.
SHORT_LABELS = {"adherence": "adher.", "consistency": "consist.", "convergence": "converg.", "judged": "n/m"}


def dimension_label(name: str) -> str:
    """Return the heading of a dimension."""
    return DIMENSION_LABELS.get(name, name.replace("_", " ").capitalize())


def unscored_label(reason: str | None) -> str:
    """Return a reason for a missing score in plain words."""
    return UNSCORED_LABELS.get(reason or "", (reason or "not evaluated").replace("_", " "))


def format_score(value: float | None, digits: int = 2) -> str:
    """Return a 0-9 score with fixed digits, or a dash."""
    return "–" if value is None else f"{value:.{digits}f}"


def format_delta(value: float | None, digits: int = 2) -> str:
    """Return a signed change with a real minus sign; what rounds to nothing is ``±0``; None is an empty string."""
    if value is None:
        return ""
    rounded = round(value, digits)
    if rounded == 0:
        return "±0"
    return f"{'+' if rounded > 0 else '−'}{abs(rounded):.{digits}f}"


def format_usd(value: float | None) -> str:
    """Return US dollars, to a hundredth of a cent below one dollar; None means that the price of a model is not known."""
    if value is None:
        return "unknown"
    return f"${value:.2f}" if value == 0 or value >= 1 else f"${value:.4f}"


@dataclass(frozen=True)
class ScoreCell:
    """One dimension of one agent beside its baseline. Scores are 0-9, ``delta`` = score - baseline."""

    agent_id: str
    dimension: str
    evaluation: DimensionEvaluation | None
    comparison: DimensionComparison | None

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
            cell.baseline
            for cell in self.cells
            if cell.dimension != Dimension.IDEAS_QUANTITY and cell.score is not None
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

    @property
    def status(self) -> AgentStatus:
        codes = {finding.exit_code for finding in self.report.findings if finding.kind not in REMARKS}
        if self.report.comparison.regressed or EXIT_REGRESSION in codes:
            return AgentStatus.DRIFTED
        if worst_exit_code(codes) != EXIT_OK:
            return AgentStatus.INCOMPLETE
        if not any(finding.kind == "no_baseline" for finding in self.report.findings):
            return AgentStatus.OK
        return AgentStatus.INCOMPLETE if any(cell.baseline is not None for cell in self.cells) else AgentStatus.NEW

    @property
    def severity(self) -> int:
        """0 for a drift, 1 for missing judgments, then agents without a baseline and those in character: what to look at first."""
        return (AgentStatus.DRIFTED, AgentStatus.INCOMPLETE, AgentStatus.NEW, AgentStatus.OK).index(self.status)

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


def what_it_needs(sights: Mapping[str, Sight]) -> str:
    """Return what the dimension that can see least needs to see a fall of 1.0; "" where it does already."""
    name, sight = max(sights.items(), key=lambda item: item[1].detectable)
    return f"{dimension_label(name).lower()}: {sight.text.split('; ')[-1]}" if "; " in sight.text else ""


@dataclass(frozen=True)
class ReportView:
    """The run as rows (agents, by id) and columns (the dimensions anybody was evaluated on or has a baseline for)."""

    report: RunReport

    @cached_property
    def dimensions(self) -> list[str]:
        names = {
            name
            for agent in self.report.agents.values()
            for name in (*agent.evaluation.dimensions, *agent.comparison.dimensions)
        }
        return [name for name in ALL_DIMENSIONS if name in names] + sorted(names - set(ALL_DIMENSIONS))

    @cached_property
    def rows(self) -> list[AgentRow]:
        return [
            AgentRow(
                agent_id,
                agent,
                tuple(
                    ScoreCell(
                        agent_id, name, agent.evaluation.dimensions.get(name), agent.comparison.dimensions.get(name)
                    )
                    for name in self.dimensions
                ),
            )
            for agent_id, agent in sorted(self.report.agents.items())
        ]

    @property
    def drifted(self) -> list[AgentRow]:
        return [row for row in self.rows if row.status is AgentStatus.DRIFTED]

    @property
    def incomplete(self) -> list[AgentRow]:
        return [row for row in self.rows if row.status is AgentStatus.INCOMPLETE]

    @property
    def new(self) -> list[AgentRow]:
        return [row for row in self.rows if row.status is AgentStatus.NEW]

    @cached_property
    def findings(self) -> list[Finding]:
        """All findings; that agents have no baseline yet is one, however many they and their dimensions are."""
        new = {row.agent_id for row in self.new}
        found = self.report.all_findings()
        missing = [finding for finding in found if finding.kind == "no_baseline" and finding.agent_id in new]
        if not missing:
            return found
        everybody = len(new) == len(self.rows)
        names = "" if everybody else f" of {', '.join(sorted(new))}"
        first = Finding(
            kind="no_baseline",
            exit_code=missing[0].exit_code,
            message=f"no baseline yet{names}: the scores stand, and nothing is compared with them",
            remedy="take one with `persona-pipeline baseline`"
            + ("" if everybody else f" `--agents {','.join(sorted(new))}`")
            + " once the scores are as they should be",
        )
        return [first, *(finding for finding in found if finding not in missing)]

    @property
    def families(self) -> str:
        """What p-values were corrected for, in words; "" where nothing was tested."""
        return next((row.report.comparison.families for row in self.rows if row.report.comparison.families), "")

    @property
    def people_lines(self) -> list[str]:
        """How far the judge can be believed, a sentence a dimension."""
        return people_lines(item for row in self.rows for item in row.report.comparison.dimensions.values())

    @cached_property
    def sights(self) -> list[tuple[AgentRow, dict[str, Sight]]]:
        """What each agent's window could have seen, by dimension; agents of which nothing was tested are left out."""
        found = [
            (
                row,
                {
                    cell.dimension: cell.comparison.sight
                    for cell in row.cells
                    if cell.comparison and cell.comparison.sight
                },
            )
            for row in self.rows
        ]
        return [(row, sights) for row, sights in found if sights]

    def dullest(self, most: int) -> list[tuple[AgentRow, dict[str, Sight]]]:
        """Return ``sights`` of the agents that can see least, at most so many."""
        worst = sorted(self.sights, key=lambda item: -max(sight.detectable for sight in item[1].values()))
        return worst[:most]

    @property
    def headline(self) -> str:
        """The run in one short sentence."""
        total = len(self.rows)
        if not total:
            return "No agent was evaluated"
        if len(self.new) == total:
            return f"No baseline yet: {total} agent{'s' if total > 1 else ''} scored, nothing to compare with"
        drifted, incomplete = len(self.drifted), len(self.incomplete)
        agents = "1 agent" if total == 1 else f"{total} agents"
        if drifted and incomplete:
            return f"{drifted} of {agents} drifted, {incomplete} not fully judged"
        if drifted or incomplete:
            return f"{drifted or incomplete} of {agents} {'drifted' if drifted else 'not fully judged'}"
        if self.new:
            return f"{len(self.new)} of {agents} without a baseline, the others in character"
        if self.report.exit_code != EXIT_OK:
            return f"Run failed: {OUTCOMES.get(self.report.exit_code, f'exit code {self.report.exit_code}')}"
        return "The agent is in character" if total == 1 else f"All {total} agents are in character"
