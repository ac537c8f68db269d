"""What made an agent's scores fall, as lines for a terminal."""

from collections.abc import Iterator

from persona_pipeline.reporting.text import one_line
from persona_pipeline.reporting.view import dimension_label, format_score
from persona_pipeline.versions.finding import Bisection, Fall, Point

_LINE = 300


def bisection_lines(found: Bisection) -> Iterator[str]:
    """Yield each fall, where it happened, what caused it or why that cannot be told, and what was spent."""
    who = one_line(found.agent_id, 64)
    if not found.falls and found.good == found.bad:
        yield (
            f"{who}: there is nothing to compare: since {one_line(found.good)} nothing changed in git that its scores rest on. "
            "If messages came all the while, evaluate it at an earlier moment too (--as-of), and search with --by evaluations"
        )
    elif not found.falls:
        yield f"{who}: nothing fell between {one_line(found.good)} and {one_line(found.bad)}"
    for fall in found.falls:
        yield from _fall(fall)
    for line in found.voice:
        yield f"voice: {one_line(line, _LINE)}"
    usd = "unknown dollars" if found.usd is None else f"${found.usd:.4f}"
    yield f"scored: {found.looked_at} {found.source}; {found.calls} calls, {usd}"


def _fall(fall: Fall) -> Iterator[str]:
    name = one_line(f"{dimension_label(fall.dimension).lower()}{f'/{fall.claim}' if fall.claim else ''}", 80)
    yield f"{name}: {format_score(fall.good.score)} at {_point(fall.good)}, {format_score(fall.bad.score)} at {_point(fall.bad)}"
    if fall.last_good and fall.first_bad:
        scores = f"{format_score(fall.last_good.score)} -> {format_score(fall.first_bad.score)}"
        yield f"  where: {_point(fall.first_bad)}: {scores}, {fall.share:.0%} of the fall"
    if fall.cause:
        yield f"  cause: {fall.cause.kind.value}: {one_line(', '.join(fall.cause.what) or 'see below', _LINE)}"
        yield from (f"    {one_line(line, _LINE)}" for line in fall.cause.evidence)
    else:
        yield f"  cannot tell: {one_line(fall.why_not, _LINE)}"
        if fall.candidates:
            yield f"  it may be: {', '.join(fall.candidates)}"
    for step in fall.steps:
        yield f"  it fell further at {_point(step)}, to {format_score(step.score)}"


def _point(point: Point) -> str:
    return one_line(f"{point.name}{f' ({point.subject})' if point.subject else ''}", 120)
