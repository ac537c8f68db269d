"""Scores on the 0-9 scale as SVG: as a bar, in a line of text, and over windows of time.

Every attribute and text is escaped, and no chart carries a style attribute, which a strict CSP blocks.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from markupsafe import Markup, escape

from persona_pipeline.reporting.text import format_score, html_text, xml_text


def element(name: str, attributes: dict[str, object] | None = None, *children: str) -> Markup:
    """Return one element. Attributes that are None are left out; a child that is not ``Markup`` is escaped."""
    known = [(key, value) for key, value in (attributes or {}).items() if value is not None]
    pairs = Markup("").join(Markup(' {}="{}"').format(key, _attribute(value)) for key, value in known)
    safe = (child if isinstance(child, Markup) else escape(html_text(xml_text(child))) for child in children)
    return Markup("<{0}{1}>{2}</{0}>").format(name, pairs, Markup("").join(safe))


def picture(width: float, height: float, title: str, children: Iterable[Markup], *, classes: str = "chart") -> Markup:
    """Return an ``<svg>`` of this view box that a screen reader announces as one image with this title."""
    box = f"0 0 {number(width)} {number(height)}"
    own = {"xmlns": "http://www.w3.org/2000/svg", "class": classes, "viewBox": box, "role": "img", "aria-label": title}
    return element("svg", {**own}, *children)


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


@dataclass(frozen=True)
class Plot:
    """The frame of a chart with two axes. Places in it are shares (0-1) of its width from the left and of its height from below."""

    height: float
    left: float = 26.0
    right: float = 12.0
    top: float = 20.0
    bottom: float = 26.0
    width: float = 480.0

    def x(self, share: float) -> float:
        return self.left + (self.width - self.left - self.right) * share

    def y(self, share: float) -> float:
        return self.top + (self.height - self.top - self.bottom) * (1 - share)

    def across(self, share: float, name: str) -> Markup:
        y, end = self.y(share), self.width - self.right
        return element("line", {"class": name, "x1": self.left, "x2": end, "y1": y, "y2": y})

    def grid(self, ticks: Iterable[tuple[float, str]]) -> list[Markup]:
        """Return horizontal grid lines with their labels; the one at the bottom is the axis."""
        parts = []
        for share, text in ticks:
            y = self.y(share)
            place = {"class": "note", "x": self.left - 8, "y": y, "text-anchor": "end", "dominant-baseline": "central"}
            parts += [self.across(share, "axis" if share == 0 else "grid"), element("text", place, text)]
        return parts

    def below(self, x: float, text: str, anchor: str = "middle") -> Markup:
        return element("text", {"class": "note", "x": x, "y": self.height - 8, "text-anchor": anchor}, text)

    def picture(self, title: str, parts: Iterable[Markup], classes: str = "chart timeline") -> Markup:
        return picture(self.width, self.height, title, parts, classes=classes)


def line_path(points: Sequence[tuple[float, float] | None], style: str = "") -> Markup:
    return element("path", {"class": f"line {style}".strip(), "d": path(points)})


def _attribute(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return number(value) if isinstance(value, int | float) else html_text(xml_text(str(value)))


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


@dataclass(frozen=True)
class Series:
    """A line: a score (0-9) or None for each window. ``style`` is a CSS class, ``d1`` to ``d5``; the main line has none."""

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
