"""The rows and cells every report shows, read once from a ``RunReport``."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from persona_pipeline.baselines.models import Sight
from persona_pipeline.evaluation.report import EXIT_OK, Conclusion, Finding, Result, RunReport
from persona_pipeline.propositions.dimensions import ALL_DIMENSIONS
from persona_pipeline.reporting.people import people_lines
from persona_pipeline.reporting.rows import LOW_SCORE, AgentRow, AgentStatus, ScoreCell
from persona_pipeline.reporting.words import (
    DIMENSION_LABELS,
    SHORT_LABELS,
    UNSCORED_LABELS,
    VERDICTS,
    dimension_label,
    format_delta,
    format_score,
    format_usd,
    unscored_label,
    verdict_label,
)

__all__ = [
    "DIMENSION_LABELS", "LOW_SCORE", "SHORT_LABELS", "UNSCORED_LABELS", "VERDICTS", "AgentRow", "AgentStatus",
    "ReportView", "ScoreCell", "dimension_label", "format_delta", "format_score", "format_usd", "unscored_label", "verdict_label",
    "what_it_needs",
]  # fmt: skip


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
                        agent_id,
                        name,
                        agent.evaluation.dimensions.get(name),
                        agent.comparison.dimensions.get(name),
                        concluded.get(name),
                    )
                    for name in self.dimensions
                ),
            )
            for agent_id, agent in sorted(self.report.agents.items())
            for concluded in [agent.conclusions]
        ]

    @cached_property
    def new(self) -> list[AgentRow]:
        """Agents of which nothing is wrong but that they have no baseline yet."""
        return [row for row in self.rows if row.is_new]

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
            command="persona-pipeline baseline" if everybody else missing[0].command,
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
        if not self.rows:
            return "No agent was evaluated"
        count = Counter(row.status for row in self.rows)
        total, judged = len(self.rows), len(self.rows) - count[AgentStatus.NOTHING]
        silent = f"{count[AgentStatus.NOTHING]} {'has' if count[AgentStatus.NOTHING] == 1 else 'have'} nothing to judge"
        if len(self.new) == total:
            said = f"No baseline yet: {total} agent{'s' if total > 1 else ''} scored, nothing to compare with"
        elif not judged:
            said = "Nobody has anything to judge"
        elif count[AgentStatus.HELD] == total:
            said = "The agent is in character" if total == 1 else f"All {total} agents are in character"
        elif count[AgentStatus.HELD] == judged:
            said = f"{judged} of {judged} judged agents in character; {silent}"
        else:
            parts = [
                f"{count[status]} {label}"
                for status, label in ((AgentStatus(verdict.value), label) for verdict, label in VERDICTS.items())
                if count[status]
            ]
            said = ", ".join(parts)
            if self.new and len(self.new) == count[AgentStatus.CANNOT_TELL]:
                said += " (no baseline yet)"
            said += f"; {silent}" if judged < total else ""
        return said + self._besides

    @property
    def _besides(self) -> str:
        """What is concluded of the run where its agents alone would say another thing."""
        of_run = Conclusion.of(self.report.findings)
        if of_run and not any(row.conclusion.verdict in (Result.FELL, of_run.verdict) for row in self.rows):
            return f"; the run as a whole {VERDICTS[of_run.verdict or Result.CANNOT_TELL]}: {of_run.reason}"
        if self.report.exit_code != EXIT_OK and self.report.conclusion.verdict is Result.HELD:
            return "; it fails by what --fail-on names"
        return ""
