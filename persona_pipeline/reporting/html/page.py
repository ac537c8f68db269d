"""What the HTML templates show, worked out in Python so that they hold no logic."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from persona_pipeline.baselines.models import PropositionDrop
from persona_pipeline.evaluation.report import EXIT_OK, EXIT_REGRESSION, Finding, RunReport
from persona_pipeline.reporting import costs, facts, sections
from persona_pipeline.reporting.charts import bullet, sparkline
from persona_pipeline.reporting.history import TrendMark, trend_mark
from persona_pipeline.reporting.html.figures import (
    Figure,
    fading_figure,
    language_figures,
    timeline_figure,
    voice_alarm_figure,
    voice_figure,
)
from persona_pipeline.reporting.view import LOW_SCORE, OUTCOMES, REMARKS, AgentRow, ReportView, ScoreCell
from persona_pipeline.scoring.results import PropositionResult, QuotedEvidence

if TYPE_CHECKING:
    from persona_pipeline.corrections.statistics import CorrectionStatistics

_MOST_BROKEN_LINES = 12


@dataclass(frozen=True)
class BrokenClaim:
    """A claim that no longer holds, and lines of the agent that show it."""

    result: PropositionResult
    lines: list[QuotedEvidence]


@dataclass(frozen=True)
class FindingGroup:
    """The findings of one agent and dimension: what happened, and below it the propositions that dropped."""

    agent: str | None
    dimension: str | None
    main: list[Finding]
    drops: list[Finding]

    @property
    def bad(self) -> bool:
        return any(
            finding.exit_code == EXIT_REGRESSION and finding.kind not in REMARKS
            for finding in (*self.main, *self.drops)
        )


@dataclass(frozen=True)
class PartItem:
    """One channel or action a proposition was judged on. ``score`` 0-9, higher is better."""

    name: str
    score: float | None
    unscored: str | None
    reasoning: str

    @classmethod
    def read(cls, part: dict[str, Any], *, inverted: bool) -> "PartItem":
        raw = part.get("raw")
        score = None if raw is None else 9.0 - raw if inverted else float(raw)
        return cls(str(part.get("part") or ""), score, part.get("unscored"), str(part.get("reasoning") or ""))


@dataclass(frozen=True)
class PropositionItem:
    """One proposition with its fall, if it fell."""

    result: PropositionResult
    drop: PropositionDrop | None

    drifted: bool

    @property
    def low(self) -> bool:
        """Whether its recommendation matters: it dropped, or scores below the middle of the scale."""
        return self.drop is not None or (self.result.score is not None and self.result.score < LOW_SCORE)

    @property
    def bad(self) -> bool:
        """Whether it is part of a drift."""
        return self.drop is not None or (self.low and self.drifted)

    @property
    def chart(self) -> Markup:
        return bullet(self.result.score, self.drop.baseline if self.drop else None, bad=self.bad)

    @property
    def parts(self) -> list[PartItem]:
        """Its channels or actions, the lowest first."""
        parts = [PartItem.read(part, inverted=self.result.inverted) for part in self.result.parts]
        return sorted(parts, key=lambda part: -1.0 if part.score is None else part.score)


@dataclass(frozen=True)
class DimensionBlock:
    """One dimension of one agent: its cell, and its propositions with the worst first."""

    cell: ScoreCell

    @cached_property
    def propositions(self) -> list[PropositionItem]:
        if not self.cell.evaluation:
            return []
        drops = {drop.proposition_id: drop for drop in self.cell.drops}
        items = [
            PropositionItem(result, drops.get(result.id), self.cell.drifted)
            for result in self.cell.evaluation.propositions.values()
        ]
        return sorted(items, key=lambda item: (item.result.algorithmic, _rank(item.result), item.result.id))

    @property
    def statistics(self) -> list[tuple[str, str]]:
        return facts.scalar_facts(self.cell.evaluation.statistics) if self.cell.evaluation else []


@dataclass(frozen=True)
class AgentBlock:
    """One agent's part of the page. ``anchor`` is an id of ours, never the agent's."""

    row: AgentRow
    anchor: str
    points: list[sections.HistoryPoint]
    trends: dict[str, sections.TrendSeen]

    @cached_property
    def dimensions(self) -> list[DimensionBlock]:
        return [DimensionBlock(cell) for cell in self.row.cells if cell.evaluation or cell.comparison]

    @cached_property
    def mark(self) -> TrendMark | None:
        return trend_mark(self.points, self.trends)

    @property
    def spark(self) -> Markup | None:
        if len(self.points) < 2:
            return None
        return sparkline([point.overall for point in self.points], self.mark.index if self.mark else None)

    @cached_property
    def timeline(self) -> Figure | None:
        return timeline_figure(self.row.name, self.points, self.mark) if len(self.points) > 1 else None

    @cached_property
    def broken(self) -> list[BrokenClaim]:
        """The claims of a drift with quotes that stand in a message, worst first; each quote once, twelve at most."""
        claims: list[BrokenClaim] = []
        seen: set[tuple[str | None, str]] = set()
        for block in self.dimensions:
            for item in block.propositions:
                lines = []
                for evidence in item.result.evidence if item.bad else ():
                    key = (evidence.message_id, evidence.quote)
                    if evidence.verified and key not in seen and len(seen) < _MOST_BROKEN_LINES:
                        seen.add(key)
                        lines.append(evidence)
                if lines:
                    claims.append(BrokenClaim(item.result, lines))
        return claims

    @property
    def facts(self) -> list[tuple[str, str]]:
        evaluation = self.row.report.evaluation
        return [("Run", evaluation.run_id), *facts.agent_facts(evaluation.provenance)]


@dataclass(frozen=True)
class Page:
    """The whole document."""

    report: RunReport
    view: ReportView
    agents: list[AgentBlock]
    fading: list[Figure]
    voice_alarms: list[tuple[Figure, sections.VoiceSeen]]
    language: list[Figure]
    voices: Figure | None
    voice_map: sections.VoiceMap | None
    suites: list[sections.SuiteSummary]
    corrections: "CorrectionStatistics | None"
    correction_examples: dict[str, list[sections.Correction]]

    @property
    def tone(self) -> str:
        """``good``, ``bad`` (a drift) or ``warn`` (anything else that is not clean)."""
        if self.report.exit_code == EXIT_OK and self.agents:
            return "good"
        return "bad" if self.view.drifted or self.report.exit_code == EXIT_REGRESSION else "warn"

    @property
    def outcome(self) -> str:
        if self.view.new and len(self.view.new) == len(self.view.rows):
            return "no baseline yet"
        return OUTCOMES.get(self.report.exit_code, "failed")

    @property
    def findings(self) -> list[Finding]:
        return self.view.findings

    @cached_property
    def finding_groups(self) -> list[FindingGroup]:
        """The findings by agent and dimension, in the order they first appear."""
        names = {row.agent_id: row.name for row in self.view.rows}
        groups: dict[tuple[str | None, str | None], FindingGroup] = {}
        for finding in self.findings:
            agent = names.get(finding.agent_id or "", finding.agent_id)
            group = groups.setdefault(
                (finding.agent_id, finding.dimension), FindingGroup(agent, finding.dimension, [], [])
            )
            (group.drops if finding.kind == "proposition_drop" else group.main).append(finding)
        return list(groups.values())

    @property
    def warnings(self) -> list[tuple[str, str]]:
        return [(row.agent_id, warning) for row in self.view.rows for warning in row.report.comparison.warnings]

    @property
    def has_timeline(self) -> bool:
        return any(agent.timeline for agent in self.agents)

    @property
    def usage_facts(self) -> list[tuple[str, str]]:
        return facts.usage_facts(self.report.usage)

    @property
    def cost_columns(self) -> tuple[str, ...]:
        return costs.COLUMNS

    @cached_property
    def cost_tables(self) -> list[costs.CostTable]:
        return costs.cost_tables(self.report)

    @property
    def provenance_facts(self) -> list[tuple[str, str]]:
        return facts.provenance_facts(self.report)

    @property
    def navigation(self) -> list[tuple[str, str]]:
        """(anchor, title) of the sections that are there."""
        present = [
            ("scores", "Scores", bool(self.agents)),
            ("findings", "Findings", bool(self.findings or self.warnings)),
            ("timeline", "Timeline", self.has_timeline),
            ("agents", "Agents", bool(self.agents)),
            ("sight", "Sight", bool(self.view.sights)),
            ("fading", "Long conversations", bool(self.fading)),
            ("voice-alarm", "Voice alarm", bool(self.voice_alarms)),
            ("voices", "Voices", self.voices is not None),
            ("language", "Language", bool(self.language)),
            ("suites", "Suites", bool(self.suites)),
            ("corrections", "Corrections", self.corrections is not None),
            ("provenance", "Cost and provenance", True),
        ]
        return [(anchor, title) for anchor, title, there in present if there]


def build_page(report: RunReport) -> Page:
    """Return the page of a run; malformed ``statistics`` raise ``ConfigError``."""
    view = ReportView(report)
    histories, trends, fading = sections.history(report), sections.trends(report), sections.fading(report)
    voices, alarms = sections.voice_map(report), sections.voice_alarms(report)
    return Page(
        report=report,
        view=view,
        agents=[
            AgentBlock(row, f"agent-{index}", histories.get(row.agent_id, []), trends.get(row.agent_id, {}))
            for index, row in enumerate(sorted(view.rows, key=lambda row: row.severity), start=1)
        ],
        fading=[fading_figure(row.name, seen) for row in view.rows for seen in fading.get(row.agent_id, [])],
        voice_alarms=[
            (voice_alarm_figure(row.name, alarms[row.agent_id]), alarms[row.agent_id])
            for row in sorted(view.rows, key=lambda row: row.severity)
            if row.agent_id in alarms
        ],
        language=language_figures(view),
        voices=voice_figure(voices) if voices else None,
        voice_map=voices,
        suites=sections.suites(report),
        corrections=sections.corrections(report),
        correction_examples=sections.correction_examples(report),
    )


def _rank(result: PropositionResult) -> float:
    return -1.0 if result.score is None else result.score
