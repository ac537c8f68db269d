"""Scores over windows of time."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from markupsafe import Markup

from persona_pipeline.reporting.charts.bullet import SCALE_MAXIMUM
from persona_pipeline.reporting.charts.svg import element, path, picture

_WIDTH, _HEIGHT = 480.0, 200.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 26.0, 12.0, 20.0, 26.0
_MOST_DATES = 6


@dataclass(frozen=True)
class Series:
    """One line: a score (0-9) or None a window. ``style`` is a CSS class, ``d1`` to ``d5``; the main line has none.

    ``margins``: half the width of each score's interval, in points, drawn as a band where it is known; empty: no band.
    """

    label: str
    scores: Sequence[float | None]
    style: str = ""
    margins: Sequence[float | None] = ()


def timeline(
    ends: Sequence[datetime],
    series: Sequence[Series],
    *,
    title: str,
    change_index: int | None = None,
    change_label: str = "change",
) -> Markup:
    """Return the lines over the windows' ends; a dashed line stands before the window with index ``change_index``.

    Every series has as many scores as there are ends; anything else raises ``ValueError``.
    """
    if any(len(line.scores) != len(ends) for line in series):
        raise ValueError("each series needs one score, or None, a window")
    xs = _positions(ends)
    parts = [*_grid(), *_dates(ends, xs)]
    if change_index is not None:
        parts += _change(xs, change_index, change_label)
    for line in series:
        parts += _band(line, xs)
    for line in sorted(series, key=lambda line: not line.style):
        parts += _line(line, xs)
    # The main line is drawn last, on top of the others.
    return picture(_WIDTH, _HEIGHT, title, parts, classes="chart timeline")


def _positions(ends: Sequence[datetime]) -> list[float]:
    width = _WIDTH - _LEFT - _RIGHT
    if len(ends) < 2 or ends[-1] == ends[0]:
        return [_LEFT + width / 2] * len(ends)
    whole = (ends[-1] - ends[0]).total_seconds()
    return [_LEFT + width * (end - ends[0]).total_seconds() / whole for end in ends]


def _y(score: float) -> float:
    return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - score / SCALE_MAXIMUM)


def _grid() -> list[Markup]:
    parts = []
    for score in (0, 3, 6, 9):
        y = _y(score)
        name = "axis" if score == 0 else "grid"
        parts.append(element("line", {"class": name, "x1": _LEFT, "x2": _WIDTH - _RIGHT, "y1": y, "y2": y}))
        anchor = {"class": "note", "x": _LEFT - 8, "y": y, "text-anchor": "end", "dominant-baseline": "central"}
        parts.append(element("text", anchor, str(score)))
    return parts


def _dates(ends: Sequence[datetime], xs: Sequence[float]) -> list[Markup]:
    every = max(1, -(-len(ends) // _MOST_DATES))
    # Counted from the newest window, which is always named.
    shown = [index for index in range(len(ends)) if (len(ends) - 1 - index) % every == 0]
    parts = []
    for index in shown:
        anchor = "end" if index == len(ends) - 1 and len(ends) > 1 else "middle"
        place = {"class": "note", "x": xs[index], "y": _HEIGHT - 8, "text-anchor": anchor}
        parts.append(element("text", place, f"{ends[index].day} {ends[index]:%b}"))
    return parts


def _change(xs: Sequence[float], index: int, label: str) -> list[Markup]:
    x = (xs[index - 1] + xs[index]) / 2 if index > 0 else xs[index]
    anchor = "end" if x > _WIDTH * 0.7 else "start"
    place = {"class": "note bad", "x": x + (-6 if anchor == "end" else 6), "y": _TOP - 7, "text-anchor": anchor}
    line = {"class": "change", "x1": x, "x2": x, "y1": _TOP - 16, "y2": _HEIGHT - _BOTTOM}
    return [element("line", line), element("text", place, label)]


def _band(line: Series, xs: Sequence[float]) -> list[Markup]:
    """Return the band of a line, cut where a score or its margin is missing."""
    if not line.margins:
        return []
    pieces: list[list[tuple[float, float, float]]] = [[]]
    for x, score, margin in zip(xs, line.scores, line.margins, strict=True):
        if score is None or margin is None:
            pieces.append([])
        else:
            low, high = max(score - margin, 0.0), min(score + margin, SCALE_MAXIMUM)
            pieces[-1].append((x, _y(high), _y(low)))
    corners = [
        [*((x, top) for x, top, _ in piece), *((x, bottom) for x, _, bottom in reversed(piece))]
        for piece in pieces
        if len(piece) > 1
    ]
    name = f"range {line.style}".strip()
    return [element("path", {"class": name, "d": f"{path(points)} Z"}) for points in corners]


def _line(line: Series, xs: Sequence[float]) -> list[Markup]:
    points = [None if score is None else (x, _y(score)) for x, score in zip(xs, line.scores, strict=True)]
    parts = [element("path", {"class": f"line {line.style}".strip(), "d": path(points)})]
    name = f"dot {line.style}".strip()
    radius = 2 if line.style else 3
    for index, point in enumerate(points):
        lonely = point and not any(points[max(0, index - 1) : index]) and not any(points[index + 1 : index + 2])
        if point and (not line.style or lonely):
            parts.append(element("circle", {"class": name, "cx": point[0], "cy": point[1], "r": radius}))
    return parts
