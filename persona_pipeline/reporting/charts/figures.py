"""The page's charts, each with a title, a sentence that says what it shows, and the numbers as a table."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from markupsafe import Markup

from persona_pipeline.reporting.charts.measures import AlarmMark, Bar, Link, bar_chart, cusum_chart, map_chart
from persona_pipeline.reporting.charts.scores import Series, timeline, turn_chart
from persona_pipeline.reporting.page import Figure, Table
from persona_pipeline.reporting.statistics import (
    AlarmSeen,
    FadingSeen,
    HistoryPoint,
    SaidAt,
    SumSeen,
    VoiceMap,
    VoiceSeen,
)
from persona_pipeline.reporting.text import format_delta, format_score
from persona_pipeline.reporting.view import AgentRow
from persona_pipeline.scoring.text.likeness import MERGED_QUANTILE
from persona_pipeline.world.models import CorrectionSettings
from persona_pipeline.world.propositions.models import ALL_DIMENSIONS, dimension_label

# The defaults above which the runtime corrections step in.
_DEFAULTS = CorrectionSettings()
REPETITION_LIMIT, AGREEMENT_LIMIT = _DEFAULTS.repetition_threshold, _DEFAULTS.convergence_threshold


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


def fading_figure(name: str, seen: FadingSeen) -> Figure:
    """Return the share of characters still held, and the mean score, by turn of a conversation."""
    turns = [point.turn for point in seen.curve]
    held = {point.turn: point for point in seen.survival}
    shares: list[float] = []
    for turn in turns:
        shares.append(held[turn].share if turn in held else shares[-1] if shares else 1.0)
    means, intervals = [point.mean for point in seen.curve], [(point.low, point.high) for point in seen.curve]
    described = f"{name}: {seen.signal} by turn. {seen.text}"
    chart = turn_chart(turns, means, intervals, title=described, mark=seen.half_life)
    title = f"{name}, {seen.signal}" + (f", persona {seen.version[:12]}" if seen.version else "")
    rows = []
    for point, share in zip(seen.curve, shares, strict=True):
        interval = "–" if point.low is None else f"{format_score(point.low)} to {format_score(point.high)}"
        # Where nothing fades, or leaving hides it, no share is known.
        kept = f"{share:.0%}" if seen.fades else "–"
        rows.append([str(point.turn), format_score(point.mean), interval, kept, str(point.conversations)])
    columns = ["Turn", "Mean score", "95 % interval", "Still in character", "Conversations"]
    caption, fades = f"{seen.text[:1].upper()}{seen.text[1:]}.", seen.half_life is not None
    return Figure(title, chart, caption, _numbers(title, columns, rows), alarming=fades)


def voice_alarm_figure(name: str, seen: VoiceSeen) -> Figure:
    """Return the sum of an agent's voice alarm along its messages, against the threshold; without sums the chart is empty."""
    caption = f"{seen.text[:1].upper()}{seen.text[1:]}."
    chart = Markup("")
    if seen.threshold is not None and seen.sums:
        first, last = seen.sums[0].created_at, seen.sums[-1].created_at
        chart = cusum_chart(
            [item.sum for item in seen.sums],
            seen.threshold,
            title=f"{name}: the sum of what does not sound like it, over {len(seen.sums)} messages. {caption}",
            marks=[_alarm_mark(alarm, seen.sums) for alarm in seen.alarms],
            ends=(f"{first.day} {first:%b}", f"{last.day} {last:%b}"),
        )
    rows = [[item.id, f"{item.created_at:%Y-%m-%d %H:%M}", f"{item.sum:.3f}"] for item in reversed(seen.sums)]
    numbers = _numbers(name, ["Message", "Sent", "Sum"], rows) if rows else None
    return Figure(name, chart, caption, numbers, alarming=seen.stands)


def _alarm_mark(alarm: AlarmSeen, sums: Sequence[SumSeen]) -> AlarmMark:
    def place(message: SaidAt) -> int | None:
        # Of many messages only some are drawn: the first of them that is not earlier.
        if message.created_at is None or message.created_at < sums[0].created_at:
            return None
        sent = message.created_at
        return next((number for number, item in enumerate(sums) if item.created_at >= sent), None)

    return AlarmMark(place(alarm.began_at), place(alarm.raised_at))


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


def language_figures(rows: Sequence[AgentRow]) -> list[Figure]:
    """Return each agent's repetition and each channel's agreement, where they were measured."""
    figures = []
    if repetition := _repetition(rows):
        what = "Share of an agent's word triples that stand in another of its messages too."
        figures.append(_bars("Repetition", "Agent", what, repetition, REPETITION_LIMIT))
    if agreement := _agreement(rows):
        what = "Share of a channel's messages that agree with somebody."
        figures.append(_bars("Agreement", "Channel", what, agreement, AGREEMENT_LIMIT))
    return figures


def _repetition(rows: Sequence[AgentRow]) -> list[tuple[str, float]]:
    path = ("repetition", "3", "cross_message_share")
    shares = ((row.agent_id, _number(_statistics(row, "fluency"), *path)) for row in rows)
    return [(agent_id, share) for agent_id, share in shares if share is not None]


def _agreement(rows: Sequence[AgentRow]) -> list[tuple[str, float]]:
    """Every agent of a channel carries the same numbers for it."""
    ratios: dict[str, float] = {}
    for row in rows:
        for channel, values in (_statistics(row, "convergence").get("channels") or {}).items():
            ratio = _number(values, "agreement_ratio")
            if ratio is not None:
                ratios[f"#{channel}"] = ratio
    return sorted(ratios.items())


def _statistics(row: AgentRow, dimension: str) -> dict[str, Any]:
    evaluation = row.report.evaluation.dimensions.get(dimension)
    return evaluation.statistics if evaluation else {}


def _number(value: Any, *keys: str) -> float | None:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _bars(title: str, heading: str, what: str, values: Sequence[tuple[str, float]], limit: float) -> Figure:
    over = [name for name, value in values if value > limit]
    caption = f"{what} {'Beyond the limit: ' + ', '.join(over) + '.' if over else 'Nobody is beyond the limit.'}"
    largest = max(limit * 1.25, *(value for _, value in values))
    bars = [Bar(name, value, _share(value)) for name, value in values]
    chart = bar_chart(bars, title=f"{title}. {caption}", maximum=largest, limit=limit)
    numbers = _numbers(title, [heading, title], [[bar.label, bar.text] for bar in bars])
    return Figure(title, chart, caption, numbers, alarming=bool(over))


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}" if value < 0.1 else f"{value:.0%}"


def _numbers(label: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    return replace(Table.plain(f"{label}: table", columns, rows), style="numbers")
