"""The page's charts, each with a title, a sentence that says what it shows, and the numbers as a table.

Likeness is a map.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from persona_pipeline.reporting.charts.scores import Series, timeline
from persona_pipeline.reporting.charts.svg import element, picture, shortened
from persona_pipeline.reporting.page import Figure, Table
from persona_pipeline.reporting.statistics import HistoryPoint, VoiceMap
from persona_pipeline.reporting.text import format_delta, format_score
from persona_pipeline.scoring.text.likeness import MERGED_QUANTILE
from persona_pipeline.world.propositions.models import ALL_DIMENSIONS, dimension_label

_MAP_WIDTH, _MAP_HEIGHT, _MAP_MARGIN = 440.0, 330.0, 48.0
_MAP_CHARACTERS = 18


def timeline_figure(name: str, points: Sequence[HistoryPoint]) -> Figure:
    """Return an agent's scores over its windows with their intervals as bands."""
    known = {key for point in points for key in point.dimensions}
    names = [key for key in ALL_DIMENSIONS if key in known]
    styles = {key: f"d{ALL_DIMENSIONS.index(key) + 1}" for key in names}
    banded = any("overall" in point.margins for point in points)
    margins = [point.margins.get("overall") for point in points] if banded else []
    series = [Series([point.overall for point in points], margins=margins)]
    for key in names:
        series.append(Series([point.dimensions.get(key) for point in points], styles[key]))
    ends = [point.window_end for point in points]
    scores = [[point.overall, *map(point.dimensions.get, names)] for point in points]
    rows = [[f"{end:%Y-%m-%d %H:%M}", *map(format_score, own)] for end, own in zip(ends, scores, strict=True)]
    return Figure(
        title=name,
        chart=timeline(ends, series, title=f"{name}: scores over {len(points)} windows"),
        numbers=_numbers(name, ["Window end", "Overall", *map(dimension_label, names)], rows[::-1]),
        legend=[("Overall", ""), *((dimension_label(key), styles[key]) for key in names)],
    )


def voice_figure(voices: VoiceMap) -> Figure:
    """Return the agents laid out by how alike they write."""
    names = voices.names
    links = [
        Link(names[pair.a], names[pair.b], similarity, bad=pair.z is not None and pair.z > MERGED_QUANTILE)
        for pair in voices.pairs
        if (similarity := pair.characters if pair.characters is not None else pair.vocabulary) is not None
    ]
    merging = [f"{link.a} and {link.b}" for link in links if link.bad]
    if merging:
        caption = f"Closer than they usually are: {', '.join(merging)}."
    elif links:
        closest = max(links, key=lambda link: link.similarity)
        caption = f"Closest: {closest.a} and {closest.b}."
        if any(pair.z is not None for pair in voices.pairs):
            caption += " No pair is closer than it usually is."
    else:
        caption = "No pair was compared."
    known = [(names[name], voice.x, voice.y) for name, voice in voices.agents.items()]
    places = {name: (x, y) for name, x, y in known if x is not None and y is not None}
    title = f"Voice map of {len(voices.ids)} agents. {caption}"
    chart = map_chart([names[name] for name in voices.ids], links, places, title=title)
    rows = []
    for pair in sorted(voices.pairs, key=lambda pair: -(pair.characters or 0.0)):
        shares = _share(pair.characters), _share(pair.vocabulary)
        rows.append([f"{names[pair.a]} and {names[pair.b]}", *shares, format_delta(pair.z, 1) or "–"])
    columns = ["Agents", "Characters", "Vocabulary", "Against usual (sd)"]
    numbers = _numbers("How alike each two agents write", columns, rows)
    return Figure("How alike the agents write", chart, caption, numbers, alarming=bool(merging))


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}" if value < 0.1 else f"{value:.0%}"


def _numbers(label: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    return replace(Table.plain(f"{label}: table", columns, rows), style="numbers")


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
