"""Pages of experiments: tested claims and their variation, two versions side by side, a cause, and the files of a change."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from persona_pipeline.base.status import Result
from persona_pipeline.lab.results import (
    AgentDifference,
    Bisection,
    ClaimDifference,
    Fall,
    PastPoint,
    ScoreChange,
    ScoreDifference,
    SideBySide,
    VersionComparison,
)
from persona_pipeline.reporting.page import (
    AnyCell,
    Cell,
    Column,
    Item,
    Items,
    Line,
    Page,
    PageRow,
    Section,
    Span,
    Table,
)
from persona_pipeline.reporting.pages.evaluation import worst_lines
from persona_pipeline.reporting.text import (
    cost_line,
    format_delta,
    format_p,
    format_score,
    format_usd,
    one_line,
    plural,
)
from persona_pipeline.reporting.view import FACTS
from persona_pipeline.suites.answering.base import REMEDIES
from persona_pipeline.world.changes import Change, Kind
from persona_pipeline.world.propositions.models import dimension_label

if TYPE_CHECKING:
    from persona_pipeline.lab.claims.matrix import ClaimCell, ClaimRow, KillMatrix
    from persona_pipeline.lab.since import AgentSince, SinceReport
    from persona_pipeline.world.propositions.models import PropositionSet

_MATRIX_NOTE = (
    "Points (0-9) that the claim drops below the intact window, high being good whichever way it is written. * caught; "
    "n/a the claim no longer applies; ? not judged; as NAME: that agent's words under this agent's name."
)
_ICONS = {ScoreChange.FELL: "🔻", ScoreChange.ROSE: "🔼", ScoreChange.SAME: "=", ScoreChange.OPEN: "?"}
_SAID = {
    ScoreChange.FELL: "fell",
    ScoreChange.ROSE: "rose",
    ScoreChange.SAME: "held",
    ScoreChange.OPEN: "cannot tell",
}
_SIGNALS = {"voice": "Own voice", "said_again": "No repetition", "late_turns": "Late turns"}
_EXPENSES = {
    "cost_usd": ("cost", format_usd),
    "latency_seconds": ("latency", lambda seconds: f"{seconds:.2f} s"),
}
_MOST_CLAIM, _MOST_LINE, _LONGEST = 200, 300, 20_000
# Characters of an answer; the JSON has all of it.
_MOST_ANSWER = 600

COMPARED = "Compared with"
TOUCHED = "What this change touches"
_NOTHING = "No persona, claim, message, recording or suite, and nothing that decides."
# Files that decide the verdict, and files that should not be there, come first; then evaluated files.
_ORDER = (
    "store", "link", "workflow", "settings", "baseline", "labels", "judge changes", "lexicon", "everyday language", "nudges",
    "persona", "claim", "claims", "recordings", "messages", "card", "suite", "interview",
)  # fmt: skip
_PLURALS = {
    "store": "stored runs, which no commit should bring",
    "link": "links in the place of files",
    "workflow": "workflows",
    "baseline": "baselines",
    "persona": "personas",
    "claim": "claims",
    "claims": "settings of claims",
    "card": "cards",
    "suite": "suites",
}
# Removed entries come first: nothing else shows that they existed.
_KINDS = (Kind.REMOVED, Kind.EDITED, Kind.ADDED)
_MOST_NAME, _MOST_DETAIL, _MOST_SHORT, _MOST_NAMED = 120, 2_000, 240, 3


def claims_page(claims: "PropositionSet", variables: Mapping[str, str]) -> Page:
    """Return an agent's claims of a dimension, the variables in them filled in."""
    from persona_pipeline.world.propositions.models import fill_template

    items = []
    for item in claims.propositions:
        head = Span(f"{'-' if item.inverted else '+'} {item.id} (weight {item.weight:g}): ", "own")
        items.append(Item([head, Span(fill_template(item.claim, variables), "fixed")]))
    return Page("Claims", sections=[Section("", [Items(items)])])


def matrix_page(matrix: "KillMatrix") -> Page:
    planted = [fault.name for fault in matrix.planted]
    rows: list[list[str | Cell]] = []
    for row in matrix.claims:
        rows.append([row.name, _claim_score(row.intact), *(_claim_fall(row, row.faults[name]) for name in planted)])
    title, columns = "What each claim catches", ["claim", "intact", *planted]
    findings = Items([Item(said, kind=kind, tone="warn") for kind, said in _matrix_findings(matrix)])
    sections = [Section(title, [Table.plain(title, columns, rows, _MATRIX_NOTE)])]
    return Page(f"Claims of {matrix.agent_id}, tested", [Items.of(*_matrix_facts(matrix)), findings], sections)


def _matrix_facts(matrix: "KillMatrix") -> Iterator[str]:
    needed = [cell.needed for row in matrix.claims for cell in row.faults.values() if cell.needed is not None]
    how = "measured from the repeats" if matrix.sd_measured else "assumed, as too little was judged twice to tell"
    yield (
        f"{matrix.agent_id}: {matrix.messages} messages up to {matrix.window_end}, seed {matrix.seed}; {matrix.judgments} "
        f"judgments by {matrix.judge}, {matrix.samples} of each claim on each window; "
        f"sd of one judgment {matrix.judge_sd:.2f} ({how})."
    )
    if needed:
        span = f"{min(needed):.1f}" if max(needed) - min(needed) < 0.05 else f"{min(needed):.1f} to {max(needed):.1f}"
        yield (
            f"A fault is caught by a drop of more than {span}: more than the 3.0 at which the guard calls a claim collapsed, "
            "and more than the judge's noise makes anywhere in the matrix in 19 of 20 tests."
        )
    if matrix.failed:
        failed = ", ".join(f"{count} {reason}" for reason, count in sorted(matrix.failed.items()))
        yield f"Not judged: {failed}; what is said of those claims and faults is not certain."
    yield cost_line(matrix.usage)


def _matrix_findings(matrix: "KillMatrix") -> Iterator[tuple[str, str]]:
    rows = {row.name: row for row in matrix.claims}
    if len(matrix.models) > 1:
        yield "mixed judges", f"{', '.join(matrix.models)}: what drops may be the change of judge; add --fresh"
    for fault in matrix.faults:
        if fault.why_not:
            yield "not planted", f"{fault.name}: {fault.why_not}"
        if fault.name in matrix.blind_spots and not matrix.reads_nothing:
            yield "blind spot", f"no claim catches {fault.name}. {fault.what}"
    if matrix.reads_nothing:
        seen = f"whatever was done to the messages, {len(matrix.claims)} claims stand where they stood"
        said = f"this judge reads nothing of these claims: {seen}; ask persona-pipeline doctor --judge first"
        yield "reads nothing", said
        return
    for name in matrix.dead:
        faults = f"none of {len(rows[name].faults)} faults"
        yield "never fails", f"{name} stands at {_claim_score(rows[name].intact)} and drops under {faults}"
    for name in matrix.low:
        stands = f"{name} stands at {_claim_score(rows[name].intact)} on the intact window"
        yield "low on healthy data", f"{stands}: it cannot drop far enough to tell"
    if matrix.low and len(matrix.low) * 2 > len(matrix.claims):
        said = "most claims stand low on the intact window: take one in which the agent was itself, with --as-of"
        yield "look again", said
    for name in matrix.everybody:
        own, borrowed = map(_claim_score, (rows[name].intact, rows[name].faults["borrowed"]))
        yield "holds of everybody", f"{name}: {own} of its own words, {borrowed} of another agent's"
    for name, faults in matrix.silent.items():
        gone = f"no longer applies under {', '.join(faults)}"
        yield "becomes n/a", f"{name} {gone}, and leaves the score instead of lowering it"
    for name, why in matrix.untested.items():
        yield "not tested", f"{name}: {why} on the intact window"


def _claim_score(cell: "ClaimCell") -> str:
    if cell.score is None:
        return "n/a" if cell.silent else "?"
    return f"{cell.score:.1f}"


def _claim_fall(row: "ClaimRow", cell: "ClaimCell") -> str | Cell:
    if row.intact.score is None:
        return "–"
    if cell.fall is None:
        return _claim_score(cell)
    return Cell(f"{cell.fall:.1f}*", "bad") if cell.killed else f"{cell.fall:.1f}"


def comparison_page(found: VersionComparison) -> Page:
    """Return a comparison: a row for each dimension, the changed claims, examples, and its data."""
    titles = ("Agent", "Dimension", "Before", "After", "Change", "Interval", "", "Rests on")
    columns = [Column(title, number=title in ("Before", "After", "Change", "Interval")) for title in titles]
    rows = [_row(agent, name, item) for agent in found.agents.values() for name, item in agent.rows.items()]
    moved = [_claim(agent, row) for agent in found.agents.values() for row in (*agent.moved, *agent.suspects)]
    notes = [f"{agent.agent_id}: {', '.join(_notes(found, agent))}" for agent in found.agents.values()]
    notes += [f"{agent.agent_id}: {text}" for agent in found.agents.values() for text in _answered(agent)]
    version = [Span(found.after, "code", 100), Span(", ", "own"), _what(found), Span(". Points from 0 to 9.", "own")]
    sections = [Section("", [Table("Table of dimensions", columns, rows)])]
    if moved:
        said = f"Claims that moved ({_ICONS[ScoreChange.OPEN]}: not by itself told from chance):"
        sections.append(Section("", [Item([Span(said, "own")]), Items.of(*moved)]))
    sections += [
        Section(
            f"{agent.agent_id}: where it moved most",
            [Items.of(*_side_by_side(pair)) for pair in agent.lines],
        )
        for agent in found.agents.values()
        if agent.lines
    ]
    sections.append(Section("", [Items.of(*notes, *_remarks(found))]))
    title = [Span(f"{COMPARED} ", "own"), Span(found.before, "code", 100), f": {_headline(found)}"]
    top, left = [Item([Span("Version ", "own"), *version])], "*Shortened: {} more lines are in the JSON.*"
    return Page(title, top, sections, level=3, longest=_LONGEST, shortened=left)


def _headline(found: VersionComparison) -> str:
    every = [item for agent in found.agents.values() for item in agent.rows.values()]
    counts = {moved: sum(item.moved is moved for item in every) for moved in ScoreChange}
    said = [f"{count} {_SAID[moved]}" for moved, count in counts.items() if count]
    return f"{', '.join(said)} of {plural(len(every), 'row')}" if said else "nothing was compared"


def _what(found: VersionComparison) -> str:
    if found.scenes_are == "windows":
        return "the same messages judged for both"
    before, after = found.targets or ("", "")
    who = before if before == after else f"{before} and {after}"
    return f"the same scenes answered by both ({who}), judged by the claims of: {found.yardstick}"


def _row(agent: AgentDifference, name: str, item: ScoreDifference) -> PageRow:
    between = "–" if item.low is None or item.asked_alike else f"{format_delta(item.low)} to {format_delta(item.high)}"
    change = "–" if item.change is None else format_delta(item.change)
    kinds = ", ".join(filter(None, (item.kind, *item.open_kinds)))
    moved = f"{_ICONS[item.moved]} {_SAID[item.moved]}{kinds and f': {kinds}'}"
    numbers = (format_score(item.before), format_score(item.after), change, between, moved, _rests_on(item))
    who = Cell(agent.agent_id, style="code")
    return PageRow([who, _label(name), *(Cell(text, own=True) for text in numbers)])


def _claim(agent: AgentDifference, row: ClaimDifference) -> Line:
    who = [Span(f"{_ICONS[row.difference.moved]} ", "own"), Span(agent.agent_id, "code", 64), Span(" ", "own")]
    claim = Span(f"{row.dimension}/{row.id}", "code", 120)
    return [*who, claim, _moved(row), Span(row.claim, limit=_MOST_CLAIM)]


def _moved(row: ClaimDifference) -> str:
    item, change = row.difference, ""
    if item.change is not None:
        between = "" if item.low is None else f", {format_delta(item.low)} to {format_delta(item.high)}"
        scores = f"{format_score(item.before)} -> {format_score(item.after)}"
        change = f" {scores} ({format_delta(item.change)}{between})"
    return f"{change} {_rests_on(item)}{', edited' if row.edited else ''}: "


def _label(name: str) -> str:
    return _SIGNALS.get(name) or dimension_label(name)


def _answered(agent: AgentDifference) -> Iterator[str]:
    """Yield the expenses of an answer on both sides."""
    for name, (title, shown) in _EXPENSES.items():
        if item := agent.expenses.get(name):
            most = f"95 % below {shown(item.before_p95)} -> {shown(item.after_p95)}"
            yield f"{title} an answer: {shown(item.before)} -> {shown(item.after)} ({most}; x {item.ratio:.2f})"


def _side_by_side(pair: SideBySide) -> Iterator[Line]:
    """Yield the lines of a scene that moved: the visitor's line, both answers, and the judge's quotes."""
    moved = ", ".join(f"{_label(name).lower()} {one:.1f} -> {other:.1f}" for name, (one, other) in pair.scores.items())
    yield [f"{one_line(pair.scene, 64)}, line {pair.turn}: {moved}"]
    for who, text in (("visitor", pair.asked), ("before", pair.before), ("after", pair.after)):
        yield [Span(f"{who}: ", "own"), Span(text, limit=_MOST_ANSWER)]
    for item in pair.claims:
        yield [
            Span(item.claim, "code", 120),
            f" {item.before:.1f} -> {item.after:.1f}{item.quote and ': '}",
            Span(item.quote, limit=_MOST_CLAIM),
        ]


def _rests_on(item: ScoreDifference) -> str:
    if item.note:
        return item.note
    if item.asked_alike:
        return "not affected: same input" if item.scenes else "not affected"
    if item.change is None:
        return f"{'not judged' if item.unjudged else 'nothing to judge'} in {item.unjudged or item.silent} scenes"
    chance = "" if item.low is None else f", p {format_p(item.p_value)}"
    missing = f", {item.unjudged} not judged" if item.unjudged else ""
    return f"{plural(item.scenes, 'scene')}{chance}{missing}"


def _notes(found: VersionComparison, agent: AgentDifference) -> Iterator[str]:
    if 0 < agent.conversations < agent.scenes - agent.left_out - agent.repeated:
        what = "blocks of neighbouring windows" if found.scenes_are == "windows" else "conversations"
        yield f"which count as {agent.conversations} {what}, since scenes of one are alike"
    yield f"persona {'edited' if agent.persona_changed else 'unchanged'}"
    if agent.left_out:
        yield f"{agent.left_out} scenes left out, of which nothing is recorded"
    if agent.repeated:
        yield f"{agent.repeated} scenes answered word by word as before, which tells nothing new"
    for when, claims in (("before", agent.only_before), ("after", agent.only_after)):
        if claims:
            yield f"only {when}: {', '.join(claims)}"


def _remarks(found: VersionComparison) -> Iterator[str]:
    for when, agents in (("before", found.only_before), ("after", found.only_after)):
        if agents:
            yield f"agents only {when}: {', '.join(agents)}"
    yield f"multiple-testing correction: {found.rule}"
    judges = found.judges[0] if found.judges[0] == found.judges[1] else " and ".join(found.judges)
    answers = f", {found.answers} answers" if found.scenes_are == "answers" else ""
    yield f"{found.usage.calls} calls to {judges}{answers}, {format_usd(found.usd)}; ended because {found.stopped}"
    yield from unanswered_lines(found.unanswered)


def unanswered_lines(unanswered: Mapping[str, int]) -> Iterator[str]:
    """Yield a line for each reason of missing answers, with what to do about it."""
    for reason, count in unanswered.items():
        remedy = f"; {REMEDIES[reason]}" if reason in REMEDIES else ""
        yield f"{count} answers did not come: {reason}{remedy}"


def bisection_page(found: Bisection) -> Page:
    """Return each drop with its place, its cause (or why the cause is unknown), and the cost."""
    who = one_line(found.agent_id, 64)
    items = []
    if not found.falls and found.good == found.bad:
        said = (
            f"{who}: there is nothing to compare: since {found.good} nothing changed in git that its scores rest on. If "
            "messages came all the while, evaluate it at an earlier moment too (--as-of), and search with --by evaluations"
        )
        items.append(Item(said))
    elif not found.falls:
        items.append(Item(f"{who}: nothing dropped between {found.good} and {found.bad}"))
    items += [item for fall in found.falls for item in _fall(fall)]
    items += [Item([Span(line, limit=_MOST_LINE)], kind="voice") for line in found.voice]
    items.append(Item(f"scored: {found.looked_at} {found.source}; {found.calls} calls, {format_usd(found.usd)}"))
    return Page(f"Bisection of {found.agent_id}", sections=[Section("", [Items(items)])])


def _fall(fall: Fall) -> Iterator[Item]:
    name = one_line(f"{dimension_label(fall.dimension).lower()}{f'/{fall.claim}' if fall.claim else ''}", 80)
    good, bad = (f"{format_score(point.score)} at {_point(point)}" for point in (fall.good, fall.bad))
    yield Item(f"{name}: {good}, {bad}")
    if fall.last_good and fall.first_bad:
        scores = f"{format_score(fall.last_good.score)} -> {format_score(fall.first_bad.score)}"
        yield Item(f"{_point(fall.first_bad)}: {scores}, {fall.share:.0%} of the drop", 1, "where")
    if fall.cause:
        what = Span(", ".join(fall.cause.what) or "see below", limit=_MOST_LINE)
        yield Item([f"{fall.cause.kind.value}: ", what], 1, "cause")
        yield from (Item([Span(line, limit=_MOST_LINE)], 2) for line in fall.cause.evidence)
    else:
        yield Item([Span(fall.why_not, limit=_MOST_LINE)], 1, "cannot tell")
        if fall.candidates:
            yield Item(", ".join(fall.candidates), 1, "it may be")
    for step in fall.steps:
        yield Item(f"it dropped further at {_point(step)}, to {format_score(step.score)}", 1)


def _point(point: PastPoint) -> str:
    return one_line(f"{point.name}{f' ({point.subject})' if point.subject else ''}", 120)


def changes_page(changes: Sequence[Change]) -> Page:
    """Return all removed, edited and added entries by name: the inputs of a pull request's verdict that changed."""
    items = []
    for change in sorted(changes, key=_rank):
        rows = Span(f": {_counted(change.rows)}" if any(change.rows) else "", "own")
        items.append(Item([Span(f"{change.kind.value} {change.what} ", "own"), *_named(change), rows]))
    listed = [Section("", [Items(items)])] if items else []
    return Page(TOUCHED, [Item(changes_line(changes))], listed, level=3, longest=_LONGEST, shortened="- and {} more")


def changes_line(changes: Sequence[Change]) -> Line:
    """Return all of that in one line: each sort of thing with how many were removed, edited and added, and the first of them."""
    line: list[str | Span] = []
    for what in dict.fromkeys(change.what for change in sorted(changes, key=_rank)):
        own = sorted((change for change in changes if change.what == what), key=_rank)
        rows = [change.rows for change in own if any(change.rows)]
        counts = [sum(column) for column in zip(*rows, strict=True)]
        counted = _counted(counts or [sum(change.kind is kind for change in own) for kind in _KINDS])
        name = Span(_PLURALS.get(what, what), "strong")
        line += [Span("; " if line else "", "own"), name, Span(f" {counted}: ", "own")]
        for place, change in enumerate(own[:_MOST_NAMED]):
            line += [Span(", " if place else "", "own"), *_named(change, _MOST_SHORT)]
        if len(own) > _MOST_NAMED:
            line.append(Span(f" and {len(own) - _MOST_NAMED} more", "own"))
    return [*line, Span(".", "own")] if line else [Span(_NOTHING, "own")]


def _named(change: Change, limit: int = _MOST_DETAIL) -> list[str | Span]:
    name = Span(change.name, "code", _MOST_NAME)
    return [name, Span(" (", "own"), Span(change.detail, limit=limit), Span(")", "own")] if change.detail else [name]


def _counted(counts: Sequence[int]) -> str:
    return ", ".join(f"{count:,} {kind.value}" for count, kind in zip(counts, _KINDS, strict=True) if count)


def _rank(change: Change) -> tuple[int, int, str]:
    order = _ORDER.index(change.what) if change.what in _ORDER else len(_ORDER)
    return order, _KINDS.index(change.kind), change.name


def since_page(report: "SinceReport") -> Page:
    """Return each agent before a date and after it, the worst first, with its worst messages."""
    names = dict.fromkeys(name for agent in report.agents for name in agent.scores)
    columns = [Column("Agent", number=False), Column("Before", name="before"), Column("After", name="after")]
    columns += [Column(dimension_label(name), name=name) for name in names]
    rows = [PageRow(_sides(agent, names), agent.result.status.tone) for agent in report.agents]
    note = "Before, After: share of messages in character with its 95 % interval; the scores are 0-9, before → after."
    table = Table("Before and after", columns, rows, note)
    return Page(
        f"Since {report.since:%Y-%m-%d %H:%M} UTC",
        top=[table],
        sections=[Section("", [Items([item for agent in report.agents for item in _one_since(agent)])])],
    )


def _sides(agent: "AgentSince", names: Iterable[str]) -> list[AnyCell]:
    shares = [
        "–" if side.share is None else f"{side.share:.0%} ({side.low:.0%}-{side.high:.0%})"
        for side in (agent.before, agent.after)
    ]
    scores = (agent.scores.get(name, (None, None)) for name in names)
    return [one_line(agent.name, 64), *shares, *(" → ".join(map(format_score, pair)) for pair in scores)]


def _one_since(agent: "AgentSince") -> Iterator[Item]:
    # An agent that was out of character before, too, has not dropped, and is not in character.
    word = "no drop" if agent.result is Result.HELD else agent.result.status.word
    yield Item([Span(f"{word}: ", "own"), Span(agent.text, limit=_MOST_LINE)])
    for worst in agent.worst:
        yield from worst_lines(agent.name, worst, worst.verdict.claims or [FACTS], {})
