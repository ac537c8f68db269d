"""What is measured and has no score: shares as bars, likeness as a map, the sum of a voice alarm."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from persona_pipeline.reporting.charts.svg import Plot, element, line_path, path, picture, shortened

_LABEL, _PLOT, _VALUE, _ROW, _BAR = 120.0, 270.0, 50.0, 28.0, 12.0
_MAP_WIDTH, _MAP_HEIGHT, _MAP_MARGIN = 440.0, 330.0, 48.0
_BAR_CHARACTERS, _MAP_CHARACTERS = 20, 18
_SUM, _HEADROOM = Plot(180.0, 12.0, 12.0, 32.0), 1.12


@dataclass(frozen=True)
class Bar:
    """One bar: ``value`` in the chart's unit, ``text`` as it is written beside the bar."""

    label: str
    value: float
    text: str


def bar_chart(bars: Sequence[Bar], *, title: str, maximum: float, limit: float | None = None) -> Markup:
    """Return the bars from 0 to ``maximum`` (> 0); those beyond ``limit`` are drawn as bad, and the limit is marked."""
    height = _ROW * len(bars) + (18 if limit is not None else 2)
    parts: list[Markup] = []
    for index, bar in enumerate(bars):
        middle = _ROW * index + _ROW / 2
        bad = limit is not None and bar.value > limit
        length = _PLOT * min(max(bar.value / maximum, 0.0), 1.0)
        parts += [
            _beside("label", 0, middle, shortened(bar.label, _BAR_CHARACTERS)),
            _track("track", middle, _PLOT),
            _track("bar bad" if bad else "bar", middle, length),
            _beside("label value", _LABEL + _PLOT + 8, middle, bar.text),
        ]
    if limit is not None:
        x = _LABEL + _PLOT * limit / maximum
        bottom = _ROW * len(bars)
        parts.append(element("line", {"class": "change", "x1": x, "x2": x, "y1": 0, "y2": bottom}))
        note = {"class": "note", "x": x, "y": bottom + 13, "text-anchor": "middle"}
        parts.append(element("text", note, f"limit {limit:.0%}"))
    return picture(_LABEL + _PLOT + _VALUE, height, title, parts, classes="chart bars")


def _track(name: str, middle: float, width: float) -> Markup:
    box = {"class": name, "x": _LABEL, "y": middle - _BAR / 2, "width": width, "height": _BAR, "rx": 3}
    return element("rect", box)


def _beside(name: str, x: float, middle: float, text: str) -> Markup:
    return element("text", {"class": name, "x": x, "y": middle, "dominant-baseline": "central"}, text)


@dataclass(frozen=True)
class Link:
    """How alike two things are (0-1); ``bad``: more alike than they should be."""

    a: str
    b: str
    similarity: float
    bad: bool = False


def map_chart(
    names: Sequence[str], links: Sequence[Link], places: Mapping[str, tuple[float, float]], *, title: str
) -> Markup:
    """Return the names as dots at their places; the thicker a line, the more alike its ends.

    ``places`` may have any unit and origin. Without a place for every name they stand in a circle.
    """
    positions = _fitted(names, places) if names and all(name in places for name in names) else _circle(names)
    strongest = max((link.similarity for link in links), default=0.0)
    parts: list[Markup] = []
    for link in sorted(links, key=lambda link: (link.bad, link.similarity)):
        (x1, y1), (x2, y2) = positions[link.a], positions[link.b]
        weight = 0.5 + 4.5 * (link.similarity / strongest) ** 2 if strongest else 0.5
        line = {"class": "link bad" if link.bad else "link", "x1": x1, "y1": y1, "x2": x2, "y2": y2}
        parts.append(element("line", {**line, "stroke-width": weight}))
    for name in names:
        x, y = positions[name]
        parts.append(element("circle", {"class": "dot", "cx": x, "cy": y, "r": 7}))
        place = {"class": "label halo", "x": x, "y": y - 14 if y < _MAP_HEIGHT / 2 else y + 23, "text-anchor": "middle"}
        parts.append(element("text", place, shortened(name, _MAP_CHARACTERS)))
    return picture(_MAP_WIDTH, _MAP_HEIGHT, title, parts, classes="chart map")


def _fitted(names: Sequence[str], places: Mapping[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
    """Scale both axes alike, so that distances stay distances, into the middle of the picture."""
    xs, ys = [places[name][0] for name in names], [places[name][1] for name in names]
    middle_x, middle_y = (min(xs) + max(xs)) / 2, (min(ys) + max(ys)) / 2
    across = (_MAP_WIDTH - 2 * _MAP_MARGIN) / ((max(xs) - min(xs)) or 1.0)
    scale = min(across, (_MAP_HEIGHT - 2 * _MAP_MARGIN) / ((max(ys) - min(ys)) or 1.0))
    fitted_x = [_MAP_WIDTH / 2 + (x - middle_x) * scale for x in xs]
    fitted_y = [_MAP_HEIGHT / 2 + (y - middle_y) * scale for y in ys]
    return dict(zip(names, zip(fitted_x, fitted_y, strict=True), strict=True))


def _circle(names: Sequence[str]) -> dict[str, tuple[float, float]]:
    across, down = _MAP_WIDTH / 2 - _MAP_MARGIN, _MAP_HEIGHT / 2 - _MAP_MARGIN
    turns = {name: 2 * math.pi * index / len(names) for index, name in enumerate(names)}
    return {
        name: (_MAP_WIDTH / 2 + across * math.sin(turn), _MAP_HEIGHT / 2 - down * math.cos(turn))
        for name, turn in turns.items()
    }


@dataclass(frozen=True)
class AlarmMark:
    """One alarm: the numbers (from 0) of the messages at which it began and was raised; None: before what is drawn."""

    began: int | None
    raised: int | None


def cusum_chart(
    sums: Sequence[float],
    threshold: float,
    *,
    title: str,
    marks: Sequence[AlarmMark] = (),
    ends: tuple[str, str] = ("", ""),
) -> Markup:
    """Return the sum message by message, a dashed line at the threshold, and lines where alarms began and were raised.

    ``sums``: after each message, oldest first, from 0 to the threshold; ``ends``: what stands below the first and the last.
    """
    top = max(threshold, *sums, 1e-9) * _HEADROOM
    last = max(1, len(sums) - 1)
    line = [(_SUM.x(number / last if len(sums) > 1 else 0.5), _SUM.y(value / top)) for number, value in enumerate(sums)]
    parts = [_SUM.across(0, "axis"), _SUM.across(threshold / top, "tick limit")]
    note = {"class": "note", "x": _SUM.x(1), "y": _SUM.y(threshold / top) - 6, "text-anchor": "end"}
    parts.append(element("text", note, "alarm"))
    parts += [_SUM.below(_SUM.x(0), ends[0], "start"), _SUM.below(_SUM.x(1), ends[1], "end")]
    if len(line) > 1:
        floor = _SUM.y(0)
        area = path([(line[0][0], floor), *line, (line[-1][0], floor)])
        parts.append(element("path", {"class": "range", "d": f"{area} Z"}))
    parts.append(line_path(line))
    for mark in marks:
        if mark.began is not None:
            parts += _SUM.change(line[mark.began][0], "began here", 9)
        if mark.raised is not None:
            x, y = line[mark.raised]
            parts.append(element("circle", {"class": "dot bad", "cx": x, "cy": y, "r": 4}))
    return _SUM.picture(title, parts)
