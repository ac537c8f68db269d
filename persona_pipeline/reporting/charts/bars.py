"""Horizontal bars with a name and a value each, and a line where a limit lies."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from persona_pipeline.reporting.charts.svg import element, picture

_LABEL, _PLOT, _VALUE, _ROW, _BAR = 120.0, 270.0, 50.0, 28.0, 12.0
_LABEL_CHARACTERS = 20


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
        shown = bar.label if len(bar.label) <= _LABEL_CHARACTERS else bar.label[: _LABEL_CHARACTERS - 1] + "…"
        length = _PLOT * min(max(bar.value / maximum, 0.0), 1.0)
        parts += [
            _text("label", 0, middle, shown),
            _rect("track", middle, _PLOT),
            _rect("bar bad" if bad else "bar", middle, length),
            _text("label value", _LABEL + _PLOT + 8, middle, bar.text),
        ]
    if limit is not None:
        x = _LABEL + _PLOT * limit / maximum
        bottom = _ROW * len(bars)
        parts.append(element("line", {"class": "change", "x1": x, "x2": x, "y1": 0, "y2": bottom}))
        note = {"class": "note", "x": x, "y": bottom + 13, "text-anchor": "middle"}
        parts.append(element("text", note, f"limit {limit:.0%}"))
    return picture(_LABEL + _PLOT + _VALUE, height, title, parts, classes="chart bars")


def _rect(name: str, middle: float, width: float) -> Markup:
    box = {"class": name, "x": _LABEL, "y": middle - _BAR / 2, "width": width, "height": _BAR, "rx": 3}
    return element("rect", box)


def _text(name: str, x: float, middle: float, text: str) -> Markup:
    return element("text", {"class": name, "x": x, "y": middle, "dominant-baseline": "central"}, text)
