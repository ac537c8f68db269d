"""Small pictures for Dagster's metadata: SVG inside Markdown, each well under 20 KB, for every event row keeps its own copy."""

from collections.abc import Mapping, Sequence
from typing import Any

from persona_pipeline.evaluation.history import HistoryValue
from persona_pipeline.reporting.charts.figures import (
    REPETITION_LIMIT,
    timeline_figure,
    voice_alarm_figure,
    voice_figure,
)
from persona_pipeline.reporting.charts.measures import Bar, bar_chart
from persona_pipeline.reporting.charts.svg import data_uri
from persona_pipeline.reporting.page import Figure
from persona_pipeline.reporting.statistics import HistoryPoint, VoiceMap, VoiceSeen
from persona_pipeline.reporting.text import markdown_text

MOST_BYTES = 20_000


def history_picture(name: str, history: Sequence[HistoryValue]) -> str:
    """Return an agent's overall score over its windows as Markdown; a single window gives nothing to draw."""
    points = [HistoryPoint(window_end=value.window_end, overall=value.overall) for value in history]
    if len(points) < 2:
        return ""
    return _markdown(timeline_figure(name, points, None), "Overall score by window")


def repetition_picture(repetition: Mapping[str, Mapping[str, float | None]]) -> str:
    """Return how much of the agent's n-grams stand in more than one message, by length of n-gram."""
    bars = [
        Bar(f"{n} words", values["cross_message_share"], f"{values['cross_message_share']:.1%}")
        for n, values in repetition.items()
        if values["cross_message_share"] is not None
    ]
    if not bars:
        return ""
    largest = max(REPETITION_LIMIT * 1.25, *(bar.value for bar in bars))
    title = "Phrases that come back in another message"
    chart = bar_chart(bars, title=title, maximum=largest, limit=REPETITION_LIMIT)
    return _image(title, data_uri(chart))


def voice_picture(statistics: Mapping[str, Any]) -> str:
    """Return the agents laid out by how alike they write; nothing for fewer than two."""
    voices = VoiceMap.model_validate(statistics) if statistics else VoiceMap()
    return _markdown(voice_figure(voices), "Voice map") if len(voices.ids) > 1 else ""


def voice_alarm_picture(name: str, seen: VoiceSeen) -> str:
    """Return the sum of an agent's voice alarm along its messages; a voice that is not learnt gives nothing to draw."""
    figure = voice_alarm_figure(name, seen)
    return _markdown(figure, "Voice alarm") if figure.chart else ""


def _markdown(figure: Figure, title: str) -> str:
    image = _image(title, data_uri(figure.chart))
    return f"{image}\n\n{markdown_text(figure.caption)}" if image else ""


def _image(title: str, address: str) -> str:
    return f"![{title}]({address})" if len(address) < MOST_BYTES else ""
