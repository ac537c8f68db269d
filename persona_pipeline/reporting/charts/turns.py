"""Scores against the turn of a conversation."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from persona_pipeline.reporting.charts.bullet import SCALE_MAXIMUM
from persona_pipeline.reporting.charts.svg import element, path, picture

_WIDTH, _HEIGHT = 480.0, 180.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 26.0, 12.0, 20.0, 26.0
_MOST_TICKS = 8


@dataclass(frozen=True)
class Curve:
    """Scores (0-9), one a turn, and the interval of each, None where it is not known."""

    scores: Sequence[float]
    intervals: Sequence[tuple[float | None, float | None]] = ()


def turn_chart(turns: Sequence[int], curves: Sequence[Curve], *, title: str, mark: int | None = None) -> Markup:
    """Return the curves over the turns, with their intervals as bands and a dashed line at the turn ``mark``."""
    parts: list[Markup] = []
    for score in (0, 3, 6, 9):
        y = _y(score)
        name = "axis" if score == 0 else "grid"
        parts.append(element("line", {"class": name, "x1": _LEFT, "x2": _WIDTH - _RIGHT, "y1": y, "y2": y}))
        place = {"class": "note", "x": _LEFT - 8, "y": y, "text-anchor": "end", "dominant-baseline": "central"}
        parts.append(element("text", place, str(score)))
    last = max(turns, default=1)
    every = max(1, -(-last // _MOST_TICKS))
    for turn in turns:
        if turn == 1 or turn % every == 0:
            place = {"class": "note", "x": _x(turn, last), "y": _HEIGHT - 8, "text-anchor": "middle"}
            parts.append(element("text", place, str(turn)))
    for curve in curves:
        xs = [_x(turn, last) for turn in turns]
        known = [
            (x, _y(min(high, SCALE_MAXIMUM)), _y(max(low, 0.0)))
            for x, (low, high) in zip(xs, curve.intervals, strict=False)
            if low is not None and high is not None
        ]
        if len(known) > 1:
            corners = [*((x, top) for x, top, _ in known), *((x, bottom) for x, _, bottom in reversed(known))]
            parts.append(element("path", {"class": "range", "d": f"{path(corners)} Z"}))
        line = [(x, _y(score)) for x, score in zip(xs, curve.scores, strict=True)]
        parts.append(element("path", {"class": "line", "d": path(line)}))
    if mark is not None:
        x = _x(mark, last)
        parts.append(element("line", {"class": "change", "x1": x, "x2": x, "y1": _TOP - 16, "y2": _HEIGHT - _BOTTOM}))
        anchor = "end" if x > _WIDTH * 0.7 else "start"
        place = {"class": "note bad", "x": x + (-6 if anchor == "end" else 6), "y": _TOP - 7, "text-anchor": anchor}
        parts.append(element("text", place, f"half lost by turn {mark}"))
    return picture(_WIDTH, _HEIGHT, title, parts, classes="chart timeline")


def _x(turn: int, last: int) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (turn - 1) / max(1, last - 1)


def _y(score: float) -> float:
    return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - score / SCALE_MAXIMUM)
