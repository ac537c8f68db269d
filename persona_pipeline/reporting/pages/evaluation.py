"""A run for a terminal, a comment and Dagster: scores, findings, cost and provenance, which all reports share."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from markupsafe import Markup

from persona_pipeline.base.status import Result
from persona_pipeline.base.text import some
from persona_pipeline.guard.baselines.models import PropositionDrop
from persona_pipeline.guard.known_drift import OUT_OF_CHARACTER
from persona_pipeline.guard.report import EXIT_OK, EXIT_REGRESSION, Expense, Finding, RunReport
from persona_pipeline.judging.verdict import Usage
from persona_pipeline.reporting.page import (
    Agent,
    Block,
    Cell,
    Column,
    Facts,
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
    with_code,
)
from persona_pipeline.reporting.text import cost_line, format_usd, one_line, plural
from persona_pipeline.reporting.view import (
    MANY,
    SHORT_LABELS,
    UNREAD,
    AgentRow,
    ReportView,
    ScoreCell,
    dropped,
    is_named,
    kind_label,
    not_judged,
    remedies,
    score_change,
    untold,
    warnings_of,
)
from persona_pipeline.scoring.messages.verdicts import WorstMessage
from persona_pipeline.scoring.results import add_usage
from persona_pipeline.world.models import grouped
from persona_pipeline.world.propositions.models import DIMENSIONS, dimension_label

WORST = "Messages out of character"
# With more agents than this, those in character are folded.
FOLDED_FROM = 12
_MOST_TEXT, _MOST_ID, _MOST_CLAIM_ID = 600, 64, 120
# In a terminal without -v: agents, other findings, remedies, names in a line, and lines after the table.
_MOST_AGENTS, _MOST_SLIGHT, _MOST_REMEDIES, _MOST_NAMES, _MOST_AFTER, _MOST_SLIGHT_TEXT = 10, 3, 2, 5, 10, 240
# In a comment: remedies outside the folds, and characters of a quote.
_MOST_TO_DO, _MOST_QUOTE = 3, 160


def short_page(report: RunReport, *, exits: bool = True, verbose: bool = False) -> Page:
    """Return a run in short: the agents that need a look, the scores, and at most 12 lines below them.

    Args:
        exits: whether the process ends with the exit code of the report, which is then printed.
        verbose: show every finding, every message out of character, and every agent.
    """
    view = ReportView(report)
    ending = f" Exit code {report.exit_code}." if exits else ""
    of_base, others = [], []
    for item in view.findings:
        (of_base if item.kind == "base" else others).append(finding_item(item, item.message))
    opening = [*of_base, *agent_lines(view)]
    if verbose:
        to_do = [Item(remedy, kind="to do", tone="warn") for remedy in remedies(view.findings)]
        opening += [*others, *to_do, *warning_items(view.rows)]
    judged = [Item(text, tone="dim") for text in view.judge_lines]
    if view.is_unread and (verbose or any(row.conclusion.verdict is Result.FELL for row in view.rows)):
        judged.append(Item(UNREAD, tone="dim"))
    lines = judged if verbose else [*_run_lines(view), *judged][:_MOST_AFTER]
    top: list[Block] = [Item(f"{view.headline}. {cost_line(report.usage)}{ending}"), Items(lines)]
    if view.rows:
        top.append(_short_table(view, verbose=verbose))
    found = [Section("", [Items(opening)])] if opening else []
    found += [_worst(view)] if verbose and view.quoted else []
    return Page(view.headline, top, found, tone=tone_of(view))


def _short_table(view: ReportView, *, verbose: bool) -> Table:
    """Return the scores of the agents that need a look most; of few agents, of all."""
    rows = view.rows
    if len(rows) > FOLDED_FROM:
        rows = sorted(rows, key=lambda row: row.severity)[:MANY]
        needed = [row for row in rows if verbose or row.conclusion.verdict is not Result.HELD]
        rows = needed or rows[:FOLDED_FROM]
    shown = {row.agent_id for row in rows}
    left = [row for row in view.rows if row.agent_id not in shown]
    names = some([one_line(row.name, 40) for row in left], _MOST_NAMES)
    what = "in character" if all(row.conclusion.verdict is Result.HELD for row in left) else "not shown"
    return replace(scores_table(view, rows), note=f"{plural(len(left), 'more agent')} {what}: {names}" if left else "")


def tone_of(view: ReportView) -> Tone:
    """Return the colour of a run: that of its verdict, but not green under looser rules."""
    tone = view.report.conclusion.status.tone
    return "warn" if tone == "good" and view.report.terms.looser else tone


def finding_item(finding: Finding, text: str = "", limit: int = _MOST_TEXT) -> Item:
    """Return a finding under its kind. ``text``: by default the message with its remedy."""
    tone: Tone = "bad" if finding.exit_code == EXIT_REGRESSION else "warn"
    return Item(with_code(one_line(text or finding.text, limit)), kind=kind_label(finding.kind), tone=tone)


def warning_items(rows: Iterable[AgentRow]) -> list[Item]:
    """Return the warnings of agents' comparisons."""
    return [Item(f"{agent}: {text}", kind="warning", tone="warn") for agent, text in warnings_of(rows)]


def agent_lines(view: ReportView) -> Iterator[Item]:
    """Yield a sentence for each agent that dropped or is inconclusive, the worst first, with details and the worst message below.

    Agents with the same sentence share a line.
    """
    rows = (row for row in sorted(view.rows, key=lambda row: row.severity) if row.needs_a_look)
    lines = list(grouped(rows, lambda row: (row.status.tone, *(dropped(row) or [untold(row)]))).items())
    for (tone, text, *details), alike in lines[:_MOST_AGENTS]:
        names = [one_line(row.name, 40) for row in alike]
        who = [] if is_named(text, names[0]) else [some(names, _MOST_NAMES), _own(": ")]
        yield Item([*who, Span(text, limit=_MOST_TEXT)], tone=tone)
        for item in alike[0].worst[:1]:
            quote = Span(f"“{one_line(item.verdict.quote, _MOST_QUOTE)}”", "em")
            yield Item([quote, _own(" ("), Span(item.verdict.message, "code", _MOST_ID), _own(")")], 1)
        yield from (Item([Span(detail, limit=_MOST_TEXT)], 1) for detail in details)
    if left := sum(len(alike) for _, alike in lines[_MOST_AGENTS:]):
        yield Item(f"and {left} more agents (-v)", tone="warn")


def _run_lines(view: ReportView) -> Iterator[Item]:
    """Yield the findings of the run as a whole, a few warnings, remedies, and the number of other findings."""
    findings = [finding for finding in view.findings if finding.kind != "base"]
    serious = [finding for finding in findings if finding.exit_code != EXIT_OK]
    named = {row.agent_id for row in view.rows if row.needs_a_look}
    slight = [finding for finding in findings if finding.exit_code == EXIT_OK]
    # The line of an agent replaces its warnings, except the voice alarm with its date.
    shown = [item for item in slight if item.agent_id not in named or item.kind == "voice_alarm"][:_MOST_SLIGHT]
    of_run = [finding for finding in serious if not finding.agent_id][:_MOST_AGENTS]
    for finding in (*of_run, *shown):
        yield finding_item(finding, finding.message, _MOST_SLIGHT_TEXT)
    for remedy in remedies([*serious, *(item for item in shown if item.kind == "names")])[:_MOST_REMEDIES]:
        yield Item(remedy, kind="to do", tone="warn")
    if view.quoted:
        yield Item("all messages out of character: `persona-pipeline view`", kind="read")
    if more := len(findings) - len(of_run) - len(shown) + len(warnings_of(view.rows)):
        yield Item(f"{plural(more, 'more finding')} with -v", tone="dim")


def _worst(view: ReportView) -> Section:
    """Return the messages out of character of each agent, the worst first."""
    lines = [
        line
        for row in view.quoted
        for item in row.worst
        for line in worst_lines(row.name, item, row.broken_claims(item), view.names)
    ]
    return Section(WORST, [Items(lines)])


def worst_lines(name: str, item: WorstMessage, claims: Sequence[str], names: Mapping[str, str]) -> Iterator[Item]:
    """Yield a message out of character, the claims it breaks, the message it answers, and an earlier one in character."""
    verdict = item.verdict
    quote = Span(verdict.quote, "em", _MOST_QUOTE)
    where = [_own(" ("), Span(verdict.message, "code", _MOST_ID), _own(f", {verdict.said_at:%Y-%m-%d %H:%M} UTC): ")]
    yield Item([_id(name), *where, quote], tone="bad")
    broken = Span("; ".join(claims), limit=_MOST_TEXT)
    yield Item(
        [broken, *([_own(" – "), Span(verdict.reason, limit=_MOST_QUOTE)] if verdict.reason else [])], 1, "breaks"
    )
    if said := item.answered:
        speaker = Span(names.get(said.speaker, said.speaker), limit=_MOST_ID)
        yield Item([speaker, _own(": "), Span(said.quote, limit=_MOST_QUOTE)], 1, "answers")
    if said := item.example:
        yield Item([Span(said.quote, "em", _MOST_QUOTE)], 1, "in character")


def comment_page(report: RunReport) -> Page:
    """Return the comment of a pull request: the verdict, its reasons, what to do, the scores, and folded details."""
    view = ReportView(report)
    of_base = [finding.message for finding in report.findings if finding.kind == "base"]
    before = [Item([Span(message[:1].upper() + message[1:], "strong", _MOST_TEXT)]) for message in of_base]
    top: list[Block] = []
    if view.rows:
        judge = [Item(with_code(text)) for text in [*view.judge_lines, *([UNREAD] if view.is_unread else [])]]
        top = [Items([*agent_lines(view), *_to_do(view)]), scores_table(view), Items(judge)]
    drops = sorted(((row, drop) for row in view.rows for drop in row.report.comparison.drops), key=lambda d: d[1].delta)
    also = [*map(finding_item, _other_findings(view)), *warning_items(view.rows)]
    found = [Section("Also", [Items(also)])] if also else []
    folded: list[Block] = []
    if claims := [_dropped_claim(*item) for item in drops]:
        folded.append(Folded(f"{plural(len(claims), 'claim')} dropped further than allowed", [Items.of(*claims)]))
    if view.quoted:
        folded.append(Folded(WORST, _worst(view).blocks))
    if missing := [
        [_id(row.name), _own(": "), Span(not_judged(row), limit=_MOST_TEXT)] for row in view.rows if row.failures
    ]:
        count = sum(len(row.failures) for row in view.rows)
        folded.append(Folded(f"{plural(count, 'claim')} not judged", [Items.of(*missing)]))
    folded += [Folded(table.label, [table]) for table in cost_tables(report)]
    rests = [*usage_facts(report.usage).pairs, *provenance_facts(report).pairs]
    folded.append(Folded("Cost and provenance", [Facts(rests)]))
    return Page(view.headline, top, [*found, Section("", folded)], before, tone_of(view), "Persona evaluation")


class RowCharts(NamedTuple):
    """The charts of a row of scores: a bar for each dimension, and the line of the overall score."""

    cells: Sequence[Markup | None]
    overall: Markup | None = None


def scores_table(
    view: ReportView,
    rows: Sequence[AgentRow] | None = None,
    *,
    hrefs: Mapping[str, str] | None = None,
    charts: Mapping[str, RowCharts] | None = None,
) -> Table:
    """Return the scores of all reports: a row for each agent with its dimensions, compared with the baselines.

    ``rows``: by default all; ``hrefs``: addresses of agents within the page; ``charts``: charts by agent.
    """
    columns = [Column("Agent", number=False), *map(dimension_column, view.dimensions)]
    # Runs of earlier releases have no verdicts on messages.
    counted = any(row.in_character[1] for row in view.rows)
    share = [Column("In character", "in char.")] if counted else []
    columns += [Column("Overall"), *share, Column("Judged", SHORT_LABELS["judged"])]
    found = []
    for row in view.rows if rows is None else rows:
        drawn = (charts or {}).get(row.agent_id, RowCharts([None] * len(row.cells)))
        state = "fell" if row.conclusion.verdict is Result.FELL else ""
        cells = [
            agent_cell(row, hrefs),
            *(score_of(cell, chart) for cell, chart in zip(row.cells, drawn.cells, strict=True)),
            Score(row.overall, row.overall_delta, state, chart=drawn.overall, whole=True),
            *([_share_cell(row)] if counted else []),
            Cell(f"{row.n_scored}/{row.n_expected}", own=True),
        ]
        found.append(PageRow(cells, "" if row.status.tone == "good" else row.status.tone))
    return Table("Table of scores", columns, found, style="scores")


def _share_cell(row: AgentRow) -> Cell:
    is_low = row.messages and (row.messages.drift or row.messages.is_low)
    shares = [share for share in row.in_character if share]
    return Cell(" → ".join(shares) or "–", "bad" if is_low else "", own=True, short=shares[-1] if shares else "")


def dimension_column(name: str) -> Column:
    label = dimension_label(name)
    gloss = DIMENSIONS[name].gloss if name in DIMENSIONS else ""
    return Column(label, SHORT_LABELS.get(label.lower(), ""), name=name, gloss=gloss)


def agent_cell(row: AgentRow, hrefs: Mapping[str, str] | None = None) -> Agent:
    return Agent(row.agent_id, row.name, row.status.name, (hrefs or {}).get(row.agent_id, ""))


def score_of(cell: ScoreCell, chart: Markup | None = None) -> Score:
    new = cell.status == "no_baseline"
    state = "new" if new else "fell" if cell.drifted else "untold" if cell.untold else ""
    why = cell.why_unscored if cell.evaluation else ""
    return Score(cell.score, None if new else cell.delta, state, why, chart)


def _own(text: str) -> Span:
    return Span(text, "own")


def _id(name: str) -> Span:
    return Span(name, "code", _MOST_ID)


def _dropped_claim(row: AgentRow, drop: PropositionDrop) -> Line:
    change = score_change(drop.baseline, drop.current)
    claim = row.claim_text(drop, _MOST_TEXT)
    where = [_id(row.name), _own(", "), dimension_label(drop.dimension), _own(": ")]
    line: list[str | Span] = [*where, claim, _own(f" {change}")]
    if drop.recommendation:
        line += [_own(". "), Span("To do:", "strong"), _own(" "), Span(drop.recommendation, limit=_MOST_TEXT)]
    return line


def _to_do(view: ReportView) -> list[Item]:
    """Return what to do first: the recommendation of each agent's most dropped claim, and the commands for the rest."""
    lines: list[Line] = []
    for row in view.rows:
        advised = [drop for drop in row.report.comparison.drops if drop.recommendation]
        if row.conclusion.verdict is Result.FELL and advised:
            worst = min(advised, key=lambda drop: drop.delta)
            lines.append([_id(row.name), _own(": "), Span(worst.recommendation or "", limit=_MOST_TEXT)])
    lines += [with_code(text) for text in remedies(item for item in view.findings if item.exit_code != EXIT_OK)]
    items = [Item(line, kind="To do") for line in lines[:_MOST_TO_DO]]
    left = len(lines) - len(items)
    return [*items, *([Item(f"{left} more are below", kind="To do")] if left > 0 else [])]


def _other_findings(view: ReportView) -> Iterator[Finding]:
    """Yield findings of no other part: thresholds, missing baselines and budgets."""
    # Missing judgments are listed one by one.
    listed = {(row.agent_id, dimension) for row in view.rows for dimension, _ in row.failures}
    for finding in view.findings:
        counted = finding.kind == "coverage" and (finding.agent_id, finding.dimension) in listed
        if finding.kind not in ("regression", "proposition_drop", "base", OUT_OF_CHARACTER) and not counted:
            yield finding


_COLUMNS = ("Cost", "Calls", "Input tokens", "From the cache", "Output tokens")
_MECHANISMS = {
    "evaluation": "Judging",
    "confirmation": "Judging again what dropped",
    "judge_check": "Checking the judge",
    "history": "Judging earlier windows",
    "synthetic": "Generating conversations",
}
_HASH_LENGTH = 12


def cost_tables(report: RunReport, most: int | None = None) -> list[Table]:
    """Return tables of expenses by agent, dimension and mechanism, the largest first; all have the same sum.

    Tables with a single row are left out; beyond ``most`` rows the last row sums up the others.
    """
    names = {agent_id: agent.evaluation.display_name for agent_id, agent in report.agents.items()}
    groupings: dict[str, Callable[[Expense], str]] = {
        "Agent": lambda expense: names.get(expense.agent_id, expense.agent_id),
        "Dimension": lambda expense: dimension_label(expense.dimension) if expense.dimension else "–",
        "Mechanism": lambda expense: _MECHANISMS.get(expense.mechanism, expense.mechanism),
    }
    tables = []
    for title, name_of in groupings.items():
        groups = grouped(report.expenses, name_of).items()
        rows = [(name, add_usage(expense.usage for expense in own)) for name, own in groups]
        rows.sort(key=lambda row: (-(row[1].usd or 0), -row[1].calls, row[0]))
        if most is not None and len(rows) > most:
            others = add_usage(usage for _, usage in rows[most - 1 :])
            rows = [*rows[: most - 1], (f"{len(rows) - most + 1} others", others)]
        if len(rows) > 1:
            columns = [Column(title, number=False), *map(Column, _COLUMNS)]
            tables.append(Table(f"Cost by {title.lower()}", columns, [_row(name, usage) for name, usage in rows]))
    return tables


def _row(name: str, usage: Usage) -> PageRow:
    # Cached tokens have their own column.
    processed = usage.input_tokens + usage.cache_creation_tokens
    counts = (usage.calls, processed, usage.cache_read_tokens, usage.output_tokens)
    values = (format_usd(usage.usd), *(f"{count:,}" for count in counts))
    return PageRow([name, *(Cell(value, own=True) for value in values)])


def usage_facts(usage: Usage) -> Facts:
    """Return tokens and price of a run."""
    if not usage.calls:
        return Facts([("Judge calls", "none: recorded or cached judgments cost nothing")])
    told = {
        "Judge calls": f"{usage.calls:,}",
        "Cost": format_usd(usage.usd),
        "Input tokens": f"{usage.input_tokens:,}",
        "Output tokens": f"{usage.output_tokens:,}",
        "Cached input tokens": f"{usage.cache_read_tokens:,} read, {usage.cache_creation_tokens:,} written",
    }
    return Facts(list(told.items()))


def provenance_facts(report: RunReport) -> Facts:
    """Return the evaluated windows and the provenance of a run, nested names joined with dots."""
    windows = {
        f"{agent.evaluation.window_start:%Y-%m-%d %H:%M} to {agent.evaluation.window_end:%Y-%m-%d %H:%M} UTC"
        if agent.evaluation.window_start
        else f"everything up to {agent.evaluation.window_end:%Y-%m-%d %H:%M} UTC"
        for agent in report.agents.values()
    }
    evaluated = [("Evaluated window", window) for window in sorted(windows)]
    return Facts(evaluated + named_values(report.provenance))


def named_values(values: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return nested values under readable names."""
    return [((name[:1].upper() + name[1:]).replace("_", " "), value) for name, value in _flat(values)]


def _flat(value: Any, prefix: str = "") -> list[tuple[str, str]]:
    if isinstance(value, dict):
        names = {key: f"{prefix}.{key}" if prefix else str(key) for key in sorted(value, key=str)}
        return [pair for key, name in names.items() for pair in _flat(value[key], name)]
    if isinstance(value, list | tuple | set):
        return [(prefix, ", ".join(_scalar(item) for item in value) or "none")]
    return [(prefix, _scalar(value))]


def _scalar(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = str(value)
    is_hash = len(text) == 64 and all(character in "0123456789abcdef" for character in text)
    return text[:_HASH_LENGTH] if is_hash else text
