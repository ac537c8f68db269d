"""Things laid out so that those alike stand close together."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from persona_pipeline.reporting.charts.svg import element, picture

_SIZE, _MARGIN = 340.0, 52.0
_LABEL_CHARACTERS = 18


@dataclass(frozen=True)
class Link:
    """How alike two things are (0-1); ``bad``: more alike than they should be."""

    a: str
    b: str
    similarity: float
    bad: bool = False


def map_chart(names: Sequence[str], links: Sequence[Link], *, title: str) -> Markup:
    """Return the names as dots at distances close to ``1 - similarity``; the thicker a line, the more alike its ends."""
    positions = layout(names, links)
    strongest = max((link.similarity for link in links), default=0.0)
    parts: list[Markup] = []
    for link in sorted(links, key=lambda link: link.similarity):
        (x1, y1), (x2, y2) = positions[link.a], positions[link.b]
        weight = 0.5 + 4.5 * (link.similarity / strongest) ** 2 if strongest else 0.5
        line = {"class": "link bad" if link.bad else "link", "x1": x1, "y1": y1, "x2": x2, "y2": y2}
        parts.append(element("line", {**line, "stroke-width": weight}))
    for name in names:
        x, y = positions[name]
        shown = name if len(name) <= _LABEL_CHARACTERS else name[: _LABEL_CHARACTERS - 1] + "…"
        above = y < _SIZE / 2
        parts.append(element("circle", {"class": "dot", "cx": x, "cy": y, "r": 7}))
        place = {"class": "label halo", "x": x, "y": y - 14 if above else y + 23, "text-anchor": "middle"}
        parts.append(element("text", place, shown))
    return picture(_SIZE, _SIZE, title, parts, classes="chart map")


def layout(names: Sequence[str], links: Sequence[Link]) -> dict[str, tuple[float, float]]:
    """Return a place for each name by classical multidimensional scaling of ``1 - similarity`` (unknown pairs: 1).

    The same input gives the same picture: axes are turned so that the first name lies left and up.
    """
    if len(names) < 2:
        return {name: (_SIZE / 2, _SIZE / 2) for name in names}
    import numpy

    index = {name: position for position, name in enumerate(names)}
    distances = numpy.ones((len(names), len(names))) - numpy.eye(len(names))
    for link in links:
        distance = 1.0 - min(max(link.similarity, 0.0), 1.0)
        distances[index[link.a], index[link.b]] = distances[index[link.b], index[link.a]] = distance
    centring = numpy.eye(len(names)) - 1.0 / len(names)
    values, vectors = numpy.linalg.eigh(-0.5 * centring @ (distances**2) @ centring)
    axes = vectors[:, -2:][:, ::-1] * numpy.sqrt(numpy.clip(values[-2:][::-1], 0.0, None))
    axes *= numpy.where(axes[0] > 0, -1.0, 1.0)
    reach = float(numpy.abs(axes).max()) or 1.0
    scale = (_SIZE / 2 - _MARGIN) / reach
    return {
        name: (_finite(_SIZE / 2 + axes[position, 0] * scale), _finite(_SIZE / 2 + axes[position, 1] * scale))
        for name, position in index.items()
    }


def _finite(value: float) -> float:
    return float(value) if math.isfinite(value) else _SIZE / 2
