"""A score as a bar on the 0-9 scale, its baseline as a tick, its interval as a whisker."""

from markupsafe import Markup

from persona_pipeline.reporting.charts.svg import element, picture
from persona_pipeline.reporting.view import format_score

SCALE_MAXIMUM = 9.0
_WIDTH, _HEIGHT = 120.0, 10.0


def bullet(
    score: float | None,
    baseline: float | None,
    *,
    bad: bool = False,
    interval: tuple[float, float] | None = None,
) -> Markup:
    """Return a bar for ``score`` (0-9, None: an empty track) with a tick at ``baseline``; ``bad`` draws it as a drift.

    Args:
        interval: of the score (0-9), drawn as a thin line across the bar's end.
    """
    title = f"{format_score(score)} of 9" + (f", baseline {format_score(baseline)}" if baseline is not None else "")
    if interval is not None:
        title += f", 95 % interval {format_score(interval[0])} to {format_score(interval[1])}"
    parts = [_box("track", _WIDTH)]
    if score is not None:
        parts.append(_box("bar bad" if bad else "bar", _x(score)))
    if score is not None and interval is not None:
        low, high = _x(interval[0]), _x(interval[1])
        parts.append(element("line", {"class": "whisker", "x1": low, "x2": high, "y1": _HEIGHT / 2, "y2": _HEIGHT / 2}))
        for x in (low, high):
            parts.append(element("line", {"class": "whisker", "x1": x, "x2": x, "y1": 2.5, "y2": _HEIGHT - 2.5}))
    if baseline is not None:
        x = min(max(_x(baseline), 1), _WIDTH - 1)
        parts.append(element("line", {"class": "tick", "x1": x, "x2": x, "y1": 0, "y2": _HEIGHT}))
    return picture(_WIDTH, _HEIGHT, title, parts, classes="chart bullet")


def _box(name: str, width: float) -> Markup:
    return element("rect", {"class": name, "x": 0, "y": 2, "width": width, "height": _HEIGHT - 4, "rx": 3})


def _x(score: float) -> float:
    return _WIDTH * min(max(score, 0.0), SCALE_MAXIMUM) / SCALE_MAXIMUM
