"""Two versions side by side, and an interview: scores over scenes, what changed and how surely, and lines to read."""

from collections.abc import Iterator, Mapping, Sequence

from persona_pipeline.base.status import Result
from persona_pipeline.lab.interview import Interview, MeanVerdict, WorstLine
from persona_pipeline.lab.results import (
    AgentDifference,
    ClaimDifference,
    ScoreChange,
    ScoreDifference,
    SideBySide,
    VersionComparison,
)
from persona_pipeline.reporting.page import Cell, Column, Item, Items, Line, Page, PageRow, Section, Span, Table
from persona_pipeline.reporting.text import format_delta, format_p, format_score, format_usd, one_line, plural
from persona_pipeline.suites.answering.base import REMEDIES
from persona_pipeline.world.propositions.models import dimension_label

_ICONS = {ScoreChange.FELL: "🔻", ScoreChange.ROSE: "🔼", ScoreChange.SAME: "=", ScoreChange.OPEN: "?"}
_SAID = {
    ScoreChange.FELL: "fell",
    ScoreChange.ROSE: "rose",
    ScoreChange.SAME: "held",
    ScoreChange.OPEN: "cannot tell",
}
# Characters of a claim, of a line, of an answer (the JSON has all of it), and of a page.
_MOST_CLAIM, _MOST_LINE, _MOST_ANSWER, _LONGEST = 200, 300, 600, 20_000
# Where only larger drops would be seen, in points, the page says so.
_MOST_HELD = 2.0
COMPARED = "Compared with"


def comparison_page(found: VersionComparison) -> Page:
    """Return a comparison: a row for each dimension, the changed claims, examples, and its data."""
    titles = ("Agent", "Dimension", "Before", "After", "Change", "Interval", "", "Rests on")
    columns = [Column(title, number=title in ("Before", "After", "Change", "Interval")) for title in titles]
    rows = [_row(agent, name, item) for agent in found.agents.values() for name, item in agent.dimensions.items()]
    moved = [_claim(agent, row) for agent in found.agents.values() for row in (*agent.moved, *agent.suspects)]
    notes = [f"{agent.agent_id}: {', '.join(_notes(found, agent))}" for agent in found.agents.values()]
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
    every = [item for agent in found.agents.values() for item in agent.dimensions.values()]
    counts = {moved: sum(item.moved is moved for item in every) for moved in ScoreChange}
    said = [f"{count} {_SAID[moved]}" for moved, count in counts.items() if count]
    return f"{', '.join(said)} of {plural(len(every), 'dimension')}" if said else "nothing was compared"


def _what(found: VersionComparison) -> str:
    if found.scenes_are == "windows":
        return "the same messages judged for both"
    before, after = found.targets or ("", "")
    who = before if before == after else f"{before} and {after}"
    return f"the same scenes answered by both ({who}), judged by the claims of the second"


def _row(agent: AgentDifference, name: str, item: ScoreDifference) -> PageRow:
    between = "–" if item.low is None or item.asked_alike else f"{format_delta(item.low)} to {format_delta(item.high)}"
    change = "–" if item.change is None else format_delta(item.change)
    kinds = ", ".join(filter(None, (item.kind, *item.open_kinds)))
    moved = f"{_ICONS[item.moved]} {_SAID[item.moved]}{kinds and f': {kinds}'}"
    numbers = (format_score(item.before), format_score(item.after), change, between, moved, _rests_on(item))
    who = Cell(agent.agent_id, style="code")
    return PageRow([who, dimension_label(name), *(Cell(text, own=True) for text in numbers)])


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


def _side_by_side(pair: SideBySide) -> Iterator[Line]:
    """Yield the lines of a scene that moved: the visitor's line, both answers, and the judge's quotes."""
    moved = ", ".join(
        f"{dimension_label(name).lower()} {one:.1f} -> {other:.1f}" for name, (one, other) in pair.scores.items()
    )
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
    answers = f", {found.answers} answers" if found.scenes_are == "answers" else ""
    yield f"{found.usage.calls} calls to {found.judge}{answers}, {format_usd(found.usd)}; ended because {found.stopped}"
    yield from unanswered_lines(found.unanswered)


def unanswered_lines(unanswered: Mapping[str, int]) -> Iterator[str]:
    """Yield a line for each reason of missing answers, with what to do about it."""
    for reason, count in unanswered.items():
        remedy = f"; {REMEDIES[reason]}" if reason in REMEDIES else ""
        yield f"{count} answers did not come: {reason}{remedy}"


def interview_page(found: Interview) -> Page:
    """Return an interview's page: scores, verdicts since the baseline, the worst lines, and its basis."""
    kinds = list(dict.fromkeys(scene.kind for scene in found.scenes.values()))
    rows = [
        [
            dimension_label(name),
            format_score(item.score),
            "–" if item.low is None or item.high is None else f"{item.low:.1f} to {item.high:.1f}",
            *(format_score(item.kinds.get(kind), 1) for kind in kinds),
            _verdict_cell([row for row in found.verdicts if row.dimension == name and not row.claim]),
        ]
        for name, item in found.dimensions.items()
    ]
    columns = ["Dimension", "Score", "95 %", *(kind.replace("_", " ") for kind in kinds), "Baseline"]
    note = "Points from 0 to 9, each scene counting once."
    table = Table.plain("Scores", columns, rows, note)
    rest = {
        "Since the baseline": [
            Item(_since_baseline(row), kind=row.verdict.status.word, tone=row.verdict.status.tone)
            for row in found.verdicts
            if row.verdict is not Result.HELD
        ],
        "Messages out of character": [item for line in found.worst for item in _worst_line(line)],
    }
    sections = [
        Section("", [table, Item([Span(f"{found.agent_id}: ", "strong"), _interview_verdict(found)])]),
        *(Section(title, [Items(items)]) for title, items in rest.items() if items),
        Section("", [Items.of(*_interview_remarks(found))]),
    ]
    title = [Span("Interview of ", "own"), Span(found.agent_id, "code", 64), f": {_interview_verdict(found)}"]
    return Page(title, sections=sections)


def _worst_line(line: WorstLine) -> list[Item]:
    where = f"{line.scene}, session {line.session}: {', '.join(line.claims)}; asked: "
    quote = Item([Span(line.quote, limit=_MOST_LINE)], kind=f"{line.score:.1f}", tone="bad")
    return [quote, Item([where, Span(line.asked, limit=_MOST_LINE)], 1)]


def _interview_verdict(found: Interview) -> str:
    verdicts = {row.verdict for row in found.verdicts}
    if Result.FELL in verdicts:
        return Result.FELL.status.word
    return (Result.HELD if verdicts == {Result.HELD} and found.whole else Result.CANNOT_TELL).status.word


def _verdict_cell(rows: Sequence[MeanVerdict]) -> Cell:
    """Return the verdict on a dimension: on all scenes, or on the kinds of scene in which alone it dropped."""
    row = next((row for row in rows if not row.kind), None)
    if row is None:
        return Cell("–")
    change = "" if row.change is None else f" {format_delta(row.change, 1)}"
    fell = [row.kind for row in rows if row.verdict is Result.FELL]
    if row.verdict is Result.HELD and fell:
        return Cell(f"{Result.FELL.status.word}: {', '.join(fell).replace('_', ' ')}", "bad")
    missed = row.verdict is Result.HELD and row.detectable is not None and row.detectable > _MOST_HELD
    said = f", drops below {row.detectable:.1f} would be missed" if missed else ""
    return Cell(f"{row.verdict.status.word}{change}{said}", row.verdict.status.tone)


def _since_baseline(row: MeanVerdict) -> str:
    which = f"{row.dimension}/{row.claim}" if row.claim else dimension_label(row.dimension)
    which += f", {row.kind.replace('_', ' ')}" if row.kind else ""
    if row.change is None:
        return f"{which}: {row.why}"
    between = "" if row.low is None else f" (95 %: {format_delta(row.low)} to {format_delta(row.high)})"
    numbers = f"{format_score(row.before)} → {format_score(row.after)}, {format_delta(row.change)}{between}"
    chance = "" if row.p_value is None else f", p {format_p(row.p_value)}"
    return f"{which}: {numbers}{chance}{f'; {row.why}' if row.why else ''}"


def _interview_remarks(found: Interview) -> Iterator[str]:
    yield f"{len(found.scenes)} scenes in {found.sessions} sessions, answered by {found.target}"
    if found.baseline:
        left_out = f"; {found.changed} scenes left out, as only one of the two has them" if found.changed else ""
        yield f"held against the interview of {found.baseline}{left_out}"
    for name, item in found.dimensions.items():
        gaps = ((item.unjudged, "not judged"), (item.silent, "had nothing to judge"))
        if said := [f"{count} conversations {what}" for count, what in gaps if count]:
            yield f"{name}: {', '.join(said)}"
    for name, why in found.not_asked.items():
        yield f"{name} is not asked: {why}"
    yield from unanswered_lines(found.unanswered)
    yield f"{found.answers} answers and {found.usage.calls} calls to {found.judge}, {format_usd(found.usd)}"
