"""Tests and effect sizes for comparing scores. Groups are plain sequences of finite numbers.

Paired differences that may be looked at after every one: when to stop, and how large the change is.

If two versions are the same, which of the two a scene's higher score belongs to is a coin flip, however noisy the judge is and
however scenes differ: exchanging the versions changes nothing. So whoever bets on the sign of each difference, with a stake that
knows its size and all differences before it, wins nothing on average; how much it won is a test martingale, and by Ville's
inequality it passes 1 / alpha in a share of alpha of runs at most, whenever one looks and stops. A stake of tanh(rate x size) is
the one that grows fastest where differences are normal. Rates are set against the spread of the differences before, and several
are mixed, so that small changes and large ones are both seen.

After de la Pena (1999), Howard, Ramdas, McAuliffe and Sekhon (2020, time-uniform Chernoff bounds, the symmetric case), Ramdas,
Ruf, Larsson and Koolen (2020) and Waudby-Smith and Ramdas (2024, betting). The interval turns the test round: it holds every
shift that, taken off the differences, leaves the bets unprofitable so far. It assumes that noise is symmetric about the change.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class WelchResult:
    """Welch's t-test of two independent groups (Welch, 1947), two-sided. ``significant``: p below alpha."""

    t_statistic: float
    degrees_of_freedom: float
    p_value: float
    significant: bool
    mean_a: float
    mean_b: float
    sd_a: float
    sd_b: float


def welch(a: Sequence[float], b: Sequence[float], alpha: float = 0.05) -> WelchResult:
    """Compare the means of two groups that may differ in size and spread.

    Two constant groups have no spread to test against: equal means give t 0 and p 1, different ones t
    +-infinity and p 0, with n_a + n_b - 2 degrees of freedom.

    Raises:
        ValueError: a group has fewer than two values, or one that is not finite.
    """
    _check(a, "a")
    _check(b, "b")
    mean_a, mean_b, sd_a, sd_b = _mean(a), _mean(b), stdev(a), stdev(b)
    square_a, square_b = sd_a**2 / len(a), sd_b**2 / len(b)
    squares = square_a + square_b
    if squares == 0:
        t = 0.0 if mean_a == mean_b else math.copysign(math.inf, mean_a - mean_b)
        degrees = float(len(a) + len(b) - 2)
        p = 1.0 if t == 0 else 0.0
    else:
        t = (mean_a - mean_b) / math.sqrt(squares)
        # As shares of the whole, so that tiny spreads do not underflow when squared again.
        share_a, share_b = square_a / squares, square_b / squares
        degrees = 1 / (share_a**2 / (len(a) - 1) + share_b**2 / (len(b) - 1))
        p = _t_p_value(t, degrees)
    return WelchResult(t, degrees, p, p < alpha, mean_a, mean_b, sd_a, sd_b)


def cohens_d(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the difference of two means in pooled standard deviations (Cohen, 1988).

    Two constant groups give 0.0 for equal means, else +-infinity.

    Raises:
        ValueError: a group has fewer than two values, or one that is not finite.
    """
    _check(a, "a")
    _check(b, "b")
    difference = _mean(a) - _mean(b)
    squares = (len(a) - 1) * stdev(a) ** 2 + (len(b) - 1) * stdev(b) ** 2
    if squares == 0:
        return 0.0 if difference == 0 else math.copysign(math.inf, difference)
    return difference / math.sqrt(squares / (len(a) + len(b) - 2))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted for being one of several (Holm, 1979), in the order given.

    Raises:
        ValueError: a value is not within 0-1.
    """
    for p in p_values:
        if not 0 <= p <= 1:
            raise ValueError(f"p-value {p!r} is not within 0 and 1")
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted


def _check(values: Sequence[float], name: str) -> None:
    if len(values) < 2:
        raise ValueError(f"group {name} has {len(values)} value(s); at least two are needed")
    if not all(math.isfinite(value) for value in values):
        raise ValueError(f"group {name} holds a value that is not finite")


def _mean(values: Sequence[float]) -> float:
    # Summing 0.1 three times gives more than 0.3: without spread to test against, that would pass for a difference.
    return float(values[0]) if min(values) == max(values) else fmean(values)


def _t_p_value(t: float, degrees: float) -> float:
    # The special function alone: scipy.stats takes a second longer to import.
    from scipy.special import stdtr

    return float(2 * stdtr(degrees, -abs(t)))


# In standard deviations of a difference: changes of about as many of them are seen soonest.
_RATES = np.array([0.4, 0.8, 1.6])
# What the spread is taken for before anything is known, and for how many differences that counts: points, as scores are.
_SPREAD, _KNOWN = 1.0, 2.0
_LARGEST_STAKE = 1.0 - 1e-7
_STEP = 0.02
WIDEST = 9.0
# A spread of nothing would make a stake of everything of the smallest rounding.
_SMALLEST_SPREAD = 0.05


@dataclass(frozen=True)
class PairedChange:
    """What paired differences say so far.

    Attributes:
        pairs: how many there are.
        mean: their mean; None without any.
        p_value: that there is no change; at any time, and of whatever number of looks.
        margin_p: the same that it is as large as the margin, up or down: the larger of the two.
        low, high: the confidence sequence at the level asked for; the widest there can be while nothing is known.
    """

    pairs: int
    mean: float | None
    p_value: float
    margin_p: float
    low: float
    high: float


def paired_change(
    differences: Sequence[float], level: float, *, margin: float = 1.0, widest: float = WIDEST, interval: bool = True
) -> PairedChange:
    """Return what differences say, after the last of them; earlier looks are accounted for.

    Args:
        differences: after minus before, a scene each, in the order they came.
        level: share (0-1) of runs in which the interval may miss the change at some time.
        margin: a change that matters, in points.
        widest: the largest difference there can be.
        interval: off where only the p-values are wanted, which is a thousand times less work.
    """
    values = np.asarray(differences, dtype=float)
    if not len(values):
        return PairedChange(0, None, 1.0, 1.0, -widest, widest)
    shifts = np.arange(-widest, widest + _STEP / 2, _STEP) if interval else np.empty(0)
    # No change and the margin are tested exactly, not at the nearest point of a grid.
    highest = log_wealth(values, np.concatenate([shifts, [0.0, -margin, margin]])).max(axis=1)
    nothing, *margins = (min(1.0, math.exp(-float(most))) for most in highest[-3:])
    highest = highest[:-3]
    inside = shifts[highest < math.log(1.0 / level)]
    mean = float(values.mean())
    if len(inside):
        low, high = float(inside[0]), float(inside[-1])
    else:
        low, high = (mean, mean) if interval else (-widest, widest)
    return PairedChange(len(values), mean, nothing, max(margins), low, high)


def log_wealth(values: NDArray[np.float64], shifts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the log of what is held after each difference by who bets against each shift, half on up and half on down.

    Returns:
        An array of (shifts, differences); it begins with one unit of money.
    """
    rates = _RATES[:, None] / _spreads(values)[None, :]
    stakes = np.tanh(rates[:, None, :] * (values[None, :] - shifts[:, None])[None, :, :])
    stakes = np.clip(stakes, -_LARGEST_STAKE, _LARGEST_STAKE)
    up, down = np.cumsum(np.log1p(stakes), axis=2), np.cumsum(np.log1p(-stakes), axis=2)
    both = np.concatenate([up, down])
    top = both.max(axis=0)
    return top + np.log(np.exp(both - top).mean(axis=0))


def _spreads(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the standard deviation to expect of each difference from those before it alone."""
    count = np.arange(len(values))
    sums = np.concatenate([[0.0], np.cumsum(values)[:-1]])
    squares = np.concatenate([[0.0], np.cumsum(values**2)[:-1]])
    around = np.maximum(0.0, squares - sums**2 / np.maximum(1, count))
    pooled = (_KNOWN * _SPREAD**2 + around) / (_KNOWN + np.maximum(0, count - 1))
    return np.maximum(_SMALLEST_SPREAD, np.sqrt(pooled))
