"""Pages of experiments: tested claims and their variation, the cause of a drop, the files of a change, both sides of a date."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from persona_pipeline.base.status import Result
from persona_pipeline.lab.results import (
    Bisection,
    Fall,
    PastPoint,
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
    format_score,
    format_usd,
    one_line,
)
from persona_pipeline.reporting.view import FACTS
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
_MOST_LINE, _LONGEST = 300, 20_000
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
