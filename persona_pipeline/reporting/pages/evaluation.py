"""A run's report in short, as a pull request's comment, and in Dagster: scores, cost and provenance as every report has them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from markupsafe import Markup

from persona_pipeline.base.status import Result
from persona_pipeline.guard.baselines.models import Power, PropositionDrop
from persona_pipeline.guard.report import EXIT_OK, EXIT_REGRESSION, Expense, Finding, RunReport
from persona_pipeline.judging.verdict import Usage
from persona_pipeline.reporting.charts.figures import voice_figure
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
from persona_pipeline.reporting.statistics import VoiceMap
from persona_pipeline.reporting.text import cost_line, format_usd, one_line, plural
from persona_pipeline.reporting.view import (
    MANY,
    SHORT_LABELS,
    UNREAD,
    AgentRow,
    ReportView,
    ScoreCell,
    dropped,
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
from persona_pipeline.world.propositions.models import dimension_label

WORST = "Lines that broke character"
_MOST_TEXT, _MOST_ID, _MOST_CLAIM_ID = 600, 64, 120
_MOST_SIGHTS, _MOST_SIGHT_LINES = 40, 5
# Of what a terminal shows without -v.
_MOST_LINES, _MOST_SLIGHT, _MOST_REMEDIES, _MOST_NAMES, _MOST_SLIGHT_TEXT = 10, 3, 2, 5, 240
# Of what a comment shows outside its folds, and claims of an agent that it names as not judged.
_MOST_CLAIMS, _MOST_TO_DO, _MOST_QUOTE, _MOST_UNSCORED = 5, 3, 160, 20


def short_page(report: RunReport, *, exits: bool = True, verbose: bool = False) -> Page:
    """Return what a terminal or a notebook has room for: the scores, a line for each agent that needs one, and what to do.

    ``exits``: whether the process ends with the report's exit code, which is said then; ``verbose``: with every finding, what could
    have been seen, and how far each dimension's judge can be believed.
    """
    view = ReportView(report)
    ending = f" Exit code {report.exit_code}." if exits else ""
    # In short only where it cannot be believed, or nobody knows.
    judged = [Item(text, tone="dim") for text in view.people_lines if verbose or " validated (" not in text]
    if view.is_unread and (verbose or any(row.conclusion.verdict is Result.FELL for row in view.rows)):
        judged.append(Item(UNREAD, tone="dim"))
    lines = [*agent_lines(view), *([] if verbose else _run_lines(view)), *judged]
    lines += [] if verbose else _blind_line(view)
    top: list[Block] = [Item(f"{view.headline}. {cost_line(report.usage)}{ending}"), Items(lines)]
    if view.rows:
        shown = view.rows if len(view.rows) <= MANY else sorted(view.rows, key=lambda row: row.severity)[:MANY]
        left = len(view.rows) - len(shown)
        note = f"and {left} other agents, which need a look less" if left else ""
        top.append(replace(scores_table(view, shown), note=note))
    if verbose and view.powers:
        top.insert(1, _limits(view, _MOST_SIGHT_LINES))
    # What a pull request's base says comes before everything.
    said = _finding_lines(view) if verbose else [_finding_line(item) for item in view.findings if item.kind == "base"]
    found = [Section("", [Items(said)])] if said else []
    found += [_worst(view)] if verbose and view.quoted else []
    return Page(view.headline, top, found, tone=tone_of(view))


def tone_of(view: ReportView) -> Tone:
    """Return the colour of a run: that of its verdict, no green for one by looser rules."""
    tone = view.report.conclusion.status.tone
    return "warn" if tone == "good" and view.report.terms.looser else tone


def _finding_lines(view: ReportView) -> list[Item]:
    found = [_finding_line(finding) for finding in view.findings]
    found += [Item(remedy, kind="to do", tone="warn") for remedy in remedies(view.findings)]
    return found + [Item(f"{agent}: {text}", kind="warning", tone="warn") for agent, text in warnings_of(view.rows)]


def _finding_line(finding: Finding, limit: int = _MOST_TEXT) -> Item:
    tone: Tone = "bad" if finding.exit_code == EXIT_REGRESSION else "warn"
    return Item([Span(finding.message, limit=limit)], kind=kind_label(finding.kind), tone=tone)


def agent_lines(view: ReportView) -> Iterator[Item]:
    """Yield a line for each agent that dropped or cannot be told, the worst first; one for all of whom the same is said."""
    said: dict[tuple[Tone, str], list[str]] = {}
    for row in sorted(view.rows, key=lambda row: row.severity):
        if row.needs_a_look:
            tone: Tone = row.status.tone
            said.setdefault((tone, dropped(row) or untold(row)), []).append(one_line(row.name, 40))
    lines = list(said.items())
    for (tone, text), names in lines[:_MOST_LINES]:
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        # The sentence on messages begins with the name.
        is_named = text.startswith((f"{names[0]}: ", f"{names[0]} has been "))
        who = [] if is_named else [", ".join(names[:_MOST_NAMES]), _own(f"{more}: ")]
        yield Item([*who, Span(text, limit=_MOST_TEXT)], tone=tone)
    if left := sum(len(names) for _, names in lines[_MOST_LINES:]):
        yield Item(f"and {left} other agents (-v)", tone="warn")


def _run_lines(view: ReportView) -> Iterator[Item]:
    """Yield what is said of the run as a whole, a few warnings, what to do, and how much more there is to read."""
    findings = [finding for finding in view.findings if finding.kind != "base"]
    serious = [finding for finding in findings if finding.exit_code != EXIT_OK]
    told = {row.agent_id for row in view.rows if row.needs_a_look}
    slight = [finding for finding in findings if finding.exit_code == EXIT_OK]
    # Who dropped has a line already; since which message is said there, too.
    shown = [item for item in slight if item.agent_id not in told or item.kind == "voice_alarm"][:_MOST_SLIGHT]
    of_run = [finding for finding in serious if not finding.agent_id]
    for finding in (*of_run[:_MOST_LINES], *shown):
        yield _finding_line(finding, _MOST_SLIGHT_TEXT)
    for remedy in remedies(serious)[:_MOST_REMEDIES]:
        yield Item(remedy, kind="to do", tone="warn")
    if view.quoted:
        yield Item("the lines that broke character: `persona-pipeline report --output report.html`", kind="read")
    more = len(findings) - len(of_run[:_MOST_LINES]) - len(shown) + len(warnings_of(view.rows))
    if more:
        yield Item(f"{more} more {'finding' if more == 1 else 'findings'} with -v", tone="dim")


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
    """Yield a message out of character, the claims it breaks, what it answered, and an earlier one in character."""
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


def _blind_line(view: ReportView) -> Iterator[Item]:
    """Yield which drops would be missed of agents that are in character; nothing where each would be seen."""
    blind = [
        (power.detectable, f"{one_line(row.name, 40)} {dimension_label(name).lower()} {power.shown}")
        for row, powers in view.powers
        if row.conclusion.verdict is Result.HELD
        for name, power in powers.items()
        if power.missed
    ]
    named = [text for _, text in sorted(blind, reverse=True)[:_MOST_SIGHT_LINES]]
    if named:
        more = f" and {len(blind) - len(named)} more" if len(blind) > len(named) else ""
        yield Item(f"drops below these would be missed: {', '.join(named)}{more}", kind="low power", tone="dim")


def comment_page(report: RunReport) -> Page:
    """Return the comment of a pull request: the scores, then what made them, by name."""
    view = ReportView(report)
    of_base = [finding.message for finding in report.findings if finding.kind == "base"]
    before = [Item([Span(message[:1].upper() + message[1:], "strong", _MOST_TEXT)]) for message in of_base]
    top: list[Block] = []
    if view.rows:
        judge = [Item(with_code(text)) for text in [*view.people_lines, *([UNREAD] if view.is_unread else [])]]
        top = [Items([*agent_lines(view), *_to_do(view)]), scores_table(view), Items(judge)]
    drops = sorted(((row, drop) for row in view.rows for drop in row.report.comparison.drops), key=lambda d: d[1].delta)
    claims = [_dropped_claim(*item) for item in drops]
    regressions = [finding.message for finding in view.findings if finding.kind == "regression"]
    lists: dict[str, list[Line]] = {
        "Dimensions that dropped": [[Span(message, limit=_MOST_TEXT)] for message in regressions],
        "Claims that dropped": claims[:_MOST_CLAIMS],
        "Also": list(_other_findings(view)),
    }
    found = [Section(title, [Items.of(*lines)]) for title, lines in lists.items() if lines]
    folded: list[Block] = []
    if rest := claims[_MOST_CLAIMS:]:
        folded.append(Folded(f"{plural(len(rest), 'more claim')} that dropped", [Items.of(*rest)]))
    if view.quoted:
        found.append(_worst(view))
    if missing := [_unscored(row) for row in view.rows if row.failures]:
        count = sum(len(row.failures) for row in view.rows)
        folded.append(Folded(f"{plural(count, 'claim')} not judged", [Items.of(*missing)]))
    if view.powers:
        folded.append(Folded("Detection limits: the smallest drop that would be seen, in points", [_limits(view)]))
    folded += [Folded(table.label, [table]) for table in cost_tables(report)]
    rests = [*usage_facts(report.usage).pairs, *provenance_facts(report).pairs]
    folded.append(Folded("Cost and provenance", [Facts(rests)]))
    return Page(view.headline, top, [*found, Section("", folded)], before, tone_of(view), "Persona evaluation")


class RowCharts(NamedTuple):
    """What is drawn in a row of scores: a bar a dimension, and the line of the overall score."""

    cells: Sequence[Markup | None]
    overall: Markup | None = None


def scores_table(
    view: ReportView,
    rows: Sequence[AgentRow] | None = None,
    *,
    hrefs: Mapping[str, str] | None = None,
    charts: Mapping[str, RowCharts] | None = None,
) -> Table:
    """Return a row an agent: its dimensions and overall score beside the baselines. What every report shows of scores is here.

    ``rows``: by default everybody's; ``hrefs``: addresses of agents within the page; ``charts``: what is drawn, where anything is.
    """
    columns = [Column("Agent", number=False), *map(dimension_column, view.dimensions)]
    # Stored runs of earlier releases have no verdicts on messages.
    counted = any(row.in_character for row in view.rows)
    columns += [
        Column("Overall"),
        *([Column("In character", "in char.")] if counted else []),
        Column("Judged", SHORT_LABELS["judged"]),
    ]
    found = []
    for row in view.rows if rows is None else rows:
        drawn = (charts or {}).get(row.agent_id, RowCharts([None] * len(row.cells)))
        state = "fell" if row.conclusion.verdict is Result.FELL else ""
        cells = [
            agent_cell(row, hrefs),
            *(score_of(cell, chart) for cell, chart in zip(row.cells, drawn.cells, strict=True)),
            Score(row.overall, row.overall_delta, state, chart=drawn.overall, whole=True),
            *([Cell(row.in_character or "–", _tone_of_share(row), own=True)] if counted else []),
            Cell(f"{row.n_scored}/{row.n_expected}", own=True),
        ]
        found.append(PageRow(cells, "" if row.status.tone == "good" else row.status.tone))
    return Table("Table of scores", columns, found, style="scores")


def _tone_of_share(row: AgentRow) -> Tone:
    return "bad" if row.messages and (row.messages.drift or row.messages.is_low) else ""


def dimension_column(name: str) -> Column:
    label = dimension_label(name)
    return Column(label, SHORT_LABELS.get(label.lower(), ""), name=name)


def agent_cell(row: AgentRow, hrefs: Mapping[str, str] | None = None) -> Agent:
    return Agent(row.agent_id, row.name, row.status.name, (hrefs or {}).get(row.agent_id, ""))


def score_of(cell: ScoreCell, chart: Markup | None = None) -> Score:
    new = cell.status == "no_baseline"
    state = "new" if new else "fell" if cell.drifted else "untold" if cell.untold else ""
    why = cell.why_unscored if cell.evaluation else ""
    return Score(cell.score, None if new else cell.delta, state, why, chart)


def power_table(view: ReportView, found: Sequence[tuple[AgentRow, dict[str, Power]]], *, each: bool) -> Table:
    """Return the smallest fall each dimension could have shown, and what each (else the least sharp) needs to see one of 1.0."""
    labels = [dimension_column(name) for name in view.dimensions]
    needs = [] if each else [Column("Needed to see less", number=False)]
    rows = []
    for row, powers in found:
        cells = [_power(powers.get(name), each) for name in view.dimensions]
        last = [] if each else [one_line(what_it_needs(powers), 200) or "–"]
        rows.append(PageRow([Agent(row.agent_id, row.name, ""), *cells, *last]))
    note = [_own("Multiple-testing correction: "), view.families, _own(".")] if view.families else ""
    label = "Table of detection limits"
    return Table(label, [Column("Agent", number=False), *labels, *needs], rows, note, "power")


def _limits(view: ReportView, most: int = _MOST_SIGHTS) -> Table:
    """Return the limits of the agents that can see least."""
    worst = sorted(view.powers, key=lambda item: -max(power.detectable for power in item[1].values()))
    return power_table(view, worst[:most], each=False)


def _power(power: Power | None, each: bool) -> Cell:
    if power is None:
        return Cell("" if each else "–", note="not tested" if each else "", own=True)
    blind = bool(power.missed)
    note = power.text.partition("; ")[2] if each else ""
    return Cell(power.shown, "warn" if blind else "", note, own=True, style="blind" if blind else "")


def what_it_needs(powers: Mapping[str, Power]) -> str:
    """Return what the dimension that can see least needs to see a fall of 1.0; "" where it does already."""
    name, power = max(powers.items(), key=lambda item: item[1].detectable)
    needs = power.text.partition("; ")[2]
    return f"{dimension_label(name).lower()}, {needs}" if needs else ""


def _own(text: str) -> Span:
    return Span(text, "own")


def _id(name: str) -> Span:
    return Span(name, "code", _MOST_ID)


def _dropped_claim(row: AgentRow, drop: PropositionDrop) -> Line:
    fell, label = score_change(drop.baseline, drop.current), dimension_label(drop.dimension)
    line = [
        _id(row.name),
        _own(" "),
        Span(drop.proposition_id, "code", _MOST_CLAIM_ID),
        _own(" ("),
        label,
        _own(f") {fell}"),
    ]
    if drop.claim:
        line += [_own(": "), Span(drop.claim, limit=_MOST_TEXT)]
    if drop.recommendation:
        line += [_own(". "), Span("To do:", "strong"), _own(" "), Span(drop.recommendation, limit=_MOST_TEXT)]
    return line


def _unscored(row: AgentRow) -> Line:
    names: list[str | Span] = []
    for dimension, result in row.failures[:_MOST_UNSCORED]:
        names += [_own(", " if names else ""), Span(f"{dimension}/{result.id}", "code", _MOST_CLAIM_ID)]
    left = len(row.failures) - _MOST_UNSCORED
    more = f" and {left} more" if left > 0 else ""
    return [_id(row.name), _own(": "), Span(not_judged(row), limit=_MOST_TEXT), _own(": "), *names, _own(more)]


def _to_do(view: ReportView) -> list[Item]:
    """Return what to do first: what the claim says that dropped most of each agent, and the commands that decide the rest."""
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


def _other_findings(view: ReportView) -> Iterator[Line]:
    """Yield what no other section names: thresholds, missing baselines, budgets, and the comparison's warnings."""
    # What a coverage finding counts is listed one by one.
    listed = {(row.agent_id, dimension) for row in view.rows for dimension, _ in row.failures}
    for finding in view.findings:
        counted = finding.kind == "coverage" and (finding.agent_id, finding.dimension) in listed
        if finding.kind not in ("regression", "proposition_drop", "base") and not counted:
            text = one_line(finding.text, _MOST_TEXT if finding.exit_code else _MOST_SLIGHT_TEXT)
            yield with_code(text) if text.count("`") % 2 == 0 else text
    for name, warning in warnings_of(view.rows):
        yield [_id(name), _own(" "), Span(warning, limit=_MOST_TEXT)]


_COLUMNS = ("Cost", "Calls", "Input tokens", "From the cache", "Output tokens")
_MECHANISMS = {
    "evaluation": "Judging",
    "confirmation": "Judging again what dropped",
    "history": "Judging earlier windows",
    "synthetic": "Generating conversations",
}
_HASH_LENGTH, _LONGEST = 12, 60


def cost_tables(report: RunReport, most: int | None = None) -> list[Table]:
    """Return a run's expenses by agent, by dimension and by what was done, the dearest first; each table has the same sum.

    A grouping of one row says no more than the sum and is left out; of more than ``most`` rows the last sums up the others.
    """
    names = {agent_id: agent.evaluation.display_name for agent_id, agent in report.agents.items()}
    groupings: dict[str, Callable[[Expense], str]] = {
        "Agent": lambda expense: names.get(expense.agent_id, expense.agent_id),
        "Dimension": lambda expense: dimension_label(expense.dimension) if expense.dimension else "–",
        "Mechanism": lambda expense: _MECHANISMS.get(expense.mechanism, expense.mechanism),
    }
    tables = []
    for title, name_of in groupings.items():
        rows = _grouped(report.expenses, name_of)
        if most is not None and len(rows) > most:
            others = add_usage(usage for _, usage in rows[most - 1 :])
            rows = [*rows[: most - 1], (f"{len(rows) - most + 1} others", others)]
        if len(rows) > 1:
            columns = [Column(title, number=False), *map(Column, _COLUMNS)]
            tables.append(Table(f"Cost by {title.lower()}", columns, [_row(name, usage) for name, usage in rows]))
    return tables


def _grouped(expenses: list[Expense], name_of: Callable[[Expense], str]) -> list[tuple[str, Usage]]:
    groups = grouped(expenses, name_of).items()
    rows = [(name, add_usage(expense.usage for expense in own)) for name, own in groups]
    return sorted(rows, key=lambda row: (-(row[1].usd or 0), -row[1].calls, row[0]))


def _row(name: str, usage: Usage) -> PageRow:
    # Input tokens are those that were processed, cached ones not among them.
    processed = usage.input_tokens + usage.cache_creation_tokens
    counts = (usage.calls, processed, usage.cache_read_tokens, usage.output_tokens)
    values = (format_usd(usage.usd), *(f"{count:,}" for count in counts))
    return PageRow([name, *(Cell(value, own=True) for value in values)])


def usage_facts(usage: Usage) -> Facts:
    """Return tokens and price; a run that called no judge says so in one line."""
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
    """Return the run's provenance, keys in order, nested objects joined with dots; the windows that were evaluated come first."""
    windows = {
        f"{agent.evaluation.window_start:%Y-%m-%d %H:%M} to {agent.evaluation.window_end:%Y-%m-%d %H:%M} UTC"
        if agent.evaluation.window_start
        else f"everything up to {agent.evaluation.window_end:%Y-%m-%d %H:%M} UTC"
        for agent in report.agents.values()
    }
    evaluated = [("Evaluated window", window) for window in sorted(windows)]
    return Facts(evaluated + named_values(report.provenance))


def named_values(values: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return nested values under names as a person writes them, in their order."""
    return [(_spelled(name), value) for name, value in _flat(values)]


def scalar_facts(statistics: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the numbers and short texts of a dimension's statistics; lists and long texts are left to the JSON report."""
    return [
        (_spelled(name), _scalar(round(value, 4) if isinstance(value, float) else value))
        for name, value in sorted(statistics.items())
        if isinstance(value, int | float | str) and len(str(value)) <= _LONGEST
    ]


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


def _spelled(name: str) -> str:
    return (name[:1].upper() + name[1:]).replace("_", " ")


def closest_voices(statistics: Mapping[str, Any]) -> str:
    """Return which agents write most alike, in a sentence; "" for fewer than two."""
    voices = VoiceMap.model_validate(statistics) if statistics else VoiceMap()
    return voice_figure(voices).caption if len(voices.ids) > 1 else ""
