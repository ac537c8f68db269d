"""A run's page in a browser: each agent with its claims, its lines out of character and its history, and sections on all agents."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from markupsafe import Markup

from persona_pipeline.guard.baselines.models import Power, PropositionDrop
from persona_pipeline.guard.known_drift import OUT_OF_CHARACTER
from persona_pipeline.guard.report import EXIT_OK, RunReport
from persona_pipeline.reporting.charts import Json, bullet, small_line, timeline_figure
from persona_pipeline.reporting.page import (
    Agent,
    Cell,
    Column,
    Drawn,
    Figure,
    Item,
    Items,
    Page,
    PageCard,
    PageRow,
    Score,
    Section,
    Span,
    Table,
    Tone,
    with_code,
)
from persona_pipeline.reporting.pages.evaluation import (
    WORST,
    RowCharts,
    agent_cell,
    agent_lines,
    cost_tables,
    dimension_column,
    finding_item,
    named_values,
    provenance_facts,
    score_of,
    scores_table,
    tone_of,
    usage_facts,
    warning_items,
)
from persona_pipeline.reporting.terminal import plain_text
from persona_pipeline.reporting.text import asset, format_usd, one_line
from persona_pipeline.reporting.view import (
    FACTS,
    MANY,
    UNREAD,
    AgentRow,
    ReportView,
    ScoreCell,
    dropped,
    shown_whole,
)
from persona_pipeline.scoring.messages.verdicts import count_kinds
from persona_pipeline.scoring.results import LOW_SCORE, PropositionResult, QuotedEvidence

# Most lines below the heading that name agents that need a look.
_MOST_BEFORE = 3
# Most windows in the small chart of an agent's table row, and most characters of the finding there.
MOST_DRAWN, _MOST_WORDS = 24, 160


@dataclass(frozen=True)
class PropositionItem:
    result: PropositionResult
    drop: PropositionDrop | None
    drifted: bool

    @property
    def low(self) -> bool:
        """Whether its recommendation matters: it dropped, or scores below the middle of the scale."""
        return self.drop is not None or (self.result.score is not None and self.result.score < LOW_SCORE)

    @property
    def bad(self) -> bool:
        return self.drop is not None or (self.low and self.drifted)

    @property
    def quotes(self) -> list[QuotedEvidence]:
        """The judge's quotes, each once: samples quote the same text, or a part of it."""
        found = {(item.message_id, item.quote): item for item in self.result.evidence}

        def is_part(item: QuotedEvidence) -> bool:
            return any(where == item.message_id and item.quote in text != item.quote for where, text in found)

        return [item for item in found.values() if not is_part(item)]

    @property
    def chart(self) -> Markup:
        return bullet(self.result.score, self.drop.baseline if self.drop else None, bad=self.bad)

    @property
    def parts(self) -> list[dict[str, Any]]:
        """The channels or actions it was judged on, the lowest first; scores 0-9, higher is better."""
        parts = [
            {
                "name": str(part.get("part") or ""),
                "score": self._good(part.get("raw")),
                "unscored": part.get("unscored"),
                "reasoning": str(part.get("reasoning") or ""),
            }
            for part in self.result.parts
        ]
        return sorted(parts, key=lambda part: _lowest_first(part["score"]))

    def _good(self, raw: float | None) -> float | None:
        return None if raw is None else 9.0 - raw if self.result.inverted else float(raw)


@dataclass(frozen=True)
class DimensionBlock:
    """A dimension of an agent: its cell, and its propositions with the worst first."""

    cell: ScoreCell

    @cached_property
    def propositions(self) -> list[PropositionItem]:
        if not self.cell.evaluation:
            return []
        drops = {drop.proposition_id: drop for drop in self.cell.drops}
        results = list(self.cell.evaluation.propositions.values())
        results.sort(key=lambda item: (item.algorithmic, _lowest_first(item.score), item.id))
        return [PropositionItem(result, drops.get(result.id), self.cell.drifted) for result in results]

    @property
    def bar(self) -> Markup | None:
        return cell_bar(self.cell)


@dataclass(frozen=True)
class AgentBlock:
    """One agent's part of the page. ``anchor`` is an id of ours, never the agent's."""

    row: AgentRow
    anchor: str
    points: Sequence[Json]

    @cached_property
    def dimensions(self) -> list[DimensionBlock]:
        return [DimensionBlock(cell) for cell in self.row.cells if cell.evaluation or cell.comparison]

    @cached_property
    def charts(self) -> RowCharts:
        line = small_line([point["overall"] for point in self.points])
        return RowCharts([cell_bar(cell) for cell in self.row.cells], line or None)

    @cached_property
    def timeline(self) -> Figure | None:
        if len(self.points) < 2:
            return None
        return replace(timeline_figure(self.row.name, self.points), href=f"#{self.anchor}")

    @property
    def reason(self) -> str:
        """Why it has its verdict; "" where its messages out of character say so."""
        reason = self.row.conclusion.reason
        is_said = self.row.worst and reason.removeprefix(f"{self.row.agent_id}: ") in dropped(self.row)
        return "" if is_said else reason

    @property
    def facts(self) -> list[tuple[str, str]]:
        evaluation = self.row.report.evaluation
        return [("Run", evaluation.run_id), *named_values(evaluation.provenance)]


def _lowest_first(score: float | None) -> float:
    return -1.0 if score is None else score


def cell_bar(cell: ScoreCell) -> Markup | None:
    return None if cell.score is None else bullet(cell.score, cell.baseline, bad=cell.drifted, interval=cell.interval)


def whole_page(report: RunReport) -> Page:
    """Return the whole report, with charts."""
    view = ReportView(report)
    count, is_new = len(view.findings), bool(view.new) and len(view.new) == len(view.rows)
    before = list(agent_lines(view))[:_MOST_BEFORE]
    outcome = "no baseline yet" if is_new else report.conclusion.status.word
    return Page(
        view.headline,
        sections=_sections(report, view, before),
        before=before,
        tone=tone_of(view),
        label="Persona evaluation",
        summary=[
            (f"{len(view.rows):,}", "agent" if len(view.rows) == 1 else "agents"),
            (str(len(view.dimensions)), "dimensions"),
            (str(count), "finding" if count == 1 else "findings"),
            (format_usd(report.usage.usd), "judge cost"),
            (str(report.exit_code), f"exit code, {outcome}"),
        ],
    )


def _sections(report: RunReport, view: ReportView, before: Sequence[Item]) -> list[Section]:
    histories = report.statistics.get("history", {})
    agents = [
        AgentBlock(row, f"agent-{index}", histories.get(row.agent_id, []))
        for index, row in enumerate(shown_whole(view.rows), start=1)
    ]
    shown = {agent.row.agent_id: agent for agent in agents}
    by_name = sorted((agent.row for agent in agents), key=lambda row: row.agent_id)
    few = len(agents) == len(view.rows)
    found = [
        None if few else _everybody(view, shown, histories),
        _scores(view, shown, few) if agents else None,
        _worst(view, shown, before),
        _findings(view, shown),
        _timelines(agents),
        Section("Agents", [Drawn("agents.html.j2", {"agents": agents})], "agents") if agents else None,
    ]
    rest = filter(None, (_power(view, shown), _kinds(by_name), _provenance(report)))
    leads = tomllib.loads(asset("leads.toml"))
    every = [*found, *(replace(section, folded=True) for section in rest)]
    return [replace(section, lead=section.lead or leads.get(section.id, "")) for section in every if section]


def _worst(view: ReportView, shown: Mapping[str, AgentBlock], before: Sequence[Item]) -> Section | None:
    """Return messages out of character of the shown agents, each with the message it answers and one in character.

    ``before``: the first lines of the page; what they say of an agent is not said again.
    """
    said = "\n".join(plain_text(item.line) for item in before)
    found = [
        (row, shown[row.agent_id].anchor, "; ".join(text for text in dropped(row) if one_line(text) not in said))
        for row in view.quoted
        if row.agent_id in shown
    ]
    drawn = Drawn("broken.html.j2", {"agents": found, "names": view.names})
    return Section(WORST, [drawn], "broken", short="Lines") if found else None


def _timelines(agents: Sequence[AgentBlock]) -> Section | None:
    """Return the histories of agents that need a look; if none does, of all."""
    needed = [agent for agent in agents if agent.row.needs_a_look] or agents
    figures = [agent.timeline for agent in needed if agent.timeline]
    return Section("Drift over time", figures, "timeline", short="Timeline") if figures else None


def _kinds(rows: Sequence[AgentRow]) -> Section | None:
    """Return how many messages of agents are out of character, by the claim they break and early or late in the conversation."""
    found = list[list[str]]()
    for row in rows:
        kinds = count_kinds(row.messages.verdicts if row.messages else [])
        counts = {claim or FACTS: count for claim, count in kinds.claims.items()}
        if counts:
            counts |= {f"messages {part} of a conversation": count for part, count in kinds.parts.items()}
        if counts and len(kinds.places) > 1:
            counts |= {place: count for place, count in kinds.places.items() if count.out}
        found += [[row.name, kind, str(count.out), str(count.total)] for kind, count in counts.items()]
    columns = [Column("Agent", number=False), Column("Claim, or place", number=False), Column("Out"), Column("Of")]
    table = Table("Out of character, by claim", columns, list(map(PageRow, found)))
    return Section(table.label, [table], "kinds", short="By claim") if found else None


def _everybody(view: ReportView, shown: dict[str, AgentBlock], histories: Mapping[str, Sequence[Json]]) -> Section:
    """Return the table of all agents, one row each; those that need a look come first."""
    hrefs = {agent_id: f"#{agent.anchor}" for agent_id, agent in shown.items()}
    rows = []
    for row in sorted(view.rows, key=lambda row: row.severity):
        state = Cell(row.status.word.capitalize(), note=_wrong(row), style=row.status.name)
        scores = [score_of(cell) for cell in row.cells]
        line = small_line([point["overall"] for point in histories.get(row.agent_id, [])[-MOST_DRAWN:]])
        judged = f"{row.n_scored}/{row.n_expected}"
        whole = Score(row.overall, row.overall_delta, whole=True)
        rows.append(PageRow([agent_cell(row, hrefs), state, *scores, whole, Cell("", chart=line), judged]))
    columns = [Column("Agent", number=False), Column("State", number=False), *map(dimension_column, view.dimensions)]
    columns += [Column("Overall"), Column("History", number=False), Column("Judged")]
    lead = [
        f"A line an agent, those that need a look first. The first {len(shown)} are shown with their claims below; of the others, ",
        Span("persona-pipeline report --agents", "code"),
        " with their names says as much.",
    ]
    return Section("Everybody", [Table("Table of everybody", columns, rows, style="lines")], "everybody", lead)


def _wrong(row: AgentRow) -> str:
    """Return the first thing that is wrong, and how many more there are."""
    said = [finding.message for finding in row.report.findings if finding.exit_code != EXIT_OK]
    more = f" (and {len(said) - 1} more)" if len(said) > 1 else ""
    return one_line(said[0], _MOST_WORDS) + more if said else ""


def _scores(view: ReportView, shown: dict[str, AgentBlock], few: bool) -> Section:
    hrefs = {agent_id: f"#{agent.anchor}" for agent_id, agent in shown.items()}
    charts = {agent_id: agent.charts for agent_id, agent in shown.items()}
    table = scores_table(view, [agent.row for agent in shown.values()], hrefs=hrefs, charts=charts)
    unread = [UNREAD] if view.is_unread else []
    judge = [Item(with_code(f"{text}.")) for text in [*view.judge_lines, *unread]]
    return Section("Scores" if few else "Those to look at first", [table, *judge], "scores", short="Scores")


def _findings(view: ReportView, shown: dict[str, AgentBlock]) -> Section | None:
    """Return the findings; those of an agent that has only a table row are in that row, and dropped claims with their agents."""
    told = [item for item in view.findings if item.agent_id not in view.names or item.agent_id in shown]
    # Their messages say it already.
    quoted = {row.agent_id for row in view.quoted}
    told = [item for item in told if item.kind != OUT_OF_CHARACTER or item.agent_id not in quoted]
    lines = [finding_item(item) for item in told if item.kind != "proposition_drop"]
    lines += warning_items(agent.row for _, agent in sorted(shown.items()))
    return Section("What went wrong", [Items(lines)], "findings", short="Findings") if lines else None


def _power(view: ReportView, shown: dict[str, AgentBlock]) -> Section | None:
    """Return the smallest detectable drop of each dimension, and the sample needed to detect a smaller one."""
    tested = [row for row in view.rows if row.agent_id in shown and any(map(_power_of, row.cells))]
    columns = [Column("Agent", number=False), *map(dimension_column, view.dimensions)]
    rows = [PageRow([Agent(row.agent_id, row.name, ""), *map(_power_cell, row.cells)]) for row in tested]
    note = [Span("Multiple-testing correction: ", "own"), f"{view.families}."] if view.families else ""
    table = Table("Table of detection limits", columns, rows, note, "power")
    return Section("Detection limits", [table], "power") if rows else None


def _power_of(cell: ScoreCell) -> Power | None:
    return cell.comparison.power if cell.comparison else None


def _power_cell(cell: ScoreCell) -> Cell:
    if (power := _power_of(cell)) is None:
        return Cell("", note="not tested", own=True)
    tone: Tone = "warn" if power.missed else ""
    note = power.text.partition("; ")[2]
    return Cell(power.shown, tone, note, own=True, style="blind" if power.missed else "")


def _provenance(report: RunReport) -> Section:
    cost = PageCard("Cost", [usage_facts(report.usage)])
    rests = PageCard("What the scores rest on", [provenance_facts(report)])
    return Section("Cost and provenance", [cost, rests, *cost_tables(report, MANY)], "provenance")
