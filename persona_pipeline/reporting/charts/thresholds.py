"""What thresholds do: shares against the threshold, and the ROC."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from persona_pipeline.reporting.charts.svg import element, path, picture

_WIDTH, _HEIGHT = 480.0, 250.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 44.0, 14.0, 12.0, 40.0
_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class ShareLine:
    """Shares (0-1) by threshold; ``style``: none, ``d1`` or ``d2``."""

    shares: Sequence[float | None]
    style: str = ""


def threshold_chart(
    values: Sequence[float], lines: Sequence[ShareLine], *, title: str, now: float, chosen: float | None = None
) -> Markup:
    """Return shares over thresholds, a dashed line where the threshold is now and a whole one where it is proposed."""
    top = max(values, default=1.0) or 1.0
    ticks = [0.0, 3.0, 6.0, 9.0] if top > 1 else list(_SHARES)
    parts = _frame([(tick / top, f"{tick:g}") for tick in ticks], "threshold")
    for place, name in ((now, "change"), (chosen, "limit")):
        if place is not None:
            x = _x(place / top)
            parts.append(element("line", {"class": name, "x1": x, "x2": x, "y1": _TOP, "y2": _HEIGHT - _BOTTOM}))
    for line in lines:
        points = [
            None if share is None else (_x(value / top), _y(share))
            for value, share in zip(values, line.shares, strict=True)
        ]
        parts.append(element("path", {"class": f"line {line.style}".strip(), "d": path(points)}))
    return picture(_WIDTH, _HEIGHT, title, parts)


def roc_chart(points: Sequence[tuple[float, float]], *, title: str) -> Markup:
    """Return the share of bad messages touched over that of good ones; ``points`` are (good, bad), 0-1."""
    parts = _frame([(share, f"{share:.0%}") for share in _SHARES], "good ones touched")
    parts.append(element("path", {"class": "change", "d": path([(_x(0), _y(0)), (_x(1), _y(1))])}))
    line = [(_x(good), _y(bad)) for good, bad in sorted({(0.0, 0.0), *points, (1.0, 1.0)})]
    parts.append(element("path", {"class": "line", "d": path(line)}))
    return picture(_WIDTH, _HEIGHT, title, parts)


def _frame(ticks: Sequence[tuple[float, str]], below: str) -> list[Markup]:
    parts: list[Markup] = []
    for share in _SHARES:
        y = _y(share)
        name = "axis" if share == 0 else "grid"
        parts.append(element("line", {"class": name, "x1": _LEFT, "x2": _WIDTH - _RIGHT, "y1": y, "y2": y}))
        place = {"x": _LEFT - 8, "y": y, "text-anchor": "end", "dominant-baseline": "central"}
        parts.append(element("text", place, f"{share:.0%}"))
    for share, text in ticks:
        parts.append(element("text", {"x": _x(share), "y": _HEIGHT - _BOTTOM + 17, "text-anchor": "middle"}, text))
    middle = {"x": _x(0.5), "y": _HEIGHT - 5, "text-anchor": "middle"}
    return [*parts, element("text", middle, below)]


def _x(share: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * share


def _y(share: float) -> float:
    return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - share)
