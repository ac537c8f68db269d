"""Scores on the 0-9 scale: as a bar, in a line of text, and over windows of time."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from markupsafe import Markup

from persona_pipeline.reporting.charts.svg import Plot, element, line_path, path, picture
from persona_pipeline.reporting.text import format_score

_BEST = 9.0
_BAR_WIDTH, _BAR_HEIGHT = 120.0, 10.0
_SPARK_WIDTH, _SPARK_HEIGHT = 96.0, 24.0
_TIMELINE = Plot(200.0)
_TICKS = [(score / _BEST, str(score)) for score in (0, 3, 6, 9)]
_MOST_DATES = 6


def bullet(
    score: float | None, baseline: float | None, *, bad: bool = False, interval: tuple[float, float] | None = None
) -> Markup:
    """Return a bar for ``score`` (0-9, None: an empty track) with a tick at ``baseline``; ``bad`` draws it as a drift.

    ``interval``: of the score (0-9), drawn as a thin line across the bar's end.
    """
    title = f"{format_score(score)} of 9" + (f", baseline {format_score(baseline)}" if baseline is not None else "")
    if interval is not None:
        title += f", 95 % interval {format_score(interval[0])} to {format_score(interval[1])}"
    parts = [_box("track", _BAR_WIDTH)]
    if score is not None:
        parts.append(_box("bar bad" if bad else "bar", _along(score)))
    if score is not None and interval is not None:
        low, high = _along(interval[0]), _along(interval[1])
        middle = _BAR_HEIGHT / 2
        parts.append(element("line", {"class": "whisker", "x1": low, "x2": high, "y1": middle, "y2": middle}))
        for x in (low, high):
            parts.append(element("line", {"class": "whisker", "x1": x, "x2": x, "y1": 2.5, "y2": _BAR_HEIGHT - 2.5}))
    if baseline is not None:
        x = min(max(_along(baseline), 1), _BAR_WIDTH - 1)
        parts.append(element("line", {"class": "tick", "x1": x, "x2": x, "y1": 0, "y2": _BAR_HEIGHT}))
    return picture(_BAR_WIDTH, _BAR_HEIGHT, title, parts, classes="chart bullet")


def _box(name: str, width: float) -> Markup:
    return element("rect", {"class": name, "x": 0, "y": 2, "width": width, "height": _BAR_HEIGHT - 4, "rx": 3})


def _along(score: float) -> float:
    return _BAR_WIDTH * min(max(score, 0.0), _BEST) / _BEST


def small_line(scores: Sequence[float | None]) -> Markup:
    """Return a line through the scores and nothing else, in few bytes: a page has a thousand, beside the newest score."""
    step = _SPARK_WIDTH / max(1, len(scores) - 1)
    points = [
        None if score is None else (float(round(index * step)), float(round(_SPARK_HEIGHT * (1 - score / _BEST))))
        for index, score in enumerate(scores)
    ]
    known = [score for score in scores if score is not None]
    if len(known) < 2:
        return Markup("")
    label = f"{len(known)} windows, {format_score(known[0])} to {format_score(known[-1])}"
    return Markup('<svg viewBox="0 0 96 24" role="img" aria-label="{}"><path d="{}"/></svg>').format(
        label, path(points)
    )


@dataclass(frozen=True)
class Series:
    """One line: a score (0-9) or None a window. ``style`` is a CSS class, ``d1`` to ``d5``; the main line has none."""

    scores: Sequence[float | None]
    style: str = ""


def timeline(ends: Sequence[datetime], series: Sequence[Series], *, title: str) -> Markup:
    """Return the lines over the windows' ends.

    Every series has as many scores as there are ends; anything else raises ``ValueError``.
    """
    if any(len(line.scores) != len(ends) for line in series):
        raise ValueError("each series needs one score, or None, a window")
    xs = _positions(ends)
    parts = [*_TIMELINE.grid(_TICKS), *_dates(ends, xs)]
    for line in sorted(series, key=lambda line: not line.style):
        parts += _line(line, xs)
    # The main line is drawn last, on top of the others.
    return _TIMELINE.picture(title, parts)


def _positions(ends: Sequence[datetime]) -> list[float]:
    if len(ends) < 2 or ends[-1] == ends[0]:
        return [_TIMELINE.x(0.5)] * len(ends)
    whole = (ends[-1] - ends[0]).total_seconds()
    return [_TIMELINE.x((end - ends[0]).total_seconds() / whole) for end in ends]


def _dates(ends: Sequence[datetime], xs: Sequence[float]) -> list[Markup]:
    every = max(1, -(-len(ends) // _MOST_DATES))
    # Counted from the newest window, which is always named.
    parts = []
    for index in (index for index in range(len(ends)) if (len(ends) - 1 - index) % every == 0):
        anchor = "end" if index == len(ends) - 1 and len(ends) > 1 else "middle"
        parts.append(_TIMELINE.below(xs[index], f"{ends[index].day} {ends[index]:%b}", anchor))
    return parts


def _line(line: Series, xs: Sequence[float]) -> list[Markup]:
    places = zip(xs, line.scores, strict=True)
    points = [None if score is None else (x, _TIMELINE.y(score / _BEST)) for x, score in places]
    parts = [line_path(points, line.style)]
    name = f"dot {line.style}".strip()
    radius = 2 if line.style else 3
    for index, point in enumerate(points):
        lonely = point and not any(points[max(0, index - 1) : index]) and not any(points[index + 1 : index + 2])
        if point and (not line.style or lonely):
            parts.append(element("circle", {"class": name, "cx": point[0], "cy": point[1], "r": radius}))
    return parts
