"""From what was measured of each message to what thresholds do: arithmetic alone, no store and no judge."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from persona_pipeline.corrections.decision import Action, decide
from persona_pipeline.corrections.replay.models import Area, Correction, RiskThreshold, Touched
from persona_pipeline.corrections.replay.risk import good_needed, touched_at_most

_Z = 1.959963984540054
# Thresholds are set with so many digits; rounding never touches more.
_DIGITS = 2


@dataclass(frozen=True)
class Measured:
    """One message as a correction sees it.

    Attributes:
        value: the gate's score (0-9), or the share (0-1) that is held against the threshold.
        anyway: touched whatever the threshold.
        good: whether it is known to be good or bad; None: not known.
        apart: what was looked at has no message in common with what was looked at before it.
    """

    value: float
    anyway: bool = False
    good: bool | None = None
    apart: bool = True


def is_touched(correction: Correction, item: Measured, threshold: float) -> bool:
    """Return whether a correction would step in, as it does at run time."""
    if correction is Correction.ACTION_GATE:
        return decide(item.value, threshold, attempt=1, max_attempts=1) is not Action.COMMIT
    return item.anyway or item.value > threshold


def thresholds(correction: Correction, present: float) -> list[float]:
    """Return the thresholds that are looked at: the scale in even steps, and the one that is set now."""
    top, steps = (9, 18) if correction is Correction.ACTION_GATE else (1, 20)
    return sorted({*(round(top * step / steps, 4) for step in range(steps + 1)), present})


def touched_by(correction: Correction, items: Sequence[Measured], threshold: float) -> Touched:
    """Return what a threshold would have done; there is at least one message."""

    def share(of: Sequence[Measured]) -> float | None:
        return sum(is_touched(correction, item, threshold) for item in of) / len(of) if of else None

    good, bad = ([item for item in items if item.good is wanted] for wanted in (True, False))
    return Touched(threshold=threshold, all=share(items) or 0.0, good=share(good), bad=share(bad))


def area(correction: Correction, items: Sequence[Measured]) -> Area | None:
    """Return the area under the ROC, None without a good and a bad message.

    The interval is the fifth method of Newcombe (Statistics in Medicine 25, 2006), which has a width where the area is 1.
    """
    good, bad = (sorted(_suspicion(correction, i) for i in items if i.good is wanted) for wanted in (True, False))
    if not good or not bad:
        return None
    wins = sum(bisect_left(good, value) + bisect_right(good, value) for value in bad) / 2
    value = wins / (len(good) * len(bad))
    return Area(
        value=value,
        low=1 - _upper(1 - value, len(good), len(bad)),
        high=_upper(value, len(good), len(bad)),
        good=len(good),
        bad=len(bad),
    )


def risk_threshold(correction: Correction, items: Sequence[Measured], risk: float) -> RiskThreshold:
    """Return the threshold that touches at most a share of good messages; see ``touched_at_most`` for how sure that is.

    It is the one that touches most of the others: the next stricter one would not keep the risk.
    """
    good = sorted((_suspicion(correction, i) for i in items if i.good and i.apart), reverse=True)
    most, needed = touched_at_most(len(good), risk), good_needed(len(good), risk)
    known = {"risk": risk, "good": len(good), "needed": needed}
    if most < 0:
        why = f"{len(good)} good messages are known that have no text in common; {needed} are needed for {risk:.3g}"
        return RiskThreshold(threshold=None, why=why, **known)
    limit = good[most]
    if math.isinf(limit):
        anyway = sum(map(math.isinf, good))
        why = f"{anyway} of {len(good)} good ones are touched by openers, phrases and copies, whatever the threshold"
        return RiskThreshold(threshold=None, why=why, **known)
    threshold = _rounded(correction, limit)
    whole = touched_by(correction, items, threshold)
    touched = sum(is_touched(correction, i, threshold) for i in items if i.good and i.apart)
    return RiskThreshold(threshold=threshold, touched=touched, all=whole.all, bad=whole.bad, **known)


def _suspicion(correction: Correction, item: Measured) -> float:
    """The value, turned so that more is worse."""
    if item.anyway:
        return math.inf
    return -item.value if correction is Correction.ACTION_GATE else item.value


def _rounded(correction: Correction, limit: float) -> float:
    scale = 10**_DIGITS
    if correction is Correction.ACTION_GATE:
        return max(0.0, math.floor(-limit * scale + 1e-9) / scale)
    return min(1.0, math.ceil(limit * scale - 1e-9) / scale)


def _upper(value: float, good: int, bad: int) -> float:
    """Return the area that is just consistent with one measured lower."""
    low, high = value, 1.0
    mean = (good + bad) / 2 - 1

    def spread(a: float) -> float:
        inner = 1 + mean * ((1 - a) / (2 - a) + a / (1 + a))
        return math.sqrt(max(0.0, a * (1 - a) * inner / (good * bad)))

    for _ in range(60):
        middle = (low + high) / 2
        if middle - value < _Z * spread(middle):
            low = middle
        else:
            high = middle
    return high
