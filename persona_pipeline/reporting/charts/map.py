"""Things laid out so that those alike stand close together."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from persona_pipeline.reporting.charts.svg import element, picture

_WIDTH, _HEIGHT, _MARGIN = 440.0, 330.0, 48.0
_LABEL_CHARACTERS = 18


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
        shown = name if len(name) <= _LABEL_CHARACTERS else name[: _LABEL_CHARACTERS - 1] + "…"
        parts.append(element("circle", {"class": "dot", "cx": x, "cy": y, "r": 7}))
        place = {"class": "label halo", "x": x, "y": y - 14 if y < _HEIGHT / 2 else y + 23, "text-anchor": "middle"}
        parts.append(element("text", place, shown))
    return picture(_WIDTH, _HEIGHT, title, parts, classes="chart map")


def _fitted(names: Sequence[str], places: Mapping[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
    """Scale both axes alike, so that distances stay distances, into the middle of the picture."""
    xs, ys = [places[name][0] for name in names], [places[name][1] for name in names]
    middle_x, middle_y = (min(xs) + max(xs)) / 2, (min(ys) + max(ys)) / 2
    scale = min(
        (_WIDTH - 2 * _MARGIN) / ((max(xs) - min(xs)) or 1.0), (_HEIGHT - 2 * _MARGIN) / ((max(ys) - min(ys)) or 1.0)
    )
    return {
        name: (_WIDTH / 2 + (places[name][0] - middle_x) * scale, _HEIGHT / 2 + (places[name][1] - middle_y) * scale)
        for name in names
    }


def _circle(names: Sequence[str]) -> dict[str, tuple[float, float]]:
    across, down = _WIDTH / 2 - _MARGIN, _HEIGHT / 2 - _MARGIN
    turns = {name: 2 * math.pi * index / len(names) for index, name in enumerate(names)}
    return {
        name: (_WIDTH / 2 + across * math.sin(turn), _HEIGHT / 2 - down * math.cos(turn))
        for name, turn in turns.items()
    }
