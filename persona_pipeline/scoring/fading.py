"""After how many turns of a scripted conversation a character is lost: the assert ``fades`` and the half-life of suites.

The input is one value a turn (the adherence score of that message), by conversation. A character counts as lost from the turn on
from which all that follows, taken together, lies farthest below the threshold, and at least two turns do; a conversation that
ends in character is censored, and says only that it held so long.

A half-life is reported only where late turns are out of character more often than early ones: a character that varies is out of
character at any time. Conversations are independent, turns are not: each conversation gives one number, how far its broken turns
lean to its end. What fades in real conversations is counted in ``scoring.messages.kinds``.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import fmean, stdev

from persona_pipeline.scoring.results import HIGHEST, DimensionEvaluation, weighted_mean

FEWEST_CONVERSATIONS = 5
SHORTEST = 5
HELD = 2
CONFIDENCE_Z = 1.959964
THRESHOLD = 5.0
# Share of characters that do not fade of which fading is said.
FALSE_FADING = 0.025


@dataclass(frozen=True)
class MessageValue:
    """One message of the agent: ``number`` counts its messages in the conversation from 1; ``value``: 0-9 (None: not judged)."""

    number: int
    value: float | None


@dataclass(frozen=True)
class SurvivalPoint:
    """Share (0-1) of characters still held after a turn, with its 95 % interval; ``at_risk``: conversations still going."""

    turn: int
    share: float
    low: float
    high: float
    at_risk: int


@dataclass(frozen=True)
class Fading:
    """How a character fares in the course of its conversations.

    Attributes:
        half_life: turns after which the character is lost in half of the conversations; None: it is not, as far as they go.
        half_life_low, half_life_high: its 95 % interval; None: beyond what was seen.
        lost: conversations in which it was.
        broken: share (0-1) of turns below the threshold.
        fades: late turns are broken more often than early ones. Without, nothing is lost but by chance: no survival, no half-life.
    """

    conversations: int
    lost: int
    longest: int
    survival: tuple[SurvivalPoint, ...]
    half_life: int | None = None
    half_life_low: int | None = None
    half_life_high: int | None = None
    broken: float = 0.0
    fades: bool = True

    @property
    def text(self) -> str:
        """The finding in one sentence."""
        seen = f"{self.conversations} conversations of up to {self.longest} turns"
        if not self.fades:
            often = f"no more often than early ones ({self.broken:.0%})"
            return f"no fading is seen: late turns are out of character {often}, of {seen}"
        if self.half_life is None:
            held = self.survival[-1].share if self.survival else 1.0
            low = f"; half may be lost from turn {self.half_life_low} on" if self.half_life_low is not None else ""
            return f"the character is held to the end in {held:.0%} of {seen}{low}"
        upper = str(self.half_life_high) if self.half_life_high is not None else "beyond what was seen"
        return (
            f"half of the conversations have lost the character after {self.half_life} turns (95 %: {self.half_life_low} to "
            f"{upper}), of {seen}"
        )


def fading(conversations: Mapping[str, Sequence[MessageValue]]) -> Fading | None:
    """Return how a character fares by turn; None with fewer than 5 conversations of at least 5 judged turns.

    ``conversations``: of one agent and one version of its persona, each its turns in order.
    """
    judged = [
        [turn for turn in turns if turn.value is not None and math.isfinite(turn.value)]
        for turns in conversations.values()
    ]
    long = [turns for turns in judged if len(turns) >= SHORTEST]
    if len(long) < FEWEST_CONVERSATIONS:
        return None
    broken = [[_is_broken(turn) for turn in turns] for turns in long]
    fades = _leans_to_the_end(broken)
    ends = [character_end(turns) if fades else (turns[-1].number, False) for turns in long]
    survival = kaplan_meier(ends)
    return Fading(
        conversations=len(long),
        lost=sum(lost for _, lost in ends),
        longest=max(turns[-1].number for turns in long),
        survival=survival,
        half_life=_reaches(survival, "share"),
        half_life_low=_reaches(survival, "low"),
        half_life_high=_reaches(survival, "high"),
        broken=fmean(value for turns in broken for value in turns),
        fades=fades,
    )


def message_scores(evaluated: DimensionEvaluation) -> dict[str, float]:
    """Return the score (0-9) of each message that was judged by itself (``level: action``): the claims' weighted mean."""
    found: dict[str, list[tuple[float, float]]] = {}
    for row in evaluated.propositions.values():
        for part in row.parts:
            if part.get("raw") is not None and row.weight > 0:
                raw = float(part["raw"])
                found.setdefault(str(part["part"]), []).append((HIGHEST - raw if row.inverted else raw, row.weight))
    return {message_id: weighted_mean(pairs) for message_id, pairs in found.items()}


def kaplan_meier(ends: Sequence[tuple[int, bool]]) -> tuple[SurvivalPoint, ...]:
    """Return the survival curve of (turn, lost) pairs, a point for each turn at which something was lost.

    Kaplan and Meier (1958); the interval is Greenwood's on the log-minus-log scale, which stays within 0-1. False: the
    conversation ended with the character held.
    """
    share, greenwood, points = 1.0, 0.0, []
    for turn in sorted({turn for turn, lost in ends if lost}):
        at_risk = sum(end >= turn for end, _ in ends)
        lost = sum(end == turn and gone for end, gone in ends)
        share *= 1 - lost / at_risk
        if at_risk > lost:
            greenwood += lost / (at_risk * (at_risk - lost))
        low, high = _log_log(share, greenwood)
        points.append(SurvivalPoint(turn, share, low, high, at_risk))
    return tuple(points)


def _is_broken(turn: MessageValue) -> bool:
    return (turn.value or 0.0) < THRESHOLD


def _leans_to_the_end(broken: Sequence[Sequence[bool]]) -> bool:
    """Return whether broken turns stand late in their conversations: a one-sided t-test of one number a conversation."""
    leans = []
    for turns in broken:
        kept = turns[:-HELD]
        places = [place - (len(kept) - 1) / 2 for place in range(len(kept))]
        # Scaled so that a long conversation's number varies as a short one's where nothing fades.
        lean = sum(place for place, is_broken in zip(places, kept, strict=True) if is_broken)
        leans.append(lean / math.sqrt(sum(place * place for place in places)))
    spread = stdev(leans)
    if spread == 0:
        return leans[0] > 0
    from scipy.special import stdtr

    return bool(stdtr(len(leans) - 1, -fmean(leans) / (spread / math.sqrt(len(leans)))) < FALSE_FADING)


def character_end(turns: Sequence[MessageValue]) -> tuple[int, bool]:
    """Return the turn from which on the character is lost for good, and whether it is; the last turn where it is not.

    ``turns``: the judged ones of one conversation, at least 2.
    """
    # How far below the threshold all that follows lies, from each turn on.
    below = list(accumulate(THRESHOLD - (turn.value or 0.0) for turn in reversed(turns)))[HELD - 1 :][::-1]
    deepest = max(below)
    return (turns[below.index(deepest)].number, True) if deepest > 0 else (turns[-1].number, False)


def _log_log(share: float, greenwood: float) -> tuple[float, float]:
    if share <= 0:
        return 0.0, 0.0
    if share >= 1:
        return 1.0, 1.0
    reach = CONFIDENCE_Z * math.sqrt(greenwood) / abs(math.log(share))
    return share ** math.exp(reach), share ** math.exp(-reach)


def _reaches(survival: Sequence[SurvivalPoint], bound: str) -> int | None:
    """Return the first turn at which the curve, or a bound of it, is down to one half."""
    return next((point.turn for point in survival if getattr(point, bound) <= 0.5), None)
