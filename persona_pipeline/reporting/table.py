"""The scores table for a terminal or a log."""

import io
import sys
from collections.abc import Iterator
from typing import TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from persona_pipeline.baselines.detectable import BLIND
from persona_pipeline.evaluation.report import EXIT_REGRESSION, RunReport
from persona_pipeline.reporting.many import MANY
from persona_pipeline.reporting.people import estimate_text
from persona_pipeline.reporting.text import one_line, printable
from persona_pipeline.reporting.view import (
    SHORT_LABELS,
    AgentRow,
    AgentStatus,
    ReportView,
    ScoreCell,
    dimension_label,
    format_delta,
    format_score,
    format_usd,
    what_it_needs,
)

_MARKS = {AgentStatus.HELD: " ", AgentStatus.FELL: "!", AgentStatus.CANNOT_TELL: "?", AgentStatus.NOTHING: "-"}
_STYLES = {AgentStatus.FELL: "bold red", AgentStatus.CANNOT_TELL: "yellow", AgentStatus.NOTHING: "dim"}
_ASCII = {"−": "-", "–": "-", "±": "+-", "…": "...", "━": "-", "─": "-"}
MOST_SIGHTS = 5
_LEGEND = "! drifted   ? cannot be told   - nothing to judge   * dropped beyond what is allowed   n/m: judgments scored of expected"

_PEOPLE = "   (7.4±0.5): what people would give"


def render_table(report: RunReport, *, exits: bool = True) -> str:
    """Return the table and findings as plain text without colour, ending in a new line."""
    stream = io.StringIO()
    _draw(report, Console(file=stream, width=10_000, color_system=None, legacy_windows=False), exits=exits)
    return stream.getvalue()


def print_table(report: RunReport, file: TextIO | None = None, *, exits: bool = True) -> None:
    """Write the table to ``file`` (default: stderr), in colour on a terminal only and never failing on its encoding.

    Args:
        exits: whether the process ends with the report's exit code, which is said then.
    """
    stream: TextIO = file if file is not None else sys.stderr
    if not stream.isatty():
        encoding = getattr(stream, "encoding", None) or "utf-8"
        stream.write(transliterated(render_table(report, exits=exits), encoding))
        return
    console = Console(file=stream)
    needed = Measurement.get(console, console.options.update(width=10_000), _table(report)).maximum
    _draw(report, console, short=needed > console.width, exits=exits)


def _draw(report: RunReport, console: Console, *, short: bool = False, exits: bool = True) -> None:
    view = ReportView(report)
    # The table comes last: what scrolls by first is the detail, what stays on the screen is the whole.
    for finding in view.findings:
        style = "red" if finding.exit_code == EXIT_REGRESSION else "yellow"
        console.print(Text(f"{finding.kind}: {one_line(finding.message)}", style=style), soft_wrap=True)
    # One command mends many findings.
    for remedy in dict.fromkeys(finding.remedy for finding in view.findings if finding.remedy):
        console.print(Text(f"to do: {one_line(remedy)}", style="yellow"), soft_wrap=True)
    for row in view.rows:
        for warning in row.report.comparison.warnings:
            console.print(Text(f"warning: {row.agent_id}: {one_line(warning)}", style="yellow"), soft_wrap=True)
    if view.rows:
        console.print(_table(report, short=short))
        if len(view.rows) > MANY:
            console.print(Text(f"and {len(view.rows) - MANY} other agents, which need a look less"), soft_wrap=True)
        told = any(estimate_text(cell.people) for row in view.rows for cell in row.cells)
        console.print(Text(f"{_LEGEND}{_PEOPLE if told else ''}", style="dim"), soft_wrap=True)
    for line in (*_sights(view), *(f"judge: {text}" for text in view.people_lines)):
        console.print(Text(line, style="dim"), soft_wrap=True)
    ending = f" Exit code {report.exit_code}." if exits else ""
    console.print(Text(f"{view.headline}. {_cost(report)}{ending}"), soft_wrap=True)


def _sights(view: ReportView) -> Iterator[str]:
    """Yield what each agent's window could have seen, what the least sharp of its dimensions needs, and the families."""
    shown = view.dullest(MOST_SIGHTS)
    for row, sights in shown:
        falls = ", ".join(
            f"{dimension_label(name).lower()} {sight.detectable:.1f}{' (blind)' if sight.detectable > BLIND else ''}"
            for name, sight in sights.items()
        )
        needs = what_it_needs(sights)
        yield f"sees: {one_line(row.agent_id, 40)}: a fall of {falls}{f'; {needs}' if needs else ''}"
    if len(shown) < len(view.sights):
        yield f"sees: {len(view.sights) - len(shown)} other agents can see as small a fall or a smaller one"
    if view.families:
        yield f"corrected for: {view.families}"


def _table(report: RunReport, *, short: bool = False) -> Table:
    view = ReportView(report)
    labels = [dimension_label(name).lower() for name in view.dimensions]
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    table.add_column("agent", no_wrap=True)
    for label in (*labels, "overall", "judged"):
        table.add_column(SHORT_LABELS.get(label, label) if short else printable(label), justify="right", no_wrap=True)
    rows = view.rows if len(view.rows) <= MANY else sorted(view.rows, key=lambda row: row.severity)[:MANY]
    for row in rows:
        table.add_row(*_row(row, short), style=_STYLES.get(row.status, ""))
    return table


def _row(row: AgentRow, short: bool) -> list[Text]:
    label = f"{_MARKS[row.status]} {one_line(row.agent_id, 40)}"
    overall = f"{format_score(row.overall, 1)} {format_delta(row.overall_delta, 1)}".strip()
    return [
        Text(label),
        *(Text(_cell(cell, short)) for cell in row.cells),
        Text(overall),
        Text(f"{row.n_scored}/{row.n_expected}"),
    ]


def _cell(cell: ScoreCell, short: bool) -> str:
    if cell.score is None:
        return cell.why_unscored if cell.evaluation and not short else "–"
    change = "new" if cell.status == "no_baseline" else format_delta(cell.delta, 1)
    mark = "*" if cell.drifted else "?" if cell.untold and cell.status != "no_baseline" else ""
    people = estimate_text(cell.people, short=True)
    return f"{format_score(cell.score, 1)} {change}{mark}{f' ({people})' if people else ''}".strip()


def _cost(report: RunReport) -> str:
    usage = report.usage
    if not usage.calls:
        return "No judge call was made."
    return f"{usage.calls} judge calls, {'cost unknown' if usage.usd is None else format_usd(usage.usd)}."


def transliterated(text: str, encoding: str) -> str:
    """Return text that the encoding can hold: our own signs get an ASCII stand-in, other characters a question mark."""
    try:
        text.encode(encoding)
        return text
    except UnicodeEncodeError:
        for sign, plain in _ASCII.items():
            text = text.replace(sign, plain)
        return text.encode(encoding, "replace").decode(encoding)
