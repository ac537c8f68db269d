"""The sum of a voice alarm along an agent's messages, against its threshold."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from persona_pipeline.reporting.charts.svg import element, path, picture

_WIDTH, _HEIGHT = 480.0, 180.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 12.0, 12.0, 32.0, 26.0
_HEADROOM = 1.12


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

    Args:
        sums: after each message, oldest first; from 0 to the threshold.
        ends: what stands below the first and the last message, such as their dates.
    """
    top = max(threshold, *sums, 1e-9) * _HEADROOM
    xs = [_x(number, len(sums)) for number in range(len(sums))]
    limit = _y(threshold, top)
    parts: list[Markup] = [
        element("line", {"class": "axis", "x1": _LEFT, "x2": _WIDTH - _RIGHT, "y1": _y(0, top), "y2": _y(0, top)}),
        element("line", {"class": "tick limit", "x1": _LEFT, "x2": _WIDTH - _RIGHT, "y1": limit, "y2": limit}),
    ]
    note = {"class": "note", "x": _WIDTH - _RIGHT, "y": limit - 6, "text-anchor": "end"}
    parts.append(element("text", note, "alarm"))
    for text, x, anchor in ((ends[0], _LEFT, "start"), (ends[1], _WIDTH - _RIGHT, "end")):
        parts.append(element("text", {"class": "note", "x": x, "y": _HEIGHT - 8, "text-anchor": anchor}, text))
    line = [(x, _y(value, top)) for x, value in zip(xs, sums, strict=True)]
    if len(line) > 1:
        parts.append(
            element("path", {"class": "range", "d": f"{path([(xs[0], _y(0, top)), *line, (xs[-1], _y(0, top))])} Z"})
        )
    parts.append(element("path", {"class": "line", "d": path(line)}))
    for mark in marks:
        parts += _mark(mark, xs, line)
    return picture(_WIDTH, _HEIGHT, title, parts, classes="chart timeline")


def _mark(mark: AlarmMark, xs: Sequence[float], line: Sequence[tuple[float, float]]) -> list[Markup]:
    parts = []
    if mark.began is not None:
        x = xs[mark.began]
        parts.append(element("line", {"class": "change", "x1": x, "x2": x, "y1": _TOP - 16, "y2": _HEIGHT - _BOTTOM}))
        anchor = "end" if x > _WIDTH * 0.7 else "start"
        place = {"class": "note bad", "x": x + (-6 if anchor == "end" else 6), "y": _TOP - 9, "text-anchor": anchor}
        parts.append(element("text", place, "began here"))
    if mark.raised is not None:
        x, y = line[mark.raised]
        parts.append(element("circle", {"class": "dot bad", "cx": x, "cy": y, "r": 4}))
    return parts


def _x(number: int, count: int) -> float:
    width = _WIDTH - _LEFT - _RIGHT
    return _LEFT + (width * number / (count - 1) if count > 1 else width / 2)


def _y(value: float, top: float) -> float:
    return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - value / top)
