"""A run's report in short, for a terminal or a notebook, and as a pull request's comment; the scores as every report has them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from persona_pipeline.guard.baselines.models import BLIND, Sight
from persona_pipeline.guard.report import EXIT_REGRESSION, Result, RunReport
from persona_pipeline.reporting import statistics as sections
from persona_pipeline.reporting.charts.figures import trend_mark
from persona_pipeline.reporting.page import (
    Agent,
    Block,
    Cell,
    Column,
    Folded,
    Item,
    Items,
    Line,
    Page,
    PageRow,
    Score,
    Section,
    Span,
    Table,
    Tone,
)
from persona_pipeline.reporting.pages.costs import cost_tables, provenance_facts, usage_facts
from persona_pipeline.reporting.text import cost_line, format_delta, format_score, one_line, unscored_label
from persona_pipeline.reporting.view import (
    MANY,
    SHORT_LABELS,
    AgentRow,
    AgentStatus,
    ReportView,
    ScoreCell,
    dimension_label,
    estimate_text,
)

TONES: dict[Result | None, Tone] = {Result.HELD: "good", Result.FELL: "bad", Result.CANNOT_TELL: "warn"}
_ROW_TONES: dict[AgentStatus, Tone] = {
    AgentStatus.FELL: "bad",
    AgentStatus.CANNOT_TELL: "warn",
    AgentStatus.NOTHING: "dim",
    AgentStatus.HELD: "",
}
_MOST_TEXT, _MOST_ID, _MOST_CLAIM_ID = 600, 64, 120
_MOST_SIGHTS, _MOST_SIGHT_LINES = 40, 5


def short_page(report: RunReport, *, exits: bool = True) -> Page:
    """Return what a terminal or a notebook has room for: findings, what to do, the scores, and the run in a sentence.

    Args:
        exits: whether the process ends with the report's exit code, which is said then.
    """
    view = ReportView(report)
    findings = [
        Item(finding.message, kind=finding.kind, tone="bad" if finding.exit_code == EXIT_REGRESSION else "warn")
        for finding in view.findings
    ]
    # One command mends many findings.
    remedies = dict.fromkeys(finding.remedy for finding in view.findings if finding.remedy)
    findings += [Item(remedy, kind="to do", tone="warn") for remedy in remedies]
    findings += [Item(text, kind=f"warning: {agent}", tone="warn") for agent, text in _warnings(view.rows)]
    ending = f" Exit code {report.exit_code}." if exits else ""
    judge = [Item(text, kind="judge", tone="dim") for text in view.people_lines]
    top: list[Block] = [
        Item(f"{view.headline}. {cost_line(report.usage)}{ending}"),
        Items([*_sight_lines(view), *judge]),
    ]
    if view.rows:
        shown = view.rows if len(view.rows) <= MANY else sorted(view.rows, key=lambda row: row.severity)[:MANY]
        left = len(view.rows) - len(shown)
        note = f"and {left} other agents, which need a look less" if left else ""
        top.append(replace(scores_table(view, shown), note=note))
    return Page(view.headline, top, [Section("", [Items(findings)])], tone=TONES.get(report.conclusion.verdict, "warn"))


def comment_page(report: RunReport) -> Page:
    """Return the comment of a pull request: the scores, then what made them, by name."""
    view = ReportView(report)
    before = [
        Item([Span(finding.message[:1].upper() + finding.message[1:], "strong", _MOST_TEXT)])
        for finding in report.findings
        if finding.kind == "base"
    ]
    top: list[Block] = []
    if view.rows:
        top = [scores_table(view), Items([Item(f"Judge: {text}") for text in view.people_lines])]
    lists: dict[str, list[Line]] = {
        "Regressions": [line for row in view.rows for line in _regressions(row)],
        "Propositions that dropped": [line for row in view.rows for line in _drops(row)],
        "Not judged": [line for row in view.rows for line in _unscored(row)],
        "Over time": list(_over_time(view)),
        "Also": list(_other_findings(view)),
    }
    found = [Section(title, [Items.of(*lines)]) for title, lines in lists.items() if lines]
    folded: list[Block] = []
    if view.sights:
        table = sight_table(view, view.dullest(_MOST_SIGHTS), each=False)
        folded.append(Folded("What this run could have seen: the smallest fall, in points", [table]))
    folded += [Folded(table.label, [table]) for table in cost_tables(report)]
    rests = [*usage_facts(report.usage).pairs, *provenance_facts(report).pairs]
    folded.append(Folded("Cost and provenance", [replace(usage_facts(report.usage), pairs=rests)]))
    return Page(
        view.headline,
        top,
        [*found, Section("", folded)],
        before,
        TONES.get(report.conclusion.verdict, "warn"),
        "Persona evaluation",
    )


@dataclass(frozen=True)
class RowCharts:
    """What is drawn in a row of scores: a bar a dimension, and the line of the overall score."""

    cells: Sequence[Markup | None]
    overall: Markup | None = None


def scores_table(
    view: ReportView,
    rows: Sequence[AgentRow] | None = None,
    *,
    hrefs: Mapping[str, str] | None = None,
    charts: Mapping[str, RowCharts] | None = None,
    style: str = "scores",
) -> Table:
    """Return a row an agent: its dimensions and overall score beside the baselines. What every report shows of scores is here.

    Args:
        rows: by default everybody's.
        hrefs: addresses of agents within the page; ``charts``: what is drawn, where anything is.
    """
    columns = [
        Column("Agent", number=False),
        *(Column(label, SHORT_LABELS.get(label.lower(), "")) for label in map(dimension_label, view.dimensions)),
        Column("Overall"),
        Column("Judged", SHORT_LABELS["judged"]),
    ]
    found = []
    for row in view.rows if rows is None else rows:
        drawn = (charts or {}).get(row.agent_id, RowCharts([None] * len(row.cells)))
        state = "fell" if row.status is AgentStatus.FELL else ""
        cells = [
            agent_cell(row, hrefs),
            *(score_of(cell, chart) for cell, chart in zip(row.cells, drawn.cells, strict=True)),
            Score(row.overall, row.overall_delta, state, chart=drawn.overall, whole=True),
            Cell(f"{row.n_scored}/{row.n_expected}", own=True),
        ]
        found.append(PageRow(cells, _ROW_TONES[row.status]))
    return Table("Table of scores", columns, found, style=style)


def agent_cell(row: AgentRow, hrefs: Mapping[str, str] | None = None) -> Agent:
    """Return who a row is about."""
    return Agent(row.agent_id, row.name, row.status.value, (hrefs or {}).get(row.agent_id, ""))


def score_of(cell: ScoreCell, chart: Markup | None = None) -> Score:
    """Return a dimension's score as a cell."""
    new = cell.status == "no_baseline"
    state = "new" if new else "fell" if cell.drifted else "untold" if cell.untold else ""
    why = cell.why_unscored if cell.evaluation else ""
    people = (estimate_text(cell.people), estimate_text(cell.people, short=True))
    return Score(cell.score, None if new else cell.delta, state, why, people, chart)


def sight_table(view: ReportView, found: Sequence[tuple[AgentRow, dict[str, Sight]]], *, each: bool) -> Table:
    """Return the smallest fall that each dimension could have shown.

    Args:
        each: with what each of them needs to see a fall of 1.0; else with what the least sharp one needs.
    """
    labels = [Column(dimension_label(name)) for name in view.dimensions]
    needs = [] if each else [Column("What the dullest needs", number=False)]
    rows = []
    for row, sights in found:
        cells = [_sight(sights.get(name), each) for name in view.dimensions]
        last = [] if each else [one_line(what_it_needs(sights), 200) or "–"]
        rows.append(PageRow([Agent(row.agent_id, row.name, ""), *cells, *last]))
    note = [_own("Corrected for: "), view.families, _own(".")] if view.families else ""
    label = "Table of the smallest fall that would be seen"
    return Table(label, [Column("Agent", number=False), *labels, *needs], rows, note, "sight")


def _sight(sight: Sight | None, each: bool) -> Cell:
    if sight is None:
        return Cell("" if each else "–", note="not tested" if each else "", own=True)
    blind = sight.detectable > BLIND
    note = sight.text.split("; ")[-1] if each and "; " in sight.text else ""
    return Cell(f"{sight.detectable:.1f}", "warn" if blind else "", note, own=True, style="blind" if blind else "")


def what_it_needs(sights: Mapping[str, Sight]) -> str:
    """Return what the dimension that can see least needs to see a fall of 1.0; "" where it does already."""
    name, sight = max(sights.items(), key=lambda item: item[1].detectable)
    return f"{dimension_label(name).lower()}: {sight.text.split('; ')[-1]}" if "; " in sight.text else ""


def _sight_lines(view: ReportView) -> Iterator[Item]:
    """Yield what each agent's window could have seen, what the least sharp of its dimensions needs, and the families."""
    shown = view.dullest(_MOST_SIGHT_LINES)
    for row, sights in shown:
        falls = ", ".join(
            f"{dimension_label(name).lower()} {sight.detectable:.1f}{' (blind)' if sight.detectable > BLIND else ''}"
            for name, sight in sights.items()
        )
        needs = what_it_needs(sights)
        said = f"{one_line(row.agent_id, 40)}: a fall of {falls}{f'; {needs}' if needs else ''}"
        yield Item(said, kind="sees", tone="dim")
    if len(shown) < len(view.sights):
        more = f"{len(view.sights) - len(shown)} other agents can see as small a fall or a smaller one"
        yield Item(more, kind="sees", tone="dim")
    if view.families:
        yield Item(view.families, kind="corrected for", tone="dim")


def _warnings(rows: Iterable[AgentRow]) -> list[tuple[str, str]]:
    return [(row.agent_id, warning) for row in rows for warning in row.report.comparison.warnings]


def _own(text: str) -> Span:
    return Span(text, "own")


def _agent(row: AgentRow) -> Span:
    return Span(row.agent_id, "code", _MOST_ID)


def _regressions(row: AgentRow) -> Iterator[Line]:
    for cell in row.cells:
        if cell.status != "regressed":
            continue
        text = f" fell from {format_score(cell.baseline)} to {format_score(cell.score)} ({format_delta(cell.delta)})"
        if cell.comparison and cell.comparison.interval:
            low, high = cell.comparison.interval
            text += f", 95 % interval {format_delta(low)} to {format_delta(high)}"
        if cell.comparison and cell.comparison.p_value is not None:
            text += f", p = {cell.comparison.p_value:.3g}"
        yield [_agent(row), _own(" "), Span(dimension_label(cell.dimension), "strong"), _own(text)]


def _drops(row: AgentRow) -> Iterator[Line]:
    for drop in row.report.comparison.drops:
        fell = f"{format_score(drop.baseline)} to {format_score(drop.current)} ({format_delta(drop.delta)})"
        line = [*_claim(row, drop.proposition_id, drop.dimension), _own(f" fell from {fell}")]
        if drop.claim:
            line += [_own(": "), Span(drop.claim, limit=_MOST_TEXT)]
        if drop.recommendation:
            line += [_own(" "), Span("To do:", "em"), _own(" "), Span(drop.recommendation, limit=_MOST_TEXT)]
        yield line


def _claim(row: AgentRow, claim: str, dimension: str) -> list[str | Span]:
    label = dimension_label(dimension)
    return [_agent(row), _own(" "), Span(claim, "code", _MOST_CLAIM_ID), _own(" ("), label, _own(")")]


def _unscored(row: AgentRow) -> Iterator[Line]:
    for dimension, result in row.failures:
        line = [*_claim(row, result.id, dimension), _own(f": {unscored_label(result.unscored)}")]
        if result.detail:
            line += [_own(", "), Span(result.detail, limit=_MOST_TEXT)]
        elif result.unscored == "unrecorded":
            line.append(_own(", for the persona, the claim or the messages changed since they were recorded"))
        yield line
    for remedy in dict.fromkeys(finding.remedy for finding in row.report.findings if finding.kind == "coverage"):
        if remedy:
            yield [_own("To do for "), _agent(row), _own(": "), Span(remedy, "code", _MOST_TEXT)]


def _over_time(view: ReportView) -> Iterator[Line]:
    """Yield what has been falling for weeks, for runs that know earlier windows, and what fades in long conversations."""
    points = sections.history(view.report)
    for agent_id, found in sorted(sections.trends(view.report).items()):
        if mark := trend_mark(points.get(agent_id, []), found):
            yield [Span(agent_id, "code", _MOST_ID), _own(" "), Span(mark.text, limit=_MOST_TEXT)]
    for agent_id, seen in sorted(sections.fading(view.report).items()):
        for item in seen:
            said = Span(f"{item.signal}: {item.text}", limit=_MOST_TEXT)
            yield [Span(agent_id, "code", _MOST_ID), _own(" "), said]


def _other_findings(view: ReportView) -> Iterator[Line]:
    """Yield what no other section names: thresholds, missing baselines, budgets, and the comparison's warnings."""
    # What a coverage finding counts is listed one by one.
    listed = {(row.agent_id, dimension) for row in view.rows for dimension, _ in row.failures}
    for finding in view.findings:
        counted = finding.kind == "coverage" and (finding.agent_id, finding.dimension) in listed
        if finding.kind not in ("regression", "proposition_drop", "base") and not counted:
            yield [Span(finding.text, limit=_MOST_TEXT)]
    for agent_id, warning in _warnings(view.rows):
        yield [Span(agent_id, "code", _MOST_ID), _own(" "), Span(warning, limit=_MOST_TEXT)]
