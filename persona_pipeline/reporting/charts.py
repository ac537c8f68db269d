"""Charts of scores (0-9) in SVG: a bar, a line in a table, and the history of an agent with its numbers.

Every attribute and text is escaped, and no chart carries a style attribute, which a strict CSP blocks.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from markupsafe import Markup, escape

from persona_pipeline.reporting.page import Figure, Table
from persona_pipeline.reporting.text import format_score, html_text, xml_text
from persona_pipeline.world.propositions.models import ALL_DIMENSIONS, dimension_label

Json = Mapping[str, Any]


def element(name: str, attributes: Mapping[str, object], *children: str) -> Markup:
    """Return one element. Text is escaped: of attributes, and of a child that is not ``Markup``."""
    pairs = "".join(f' {key}="{_attribute(value)}"' for key, value in attributes.items())
    return Markup(f"<{name}{pairs}>{''.join(map(_safe, children))}</{name}>")


def picture(width: float, height: float, title: str, children: Iterable[Markup], *, classes: str = "chart") -> Markup:
    """Return an ``<svg>`` of this view box that a screen reader announces as one image with this title."""
    box = f"0 0 {number(width)} {number(height)}"
    own = {"xmlns": "http://www.w3.org/2000/svg", "class": classes, "viewBox": box, "role": "img", "aria-label": title}
    return element("svg", own, *children)


def path(points: Sequence[tuple[float, float] | None]) -> str:
    """Return path data through the points; None breaks the line, and a lone point becomes a dot of no length."""
    data, pen_down = [], False
    for point in points:
        if point is None:
            pen_down = False
            continue
        data.append(f"{'L' if pen_down else 'M'}{number(point[0])} {number(point[1])}")
        pen_down = True
    return " ".join(data)


def number(value: float) -> str:
    """Return a coordinate with at most two digits after the point."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _attribute(value: object) -> str:
    return number(value) if isinstance(value, int | float) else _safe(str(value))


def _safe(text: str) -> str:
    return text if isinstance(text, Markup) else escape(html_text(xml_text(text)))


_BEST = 9.0
_BAR_WIDTH, _BAR_HEIGHT = 120.0, 10.0
_SPARK_WIDTH, _SPARK_HEIGHT = 96.0, 24.0
# The timeline: its size, its margins on the left, right, top and bottom, and its grid lines.
_WIDTH, _HEIGHT = 480.0, 200.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 26.0, 12.0, 20.0, 26.0
_TICKS = (0, 3, 6, 9)
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
    """Return a bare line through the scores, in few bytes: a page may have a thousand, each next to a newest score."""
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


def timeline(ends: Sequence[datetime], series: Mapping[str, Sequence[float | None]], *, title: str) -> Markup:
    """Return lines over the windows' ends.

    ``series``: scores, or None, by CSS class, ``d1`` to ``d5``; the main line has none (""). Each has as many as there are ends;
    anything else raises ``ValueError``.
    """
    if any(len(scores) != len(ends) for scores in series.values()):
        raise ValueError("each series needs one score, or None, a window")
    whole = (ends[-1] - ends[0]).total_seconds() if ends else 0.0
    xs = [
        _LEFT + (_WIDTH - _LEFT - _RIGHT) * ((end - ends[0]).total_seconds() / whole if whole else 0.5) for end in ends
    ]
    parts = [part for score in _TICKS for part in _tick(score)] + _dates(ends, xs)
    # The main line is drawn last, on top of the others.
    for style in sorted(series, key=lambda style: not style):
        parts += _line(series[style], style, xs)
    return picture(_WIDTH, _HEIGHT, title, parts, classes="chart timeline")


def _up(score: float) -> float:
    return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - score / _BEST)


def _tick(score: int) -> Iterator[Markup]:
    """Yield a grid line with its label; the one at the bottom is the axis."""
    y = _up(score)
    name = "axis" if score == 0 else "grid"
    yield element("line", {"class": name, "x1": _LEFT, "x2": _WIDTH - _RIGHT, "y1": y, "y2": y})
    place = {"class": "note", "x": _LEFT - 8, "y": y, "text-anchor": "end", "dominant-baseline": "central"}
    yield element("text", place, str(score))


def _dates(ends: Sequence[datetime], xs: Sequence[float]) -> list[Markup]:
    every = max(1, -(-len(ends) // _MOST_DATES))
    # Counted from the newest window, which is always named.
    parts = []
    for index in (index for index in range(len(ends)) if (len(ends) - 1 - index) % every == 0):
        anchor = "end" if index == len(ends) - 1 and len(ends) > 1 else "middle"
        place = {"class": "note", "x": xs[index], "y": _HEIGHT - 8, "text-anchor": anchor}
        parts.append(element("text", place, f"{ends[index].day} {ends[index]:%b}"))
    return parts


def _line(scores: Sequence[float | None], style: str, xs: Sequence[float]) -> list[Markup]:
    points = [None if score is None else (x, _up(score)) for x, score in zip(xs, scores, strict=True)]
    parts = [element("path", {"class": f"line {style}".strip(), "d": path(points)})]
    name = f"dot {style}".strip()
    radius = 2 if style else 3
    for index, point in enumerate(points):
        lonely = point and not any(points[max(0, index - 1) : index]) and not any(points[index + 1 : index + 2])
        if point and (not style or lonely):
            parts.append(element("circle", {"class": name, "cx": point[0], "cy": point[1], "r": radius}))
    return parts


def timeline_figure(name: str, points: Sequence[Json]) -> Figure:
    """Return an agent's scores by window, from the section ``history`` of a report."""
    known = {key for point in points for key in point.get("dimensions", ())}
    names = [key for key in ALL_DIMENSIONS if key in known]
    styles = {key: f"d{ALL_DIMENSIONS.index(key) + 1}" for key in names}
    series = {"": [point["overall"] for point in points]}
    series |= {styles[key]: [point["dimensions"].get(key) for point in points] for key in names}
    ends = [datetime.fromisoformat(point["window_end"]) for point in points]
    scores = [[point["overall"], *map(point["dimensions"].get, names)] for point in points]
    rows = [[f"{end:%Y-%m-%d %H:%M}", *map(format_score, own)] for end, own in zip(ends, scores, strict=True)]
    columns = ["Window end", "Overall", *map(dimension_label, names)]
    return Figure(
        title=name,
        chart=timeline(ends, series, title=f"{name}: scores over {len(points)} windows"),
        numbers=replace(Table.plain(f"{name}: table", columns, rows[::-1]), style="numbers"),
        legend=[("Overall", ""), *((dimension_label(key), styles[key]) for key in names)],
    )
