"""What each threshold would have done to stored messages, and which keeps a stated risk. No store, no judge."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, Field

from persona_pipeline.corrections.records import Action, decide


class CorrectionKind(StrEnum):
    """One of the three corrections, by the name of its settings."""

    ACTION_GATE = "action_gate"
    ANTI_CONVERGENCE = "anti_convergence"
    REPETITION_SUPPRESSION = "repetition_suppression"

    @property
    def setting(self) -> str:
        """The name of its threshold among an agent's settings."""
        return {"anti_convergence": "convergence", "repetition_suppression": "repetition"}.get(
            self, self
        ) + "_threshold"


class Touched(BaseModel, frozen=True, extra="forbid"):
    """What one threshold would have done: shares (0-1) of all, of good ones and of bad ones; None where there are none."""

    threshold: float
    all: float
    good: float | None = None
    bad: float | None = None


class Area(BaseModel, frozen=True, extra="forbid"):
    """Area under the ROC: how often a bad message looks worse than a good one (0.5: no better than chance), with 95 % interval."""

    value: float
    low: float
    high: float
    good: int
    bad: int


class RiskThreshold(BaseModel, frozen=True, extra="forbid"):
    """The threshold that keeps a stated risk.

    Attributes:
        risk: share (0-1) of good messages that may be touched.
        threshold: None: none keeps it, ``why`` says why.
        good: known good messages that share no text with one another; ``needed``: so many keep the risk at all.
        touched: how many of them the threshold touches; ``all`` and ``bad``: what share (0-1) of all and of the known bad messages.
    """

    risk: float
    threshold: float | None
    good: int
    needed: int
    touched: int = 0
    all: float | None = None
    bad: float | None = None
    why: str = ""


class CheckCost(BaseModel, frozen=True, extra="forbid"):
    """What a check took, from so many of them; None: not known. ``source`` says what was measured."""

    source: str
    checks: int
    usd: float | None = None
    p50_ms: float | None = None
    p95_ms: float | None = None


class CorrectionReplay(BaseModel, frozen=True, extra="forbid"):
    """One correction of one agent over stored messages.

    Attributes:
        threshold: as it is set now; ``enabled``: whether the correction is on.
        messages: how many were looked at; ``measured`` of them have a score or a share, ``unmeasured``: why the others have none.
        anyway: touched whatever the threshold, by an opener, a phrase or a copy.
        touched: by threshold, the lowest first.
        judges: models that gave the scores, with how often.
    """

    correction: CorrectionKind
    agent_id: str
    enabled: bool
    threshold: float
    messages: int
    measured: int
    unmeasured: dict[str, int] = Field(default_factory=dict)
    anyway: int = 0
    good: int = 0
    bad: int = 0
    touched: list[Touched] = Field(default_factory=list)
    area: Area | None = None
    risk: RiskThreshold | None = None
    cost: CheckCost | None = None
    judges: dict[str, int] = Field(default_factory=dict)


class Replay(BaseModel, frozen=True, extra="forbid"):
    """Corrections over stored messages. ``notes`` are what has to be known to read the numbers."""

    results: list[CorrectionReplay]
    notes: list[str] = Field(default_factory=list)
    usd: float | None = 0.0
    calls: int = 0


# So that 95 of 100 are seen where a few hundred draws are counted.
CONFIDENCE = 0.97
_MOST_NEEDED = 1_000_000


def touched_at_most(good: int, risk: float) -> int:
    """Return how many good replies a threshold may hold back at most; -1: there are too few to keep the risk at all.

    With ``CONFIDENCE`` over the draw, the threshold then touches at most the share ``risk`` of all good replies there are, and,
    with the same confidence, of as many more as are known. ``good``: how many good replies are known. ``risk``: 0-1, neither of
    them. Raises ``ValueError``: the risk is no share.
    """
    if not 0 < risk < 1:
        raise ValueError(f"a risk of {risk:g} is no share; give one between 0 and 1")
    # The k-th order statistic lets k - 1 be touched; more are never safer.
    ranks = range(1, math.floor(risk * good + 1e-9) + 2)
    return bisect_left(ranks, True, key=lambda rank: not _keeps(rank, good, risk)) - 1


def good_needed(good: int, risk: float) -> int:
    """Return how many good replies keep the risk at all: ``good`` if they do, else from how many on every number does.

    A share of few is a coarse thing: 15 replies keep one in five, and 18 do not.
    """
    if good and touched_at_most(good, risk) >= 0:
        return good
    count = first = max(good, 1)
    while count < _MOST_NEEDED and count - first < 1 / risk:
        count += 1
        if touched_at_most(count, risk) < 0:
            first = count + 1
    return first


def _keeps(rank: int, good: int, risk: float) -> bool:
    from scipy.stats import binom, hypergeom

    if rank > good:
        return False
    alpha = 1 - CONFIDENCE
    allowed = math.floor(risk * good + 1e-9)
    # More than ``allowed`` of those to come lie below the rank: of the lowest rank + allowed of all, fewer than rank are known.
    drawn = (2 * good, good, rank + allowed)
    beyond = allowed < good and hypergeom.cdf(rank - 1, *drawn) > alpha
    return not beyond and bool(binom.cdf(rank - 1, good, risk) <= alpha)


_Z = 1.959963984540054
# Thresholds are set with so many digits; rounding never touches more.
_DIGITS = 2


@dataclass(frozen=True)
class MeasuredMessage:
    """One message as a correction sees it.

    ``value``: the gate's score (0-9), or the share (0-1) that is held against the threshold. ``anyway``: touched whatever the
    threshold. ``good``: whether it is known to be good or bad; None: not known. ``apart``: what was looked at has no message in
    common with what was looked at before it.
    """

    value: float
    anyway: bool = False
    good: bool | None = None
    apart: bool = True


def is_touched(correction: CorrectionKind, item: MeasuredMessage, threshold: float) -> bool:
    """Return whether a correction would step in, as it does at run time."""
    if correction is CorrectionKind.ACTION_GATE:
        return decide(item.value, threshold, attempt=1, max_attempts=1) is not Action.COMMIT
    return item.anyway or item.value > threshold


def thresholds(correction: CorrectionKind, present: float) -> list[float]:
    """Return the thresholds that are looked at: the scale in even steps, and the one that is set now."""
    top, steps = (9, 18) if correction is CorrectionKind.ACTION_GATE else (1, 20)
    return sorted({*(round(top * step / steps, 4) for step in range(steps + 1)), present})


def touched_by(correction: CorrectionKind, items: Sequence[MeasuredMessage], threshold: float) -> Touched:
    """Return what a threshold would have done; there is at least one message."""

    def share(of: Sequence[MeasuredMessage]) -> float | None:
        return sum(is_touched(correction, item, threshold) for item in of) / len(of) if of else None

    good, bad = ([item for item in items if item.good is wanted] for wanted in (True, False))
    return Touched(threshold=threshold, all=share(items) or 0.0, good=share(good), bad=share(bad))


def area(correction: CorrectionKind, items: Sequence[MeasuredMessage]) -> Area | None:
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


def risk_threshold(correction: CorrectionKind, items: Sequence[MeasuredMessage], risk: float) -> RiskThreshold:
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


def _suspicion(correction: CorrectionKind, item: MeasuredMessage) -> float:
    """The value, turned so that more is worse."""
    if item.anyway:
        return math.inf
    return -item.value if correction is CorrectionKind.ACTION_GATE else item.value


def _rounded(correction: CorrectionKind, limit: float) -> float:
    scale = 10**_DIGITS
    if correction is CorrectionKind.ACTION_GATE:
        return max(0.0, math.floor(-limit * scale + 1e-9) / scale)
    return min(1.0, math.ceil(limit * scale - 1e-9) / scale)


def _upper(value: float, good: int, bad: int) -> float:
    """Return the area that is just consistent with one measured lower."""
    from scipy.optimize import brentq

    mean = (good + bad) / 2 - 1

    def beyond(a: float) -> float:
        inner = 1 + mean * ((1 - a) / (2 - a) + a / (1 + a))
        return a - value - _Z * math.sqrt(max(0.0, a * (1 - a) * inner / (good * bad)))

    # At zero there is a root that says nothing.
    root: Any = value if value >= 1 else brentq(beyond, max(value, 1e-12), 1.0, xtol=1e-14)
    return float(root)
