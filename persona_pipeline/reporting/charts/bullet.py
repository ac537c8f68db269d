"""A score as a bar on the 0-9 scale, its baseline as a tick."""

from markupsafe import Markup

from persona_pipeline.reporting.charts.svg import element, picture
from persona_pipeline.reporting.view import format_score

SCALE_MAXIMUM = 9.0
_WIDTH, _HEIGHT = 120.0, 10.0


def bullet(score: float | None, baseline: float | None, *, bad: bool = False) -> Markup:
    """Return a bar for ``score`` (0-9, None: an empty track) with a tick at ``baseline``; ``bad`` draws it as a drift."""
    title = f"{format_score(score)} of 9" + (f", baseline {format_score(baseline)}" if baseline is not None else "")
    parts = [_box("track", _WIDTH)]
    if score is not None:
        parts.append(_box("bar bad" if bad else "bar", _x(score)))
    if baseline is not None:
        x = min(max(_x(baseline), 1), _WIDTH - 1)
        parts.append(element("line", {"class": "tick", "x1": x, "x2": x, "y1": 0, "y2": _HEIGHT}))
    return picture(_WIDTH, _HEIGHT, title, parts, classes="chart bullet")


def _box(name: str, width: float) -> Markup:
    return element("rect", {"class": name, "x": 0, "y": 2, "width": width, "height": _HEIGHT - 4, "rx": 3})


def _x(score: float) -> float:
    return _WIDTH * min(max(score, 0.0), SCALE_MAXIMUM) / SCALE_MAXIMUM
