"""An interview as a page: scores by dimension and kind of scene, drops, and the worst answers."""

from collections.abc import Iterator, Sequence

from persona_pipeline.base.status import Result
from persona_pipeline.lab.interview.results import Interview, InterviewScore, MeanVerdict, WorstLine
from persona_pipeline.reporting.page import Cell, Item, Items, Page, Section, Span, Table
from persona_pipeline.reporting.pages.experiments import unanswered_lines
from persona_pipeline.reporting.text import format_delta, format_p, format_score, format_usd
from persona_pipeline.world.propositions.models import dimension_label

_MOST_LINE, _MOST_HELD = 300, 2.0


def interview_page(found: Interview) -> Page:
    """Return an interview's page: scores, verdicts since the baseline, the worst lines, and its basis."""
    kinds = list(dict.fromkeys(scene.kind for scene in found.scenes.values()))
    whole = {row.dimension: row for row in found.verdicts if not row.kind and not row.claim}
    rows = [
        [
            dimension_label(name),
            format_score(item.score),
            _interval(item.low, item.high),
            *(format_score(item.kinds.get(kind), 1) for kind in kinds),
            _verdict_cell(
                whole.get(name), [row.kind for row in found.verdicts if row.dimension == name and _fell(row)]
            ),
        ]
        for name, item in found.dimensions.items()
    ]
    columns = ["Dimension", "Score", "95 %", *(kind.replace("_", " ") for kind in kinds), "Baseline"]
    note = "Points from 0 to 9, each scene counting once."
    sections = [Section("", [Table.plain("Scores", columns, rows, note)])]
    sections.append(Section("", [Item([Span(f"{found.agent_id}: ", "strong"), _headline(found)])]))
    if told := [
        Item(_change(row), kind=row.verdict.status.word, tone=row.verdict.status.tone) for row in _remarkable(found)
    ]:
        sections.append(Section("Since the baseline", [Items(told)]))
    lines = [item for line in found.worst for item in _line(line)]
    sections += [Section("Messages out of character", [Items(lines)])] if lines else []
    sections.append(Section("", [Items.of(*_remarks(found))]))
    title = [Span("Interview of ", "own"), Span(found.agent_id, "code", 64), f": {_headline(found)}"]
    return Page(title, sections=sections)


def _line(line: WorstLine) -> list[Item]:
    where = f"{line.scene}, session {line.session}: {', '.join(line.claims)}; asked: "
    quote = Item([Span(line.quote, limit=_MOST_LINE)], kind=f"{line.score:.1f}", tone="bad")
    return [quote, Item([where, Span(line.asked, limit=_MOST_LINE)], 1)]


def _headline(found: Interview) -> str:
    verdicts = {row.verdict for row in found.verdicts}
    if Result.FELL in verdicts:
        return Result.FELL.status.word
    return (Result.HELD if verdicts == {Result.HELD} and found.whole else Result.CANNOT_TELL).status.word


def _remarkable(found: Interview) -> list[MeanVerdict]:
    return [row for row in found.verdicts if row.verdict is not Result.HELD]


def _interval(low: float | None, high: float | None) -> str:
    return "–" if low is None or high is None else f"{low:.1f} to {high:.1f}"


def _fell(row: MeanVerdict) -> bool:
    return row.verdict is Result.FELL and not row.claim


def _verdict_cell(row: MeanVerdict | None, fell: Sequence[str]) -> Cell:
    """Return the verdict on a dimension; ``fell``: the kinds of scene in which it dropped, "" for all."""
    if row is None:
        return Cell("–")
    change = "" if row.change is None else f" {format_delta(row.change, 1)}"
    if row.verdict is Result.HELD and fell:
        return Cell(f"{Result.FELL.status.word}: {', '.join(fell).replace('_', ' ')}", "bad")
    missed = row.verdict is Result.HELD and row.detectable is not None and row.detectable > _MOST_HELD
    said = f", drops below {row.detectable:.1f} would be missed" if missed else ""
    return Cell(f"{row.verdict.status.word}{change}{said}", row.verdict.status.tone)


def _change(row: MeanVerdict) -> str:
    which = f"{row.dimension}/{row.claim}" if row.claim else dimension_label(row.dimension)
    which += f", {row.kind.replace('_', ' ')}" if row.kind else ""
    if row.change is None:
        return f"{which}: {row.why}"
    between = (
        "" if row.low is None or row.high is None else f" (95 %: {format_delta(row.low)} to {format_delta(row.high)})"
    )
    numbers = f"{format_score(row.before)} → {format_score(row.after)}, {format_delta(row.change)}{between}"
    chance = "" if row.p_value is None else f", p {format_p(row.p_value)}"
    return f"{which}: {numbers}{chance}{f'; {row.why}' if row.why else ''}"


def _remarks(found: Interview) -> Iterator[str]:
    yield f"{len(found.scenes)} scenes in {found.sessions} sessions, answered by {found.target}"
    if found.baseline:
        left_out = f"; {found.changed} scenes left out, as only one of the two has them" if found.changed else ""
        yield f"held against the interview of {found.baseline}{left_out}"
    for name, item in found.dimensions.items():
        if said := _gaps(item):
            yield f"{name}: {said}"
    for name, why in found.not_asked.items():
        yield f"{name} is not asked: {why}"
    yield from unanswered_lines(found.unanswered)
    yield f"{found.answers} answers and {found.usage.calls} calls to {found.judge}, {format_usd(found.usd)}"


def _gaps(item: InterviewScore) -> str:
    gaps = ((item.unjudged, "not judged"), (item.silent, "had nothing to judge"))
    return ", ".join(f"{count} conversations {what}" for count, what in gaps if count)
