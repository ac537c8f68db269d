"""A series of scores in the height of a line of text."""

from collections.abc import Sequence

from markupsafe import Markup

from persona_pipeline.reporting.charts.bullet import SCALE_MAXIMUM
from persona_pipeline.reporting.charts.svg import element, path, picture
from persona_pipeline.reporting.view import format_score

_WIDTH, _HEIGHT, _MARGIN = 96.0, 24.0, 3.0


def small_line(scores: Sequence[float | None]) -> Markup:
    """Return a line through the scores and nothing else, in few bytes: a page has a thousand, beside the newest score."""
    step = _WIDTH / max(1, len(scores) - 1)
    points = [
        None if score is None else (round(index * step), round(_HEIGHT * (1 - score / SCALE_MAXIMUM)))
        for index, score in enumerate(scores)
    ]
    if sum(point is not None for point in points) < 2:
        return Markup("")
    drawn = path([None if point is None else (float(point[0]), float(point[1])) for point in points])
    return Markup('<svg viewBox="0 0 96 24" aria-hidden="true"><path d="{}"/></svg>').format(drawn)


def sparkline(scores: Sequence[float | None], change_index: int | None = None) -> Markup:
    """Return a line through the scores (0-9; None: a gap) with the last one dotted and the change point marked."""
    step = (_WIDTH - 2 * _MARGIN) / max(1, len(scores) - 1)
    points = [
        None
        if score is None
        else (_MARGIN + index * step, _HEIGHT - _MARGIN - (_HEIGHT - 2 * _MARGIN) * score / SCALE_MAXIMUM)
        for index, score in enumerate(scores)
    ]
    known = [score for score in scores if score is not None]
    title = (
        f"{len(known)} windows, from {format_score(known[0])} to {format_score(known[-1])}" if known else "no scores"
    )
    parts = [element("path", {"class": "line", "d": path(points)})]
    if change_index is not None:
        x = _MARGIN + (change_index - 0.5) * step
        parts.append(element("line", {"class": "change", "x1": x, "x2": x, "y1": 0, "y2": _HEIGHT}))
    last = next((point for point in reversed(points) if point), None)
    if last:
        parts.append(element("circle", {"class": "dot", "cx": last[0], "cy": last[1], "r": 2.5}))
    return picture(_WIDTH, _HEIGHT, title, parts, classes="chart sparkline")
