"""What the HTML templates show, worked out in Python so that they hold no logic."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from persona_pipeline.baselines.models import Sight
from persona_pipeline.evaluation.report import EXIT_REGRESSION, Finding, Result, RunReport
from persona_pipeline.reporting import costs, facts, sections
from persona_pipeline.reporting.html.agent_blocks import AgentBlock
from persona_pipeline.reporting.html.figures import (
    Figure,
    fading_figure,
    language_figures,
    voice_alarm_figure,
    voice_figure,
)
from persona_pipeline.reporting.many import MANY, AgentLine, agent_lines, shown_whole
from persona_pipeline.reporting.view import AgentRow, ReportView, verdict_label

if TYPE_CHECKING:
    from persona_pipeline.corrections.statistics import CorrectionStatistics, GateStatistics

_TONES = {Result.HELD: "good", Result.FELL: "bad", Result.CANNOT_TELL: "warn"}


@dataclass(frozen=True)
class FindingGroup:
    """The findings of one agent and dimension: what happened, and below it the propositions that dropped."""

    agent: str | None
    dimension: str | None
    main: list[Finding]
    drops: list[Finding]

    @property
    def bad(self) -> bool:
        return any(finding.exit_code == EXIT_REGRESSION for finding in (*self.main, *self.drops))


@dataclass(frozen=True)
class Page:
    """The whole document."""

    report: RunReport
    view: ReportView
    agents: list[AgentBlock]
    lines: list[AgentLine]
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
        """``good`` (held), ``bad`` (something fell) or ``warn`` (it cannot be told)."""
        return _TONES[self.report.conclusion.verdict] if self.report.conclusion.verdict else "warn"

    @property
    def outcome(self) -> str:
        if self.view.new and len(self.view.new) == len(self.view.rows):
            return "no baseline yet"
        return verdict_label(self.report.conclusion)

    @cached_property
    def shown(self) -> set[str]:
        """The agents of which more than a line is said."""
        return {agent.row.agent_id for agent in self.agents}

    @cached_property
    def findings(self) -> list[Finding]:
        return self.view.findings

    @cached_property
    def finding_groups(self) -> list[FindingGroup]:
        """The findings by agent and dimension, in the order they first appear; those of an agent shown in a line stand there."""
        names = {row.agent_id: row.name for row in self.view.rows}
        shown = [item for item in self.findings if item.agent_id not in names or item.agent_id in self.shown]
        groups: dict[tuple[str | None, str | None], FindingGroup] = {}
        for finding in shown:
            agent = names.get(finding.agent_id or "", finding.agent_id)
            group = groups.setdefault(
                (finding.agent_id, finding.dimension), FindingGroup(agent, finding.dimension, [], [])
            )
            (group.drops if finding.kind == "proposition_drop" else group.main).append(finding)
        return list(groups.values())

    @property
    def warnings(self) -> list[tuple[str, str]]:
        rows = [agent.row for agent in self.agents]
        return [
            (row.agent_id, warning)
            for row in sorted(rows, key=lambda row: row.agent_id)
            for warning in row.report.comparison.warnings
        ]

    @cached_property
    def sights(self) -> list[tuple[AgentRow, dict[str, Sight]]]:
        """What the windows of the agents that are shown could have seen."""
        return [(row, sights) for row, sights in self.view.sights if row.agent_id in self.shown]

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
        return [table.shortened(MANY) for table in costs.cost_tables(self.report)]

    @property
    def correction_rows(self) -> "list[tuple[str, GateStatistics]]":
        """What the gate did by agent; of many, those it had to do most with."""
        rows = sorted(self.corrections.agents.items()) if self.corrections else []
        if len(rows) > MANY:
            rows = sorted(rows, key=lambda row: -(row[1].forced + row[1].fail_open + row[1].rejections))[:MANY]
        return rows

    @property
    def provenance_facts(self) -> list[tuple[str, str]]:
        return facts.provenance_facts(self.report)

    @property
    def navigation(self) -> list[tuple[str, str]]:
        """(anchor, title) of the sections that are there."""
        present = [
            ("everybody", "Everybody", bool(self.lines)),
            ("scores", "Scores", bool(self.agents)),
            ("findings", "Findings", bool(self.findings or self.warnings)),
            ("timeline", "Timeline", self.has_timeline),
            ("agents", "Agents", bool(self.agents)),
            ("sight", "Sight", bool(self.sights)),
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
    whole = shown_whole(view.rows)
    agents = [
        AgentBlock(row, f"agent-{index}", histories.get(row.agent_id, []), trends.get(row.agent_id, {}))
        for index, row in enumerate(whole, start=1)
    ]
    by_name = sorted(whole, key=lambda row: row.agent_id)
    return Page(
        report=report,
        view=view,
        agents=agents,
        lines=agent_lines(view.rows, {agent.row.agent_id: agent.anchor for agent in agents}, histories),
        fading=[fading_figure(row.name, seen) for row in by_name for seen in fading.get(row.agent_id, [])],
        voice_alarms=[
            (voice_alarm_figure(row.name, alarms[row.agent_id]), alarms[row.agent_id])
            for row in whole
            if row.agent_id in alarms
        ],
        language=language_figures(by_name),
        voices=voice_figure(voices) if voices else None,
        voice_map=voices,
        suites=sections.suites(report),
        corrections=sections.corrections(report),
        correction_examples=sections.correction_examples(report),
    )
