"""The page's figures, each with a title, a sentence that says what it shows, and the numbers as a table."""

from collections.abc import Sequence
from dataclasses import replace

from markupsafe import Markup

from persona_pipeline.reporting.charts.scores import Series, timeline
from persona_pipeline.reporting.page import Figure, Table
from persona_pipeline.reporting.statistics import HistoryPoint, VoiceMap
from persona_pipeline.reporting.text import format_delta, format_score
from persona_pipeline.scoring.style.likeness import MERGED_QUANTILE
from persona_pipeline.world.propositions.models import ALL_DIMENSIONS, dimension_label


def timeline_figure(name: str, points: Sequence[HistoryPoint]) -> Figure:
    """Return an agent's scores over its windows."""
    known = {key for point in points for key in point.dimensions}
    names = [key for key in ALL_DIMENSIONS if key in known]
    styles = {key: f"d{ALL_DIMENSIONS.index(key) + 1}" for key in names}
    series = [Series([point.overall for point in points])]
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
    """Return how alike each two agents write, in a sentence and as a table."""
    names = voices.names
    pairs = {f"{names[pair.a]} and {names[pair.b]}": pair for pair in voices.pairs}
    merging = [name for name, pair in pairs.items() if pair.z is not None and pair.z > MERGED_QUANTILE]
    alike = {
        name: similarity
        for name, pair in pairs.items()
        if (similarity := pair.characters if pair.characters is not None else pair.vocabulary) is not None
    }
    if merging:
        caption = f"Closer than they usually are: {', '.join(merging)}."
    elif alike:
        caption = f"Closest: {max(alike, key=lambda name: alike[name])}."
        if any(pair.z is not None for pair in voices.pairs):
            caption += " No pair is closer than it usually is."
    else:
        caption = "No pair was compared."
    rows = [
        [name, _share(pair.characters), _share(pair.vocabulary), format_delta(pair.z, 1) or "–"]
        for name, pair in sorted(pairs.items(), key=lambda item: -(item[1].characters or 0.0))
    ]
    columns = ["Agents", "Characters", "Vocabulary", "Against usual (sd)"]
    numbers = _numbers("How alike each two agents write", columns, rows)
    return Figure("How alike the agents write", Markup(""), caption, numbers, alarming=bool(merging))


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}" if value < 0.1 else f"{value:.0%}"


def _numbers(label: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    return replace(Table.plain(f"{label}: table", columns, rows), style="numbers")
