"""Shares of messages, answers or tests that come in groups: their intervals, and whether one share is below another.

Messages of a conversation, and trials of a test, are not independent of each other, so everything here takes whole groups.
Making one case worse never makes a result better: a case that fails instead of passing raises no limit of an interval, and turns
no drop into none.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

# Below this number of conversations they do not show how much conversations differ.
FEWEST_CONVERSATIONS = 5
# Part of the variance of a case that lies between conversations. The interval is never narrower than with this value: a few
# messages out of character do not show how they cluster. The second value is for too few conversations.
LEAST_CORRELATION, USUAL_CORRELATION = 0.05, 0.1
CONFIDENCE = 0.95
# A share dropped when it is lower by this much, and surely lower (one-sided), and this number of messages is out of character: one
# of four messages is what a reader's error looks like.
LEAST_DROP, DROP_LEVEL, LEAST_OUT = 0.1, 0.05, 3
_SUBSETS = 2000

# Numbers of messages in, out and unclear in a conversation.
Counts = tuple[int, int, int]


@dataclass(frozen=True)
class Share:
    """The share of messages in character, with its 95 % interval.

    Attributes:
        n_in, n_out, n_unclear: number of messages by verdict. Unclear messages are not part of the share.
        conversations: number of conversations with a message in or out of character.
        share: 0-1; None without a message in or out of character.
        low, high: 0-1, the interval. A verdict that turns from in to out never raises one of them.
    """

    n_in: int
    n_out: int
    n_unclear: int
    conversations: int
    share: float | None
    low: float
    high: float


@dataclass(frozen=True)
class ShareDrop:
    """How much lower a share is than another.

    Attributes:
        before, now: the two shares, 0-1.
        drop: before - now.
        n_out: number of messages out of character now.
        low, high: limits of the drop, each with a one-sided level of 5 %, or less where several are compared.
    """

    before: float
    now: float
    drop: float
    low: float
    high: float
    n_out: int = LEAST_OUT

    @property
    def fell(self) -> bool:
        """Whether the share is lower by at least 10 points and surely lower, by three messages or more."""
        return self.drop >= LEAST_DROP - 1e-9 and self.low > 0 and self.n_out >= LEAST_OUT


def share_of_counts(counts: Sequence[Counts], confidence: float = CONFIDENCE) -> Share:
    """Return the share from the numbers of messages in, out and unclear of each conversation.

    ``confidence``: of the interval, two-sided, 0-1.
    """
    decided = [(n_in, n_in + n_out) for n_in, n_out, _ in counts if n_in + n_out]
    inside, total = sum(n_in for n_in, _ in decided), sum(n for _, n in decided)
    low, high = _interval(decided, confidence) if decided else (0.0, 1.0)
    unclear = sum(n_unclear for _, _, n_unclear in counts)
    share = inside / total if total else None
    return Share(inside, total - inside, unclear, len(decided), share, low, high)


def share_drop(before: Sequence[Counts], now: Sequence[Counts], level: float = DROP_LEVEL) -> ShareDrop | None:
    """Return how much lower the second share is; None where one of them has nothing that is decided.

    ``level``: of each limit, one-sided: 5 %, or less where several are compared.

    The limits of the difference are made from those of the two shares (Newcombe's hybrid score interval, 1998, Statistics in
    Medicine 17; for any intervals: Zou and Donner, 2008).
    """
    first, second = (share_of_counts(counts, 1 - 2 * level) for counts in (before, now))
    if first.share is None or second.share is None:
        return None
    drop = first.share - second.share
    low = drop - math.hypot(first.share - first.low, second.high - second.share)
    high = drop + math.hypot(first.high - first.share, second.share - second.low)
    return ShareDrop(first.share, second.share, drop, low, high, second.n_out)


def _interval(counts: Sequence[tuple[int, int]], confidence: float) -> tuple[float, float]:
    """Return the interval of the share from the numbers in character and of messages of each conversation.

    The wider of two intervals. The first is Wilson's with the effective number of messages at the least correlation (Korn and
    Graubard 1998, Survey Methodology 24). The second, from five conversations on, is the spread of the share over random
    subsets of the conversations (Hartigan 1969, "Using subsample values as typical values", JASA 64): its variance is that of
    the ratio estimator by conversation. Neither rises when a verdict turns from in to out; intervals with an estimated
    variance do.
    """
    import numpy as np

    inside, sizes = np.array(counts).T
    is_few = len(counts) < FEWEST_CONVERSATIONS
    correlation = USUAL_CORRELATION if is_few else LEAST_CORRELATION
    effective = float(sizes.sum() ** 2 / (sizes * (1 + (sizes - 1) * correlation)).sum())
    low, high = wilson(float(inside.sum() / sizes.sum()), effective, confidence)
    if not is_few:
        subsets, tail = _subsets(len(counts)), (1 - confidence) / 2
        drawn_low, drawn_high = map(float, np.quantile((subsets @ inside) / (subsets @ sizes), (tail, 1 - tail)))
        low, high = min(low, drawn_low), max(high, drawn_high)
    return max(0.0, low), min(1.0, high)


def _subsets(number: int) -> Any:
    """Return rows of 0 and 1: all subsets of a few conversations but the empty one, else random ones, always the same."""
    import numpy as np

    if 2**number <= _SUBSETS:
        return (np.arange(1, 2**number)[:, None] >> np.arange(number)) & 1
    drawn = np.random.default_rng(number).integers(0, 2, (_SUBSETS, number))
    return drawn[drawn.any(axis=1)]


def wilson(share: float, number: float, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return Wilson's score interval of a share (0-1) of ``number`` independent cases; it may be wider than 0-1 by rounding."""
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    scale = 1 + z**2 / number
    centre = (share + z**2 / (2 * number)) / scale
    half = z * math.sqrt(share * (1 - share) / number + z**2 / (4 * number**2)) / scale
    return centre - half, centre + half
