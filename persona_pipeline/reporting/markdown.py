"""The pull-request comment and GitHub's step summary."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from persona_pipeline.baselines.detectable import BLIND
from persona_pipeline.evaluation.report import Finding, Result, RunReport
from persona_pipeline.reporting.costs import COLUMNS, cost_tables
from persona_pipeline.reporting.facts import provenance_facts, usage_facts
from persona_pipeline.reporting.history import trend_mark
from persona_pipeline.reporting.people import estimate_text
from persona_pipeline.reporting.sections import fading, history, trends
from persona_pipeline.reporting.text import markdown_code, markdown_text
from persona_pipeline.reporting.view import (
    AgentRow,
    AgentStatus,
    ReportView,
    ScoreCell,
    dimension_label,
    format_delta,
    format_score,
    unscored_label,
    what_it_needs,
)

MARKER = "<!-- persona-pipeline -->"
COMMENT_LIMIT = 65_536
SUMMARY_LIMIT = 1_000_000
_ICONS = {AgentStatus.HELD: "✅", AgentStatus.FELL: "🔻", AgentStatus.CANNOT_TELL: "❔", AgentStatus.NOTHING: "⚪"}
_SIGNS = {Result.HELD: "✅", Result.FELL: "❌", Result.CANNOT_TELL: "❔"}
_MESSAGE_LIMIT = 600
_MOST_SIGHTS = 40


@dataclass
class _Section:
    """Lines that stay together at their start and end, with items between that may be left out."""

    head: list[str]
    items: list[str] = field(default_factory=list)
    foot: list[str] = field(default_factory=list)


def render_comment(report: RunReport, limit: int = COMMENT_LIMIT) -> str:
    """Return the pull-request comment: at most ``limit`` characters, with a notice where items had to be left out.

    It starts with ``MARKER``, by which the one comment is found and updated.
    """
    return _fit([_Section([MARKER]), *_sections(report)], limit)


def render_step_summary(report: RunReport, limit: int = SUMMARY_LIMIT) -> str:
    """Return Markdown for GitHub's step summary: the comment without its marker."""
    return _fit(list(_sections(report)), limit)


def _sections(report: RunReport) -> Iterator[_Section]:
    view = ReportView(report)
    for finding in report.findings:
        if finding.kind == "base":
            yield _Section([f"**{markdown_text(_capitalised(finding.message), _MESSAGE_LIMIT)}**", ""])
    yield _Section(
        [f"## {_SIGNS.get(report.conclusion.verdict or Result.CANNOT_TELL)} Persona evaluation: {view.headline}", ""]
    )
    if view.rows:
        yield _scores(view)
    regressions = [item for row in view.rows for item in _regressions(row)]
    if regressions:
        yield _Section(["### Regressions", ""], regressions, [""])
    drops = [item for row in view.rows for item in _drops(row)]
    if drops:
        yield _Section(["### Propositions that dropped", ""], drops, [""])
    unscored = [item for row in view.rows for item in _unscored(row)]
    if unscored:
        yield _Section(["### Not judged", ""], unscored, [""])
    changes = list(_changes(view))
    if changes:
        yield _Section(["### Over time", ""], changes, [""])
    others = list(_other_findings(view))
    if others:
        yield _Section(["### Also", ""], others, [""])
    if view.sights:
        yield _sights(view)
    for table in cost_tables(report):
        labels = [table.title, *COLUMNS]
        yield _Section(
            [
                "<details>",
                f"<summary>Cost by {table.title.lower()}</summary>",
                "",
                "| " + " | ".join(labels) + " |",
                "|:--|" + "--:|" * len(COLUMNS),
            ],
            [f"| {markdown_text(row.name)} | " + " | ".join(row.values) + " |" for row in table.rows],
            ["", "</details>", ""],
        )
    yield _Section(
        ["<details>", "<summary>Cost and provenance</summary>", "", "| | |", "|:--|:--|"],
        [
            f"| {markdown_text(name)} | {markdown_code(value, 300, in_table=True)} |"
            for name, value in (*usage_facts(report.usage), *provenance_facts(report))
        ],
        ["", "</details>"],
    )


def _capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]


def _scores(view: ReportView) -> _Section:
    labels = ["Agent", *(dimension_label(name) for name in view.dimensions), "Overall", "Judged"]
    return _Section(
        ["| " + " | ".join(markdown_text(label) for label in labels) + " |", "|:--|" + "--:|" * (len(labels) - 1)],
        [_row(row) for row in view.rows],
        [
            "",
            "Scores are 0–9 with the change against the baseline in brackets; 🔻 dropped further than allowed, ❔ cannot be told.",
            "",
            *(f"- {markdown_text(f'Judge: {text}')}" for text in view.people_lines),
            "",
        ],
    )


def _sights(view: ReportView) -> _Section:
    """Return the smallest fall that each dimension could have shown."""
    labels = ["Agent", *(dimension_label(name) for name in view.dimensions), "What the dullest needs"]
    rows = []
    for row, sights in view.dullest(_MOST_SIGHTS):
        cells = [
            f"{sights[name].detectable:.1f}{' ⚠️' if sights[name].detectable > BLIND else ''}" if name in sights else "–"
            for name in view.dimensions
        ]
        needs = markdown_text(what_it_needs(sights), 200) or "–"
        rows.append("| " + " | ".join([markdown_code(row.agent_id, 64, in_table=True), *cells, needs]) + " |")
    return _Section(
        [
            "<details>",
            "<summary>What this run could have seen: the smallest fall, in points</summary>",
            "",
            "| " + " | ".join(markdown_text(label) for label in labels) + " |",
            "|:--|" + "--:|" * (len(labels) - 2) + ":--|",
        ],
        rows,
        ["", f"Corrected for: {markdown_text(view.families)}.", "", "</details>", ""],
    )


def _row(row: AgentRow) -> str:
    cells = [
        f"{_ICONS[row.status]} {markdown_code(row.agent_id, 64, in_table=True)}",
        *(_cell(cell) for cell in row.cells),
        _score(row.overall, row.overall_delta, bold=row.status is AgentStatus.FELL),
        f"{row.n_scored}/{row.n_expected}",
    ]
    return "| " + " | ".join(cells) + " |"


def _cell(cell: ScoreCell) -> str:
    if cell.score is None:
        return f"*{cell.why_unscored}*" if cell.evaluation else "–"
    if cell.status == "no_baseline":
        return f"{format_score(cell.score)} (new)" + _people(cell)
    mark = " 🔻" if cell.drifted else " ❔" if cell.untold else ""
    return _score(cell.score, cell.delta, bold=cell.drifted) + mark + _people(cell)


def _people(cell: ScoreCell) -> str:
    text = estimate_text(cell.people)
    return f"<br>{text}" if text else ""


def _score(score: float | None, delta: float | None, *, bold: bool) -> str:
    text = format_score(score) + (f" ({format_delta(delta)})" if delta is not None else "")
    return f"**{text}**" if bold else text


def _regressions(row: AgentRow) -> Iterator[str]:
    for cell in row.cells:
        if cell.status != "regressed":
            continue
        text = (
            f"- {markdown_code(row.agent_id, 64)} **{markdown_text(dimension_label(cell.dimension))}** fell from "
            f"{format_score(cell.baseline)} to {format_score(cell.score)} ({format_delta(cell.delta)})"
        )
        if cell.comparison and cell.comparison.interval:
            low, high = cell.comparison.interval
            text += f", 95 % interval {format_delta(low)} to {format_delta(high)}"
        if cell.comparison and cell.comparison.p_value is not None:
            text += f", p = {cell.comparison.p_value:.3g}"
        yield text


def _drops(row: AgentRow) -> Iterator[str]:
    for drop in row.report.comparison.drops:
        text = (
            f"- {markdown_code(row.agent_id, 64)} {markdown_code(drop.proposition_id, 120)} "
            f"({markdown_text(dimension_label(drop.dimension))}) fell from {format_score(drop.baseline)} to "
            f"{format_score(drop.current)} ({format_delta(drop.delta)})"
        )
        if drop.claim:
            text += f": {markdown_text(drop.claim, _MESSAGE_LIMIT)}"
        if drop.recommendation:
            text += f" *To do:* {markdown_text(drop.recommendation, _MESSAGE_LIMIT)}"
        yield text


def _unscored(row: AgentRow) -> Iterator[str]:
    for dimension, result in row.failures:
        text = (
            f"- {markdown_code(row.agent_id, 64)} {markdown_code(result.id, 120)} "
            f"({markdown_text(dimension_label(dimension))}): {unscored_label(result.unscored)}"
        )
        if result.detail:
            text += f", {markdown_text(result.detail, _MESSAGE_LIMIT)}"
        elif result.unscored == "unrecorded":
            text += ", for the persona, the claim or the messages changed since they were recorded"
        yield text
    for remedy in dict.fromkeys(finding.remedy for finding in row.report.findings if finding.kind == "coverage"):
        if remedy:
            yield f"- To do for {markdown_code(row.agent_id, 64)}: {markdown_code(remedy, _MESSAGE_LIMIT)}"


def _changes(view: ReportView) -> Iterator[str]:
    """Yield what has been falling for weeks, for runs that know earlier windows, and what fades in long conversations."""
    points = history(view.report)
    for agent_id, found in sorted(trends(view.report).items()):
        if mark := trend_mark(points.get(agent_id, []), found):
            yield f"- {markdown_code(agent_id, 64)} {markdown_text(mark.text, _MESSAGE_LIMIT)}"
    for agent_id, seen in sorted(fading(view.report).items()):
        for item in seen:
            yield f"- {markdown_code(agent_id, 64)} {markdown_text(f'{item.signal}: {item.text}', _MESSAGE_LIMIT)}"


def _other_findings(view: ReportView) -> Iterator[str]:
    """Yield what no other section names: thresholds, missing baselines, budgets, and the comparison's warnings."""
    for finding in view.findings:
        if finding.kind in ("regression", "proposition_drop", "base") or (
            finding.kind == "coverage" and _is_listed(finding, view)
        ):
            continue
        yield f"- {markdown_text(finding.text, _MESSAGE_LIMIT)}"
    for row in view.rows:
        for warning in row.report.comparison.warnings:
            yield f"- {markdown_code(row.agent_id, 64)} {markdown_text(warning, _MESSAGE_LIMIT)}"


def _is_listed(finding: Finding, view: ReportView) -> bool:
    """Whether the judgments a coverage finding counts are listed one by one."""
    return any(
        row.agent_id == finding.agent_id and dimension == finding.dimension
        for row in view.rows
        for dimension, _ in row.failures
    )


def _fit(sections: Iterable[_Section], limit: int) -> str:
    """Join the sections in at most ``limit`` characters: heads and feet stay, items are left out from the end of each."""
    sections = list(sections)
    notice = "*Shortened: {} more lines are in the full report, an artefact of this run.*"
    fixed = sum(len(line) + 1 for section in sections for line in (*section.head, *section.foot))
    room = limit - fixed - (len(notice) + 24) * len(sections)
    lines: list[str] = []
    for section in sections:
        kept = 0
        for item in section.items:
            if len(item) + 1 > room:
                break
            room -= len(item) + 1
            kept += 1
        lines += [*section.head, *section.items[:kept]]
        if kept < len(section.items):
            lines += ["", notice.format(len(section.items) - kept)]
        lines += section.foot
    return "\n".join(lines) + "\n"
