"""The figures of a page, each with a title, a caption, and its numbers as a table."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from markupsafe import Markup

from persona_pipeline.reporting.charts.scores import Series, timeline
from persona_pipeline.reporting.page import Figure, Table
from persona_pipeline.reporting.text import format_delta, format_score
from persona_pipeline.scoring.style.likeness import MERGED_QUANTILE
from persona_pipeline.world.propositions.models import ALL_DIMENSIONS, dimension_label

Json = Mapping[str, Any]


def timeline_figure(name: str, points: Sequence[Json]) -> Figure:
    """Return an agent's scores by window, from the section ``history`` of a report."""
    known = {key for point in points for key in point.get("dimensions", ())}
    names = [key for key in ALL_DIMENSIONS if key in known]
    styles = {key: f"d{ALL_DIMENSIONS.index(key) + 1}" for key in names}
    series = [Series([point["overall"] for point in points])]
    for key in names:
        series.append(Series([point["dimensions"].get(key) for point in points], styles[key]))
    ends = [datetime.fromisoformat(point["window_end"]) for point in points]
    scores = [[point["overall"], *map(point["dimensions"].get, names)] for point in points]
    rows = [[f"{end:%Y-%m-%d %H:%M}", *map(format_score, own)] for end, own in zip(ends, scores, strict=True)]
    return Figure(
        title=name,
        chart=timeline(ends, series, title=f"{name}: scores over {len(points)} windows"),
        numbers=_numbers(name, ["Window end", "Overall", *map(dimension_label, names)], rows[::-1]),
        legend=[("Overall", ""), *((dimension_label(key), styles[key]) for key in names)],
    )


def voice_figure(voices: Json) -> Figure:
    """Return how similarly each two agents write, from the section ``voice_map`` of a report."""
    names, found = _names(voices), voices["pairs"]
    pairs = {f"{names[pair['a']]} and {names[pair['b']]}": pair for pair in found}
    merging = [name for name, pair in pairs.items() if pair["z"] is not None and pair["z"] > MERGED_QUANTILE]
    alike = {
        name: similarity
        for name, pair in pairs.items()
        if (similarity := pair["characters"] if pair["characters"] is not None else pair["vocabulary"]) is not None
    }
    if merging:
        caption = f"Closer than usual: {', '.join(merging)}."
    elif alike:
        caption = f"Closest: {max(alike, key=lambda name: alike[name])}."
        if any(pair["z"] is not None for pair in found):
            caption += " No pair is closer than usual."
    else:
        caption = "No pair was compared."
    rows = [
        [name, _share(pair["characters"]), _share(pair["vocabulary"]), format_delta(pair["z"], 1) or "–"]
        for name, pair in sorted(pairs.items(), key=lambda item: -(item[1]["characters"] or 0.0))
    ]
    columns = ["Agents", "Characters", "Vocabulary", "Against usual (sd)"]
    numbers = _numbers("Similarity of each pair", columns, rows)
    return Figure("How alike the agents write", Markup(""), caption, numbers, alarming=bool(merging))


def _names(voices: Json) -> dict[str, str]:
    """Return the name of each agent; agents with the same name have their ids behind it."""
    names = {key: voice.get("name") or key for key, voice in voices["agents"].items()}
    times = Counter(names.values())
    return {key: name if times[name] == 1 else f"{name} ({key})" for key, name in names.items()}


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}" if value < 0.1 else f"{value:.0%}"


def _numbers(label: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    return replace(Table.plain(f"{label}: table", columns, rows), style="numbers")
