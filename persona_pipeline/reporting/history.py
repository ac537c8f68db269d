"""What scores over windows tell: which dimensions have been falling, and since when."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from persona_pipeline.reporting.sections import HistoryPoint, TrendSeen
from persona_pipeline.reporting.view import dimension_label, format_delta, format_score

MINIMUM_CHANGE = 1.0


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


@dataclass(frozen=True)
class ChangePoint:
    """``index``: the first value of the new level. ``before`` and ``after``: mean scores (0-9) of the two levels."""

    index: int
    before: float
    after: float

    @property
    def change(self) -> float:
        return self.after - self.before

    @property
    def mark(self) -> TrendMark:
        """The change as a timeline marks it."""
        fell = "Fell" if self.change < 0 else "Rose"
        text = f"{fell} from {format_score(self.before)} to {format_score(self.after)} ({format_delta(self.change)})."
        return TrendMark(self.index, format_delta(self.change), text)


def change_point(scores: Sequence[float | None], minimum: float = MINIMUM_CHANGE) -> ChangePoint | None:
    """Return the one point that best splits the series into two levels, or None if it has no clear one.

    The split with the largest ``n1 * n2 / (n1 + n2) * (mean2 - mean1)**2`` (the sum of squares it explains, as in binary
    segmentation) counts when the levels differ by at least ``minimum`` and it explains at least half of the variation.
    Windows without a score are skipped; two scored ones are the least.
    """
    known = [(index, score) for index, score in enumerate(scores) if score is not None]
    values = [score for _, score in known]
    if len(values) < 2:
        return None
    mean = fmean(values)
    variation = sum((value - mean) ** 2 for value in values)
    best, explained = None, 0.0
    for cut in range(1, len(values)):
        before, after = fmean(values[:cut]), fmean(values[cut:])
        gain = cut * (len(values) - cut) / len(values) * (after - before) ** 2
        if gain > explained:
            best, explained = ChangePoint(known[cut][0], before, after), gain
    if best is None or abs(best.change) < minimum or explained < variation / 2:
        return None
    return best
