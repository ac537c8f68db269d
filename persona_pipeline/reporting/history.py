"""What scores over windows tell: which dimensions have been falling, and since when."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from persona_pipeline.reporting.sections import HistoryPoint, TrendSeen
from persona_pipeline.reporting.view import dimension_label, format_delta, format_score


@dataclass(frozen=True)
class TrendMark:
    """Where the earliest of an agent's trends begins: index of its first window, and what they all are in words."""

    index: int
    label: str
    text: str


def trend_mark(points: Sequence[HistoryPoint], trends: Mapping[str, TrendSeen]) -> TrendMark | None:
    """Return the mark of an agent's trends on its windows; None without one."""
    if not trends:
        return None
    first = min(trends.values(), key=lambda trend: trend.began)
    index = next((number for number, point in enumerate(points) if point.window_end >= first.began), 0)
    falls = ", ".join(
        f"{dimension_label(name)} from {format_score(trend.before, 1)} to {format_score(trend.now, 1)} since "
        f"{trend.began.day} {trend.began:%B}"
        for name, trend in trends.items()
    )
    return TrendMark(index, format_delta(first.now - first.before, 1), f"Falling: {falls}.")
