"""Tests for comparing scores: two groups, many comparisons at once, paired differences. Groups are sequences of finite numbers.

Many tests, few false alarms: dimensions and claims of an agent, and the agents that are watched.

An agent's dimensions are one family and its claims another, each corrected by Holm's method (Holm, 1979), and the two share the
agent's level: the smaller part for claims, since a claim has to fall three times as far anyway.

Agents are corrected for by how many are watched: up to ``MOST_TOGETHER`` no run should cry wolf, so each gets its
share of the level (Bonferroni); beyond, some false alarm is the price of seeing anything, and what is held is the share of
false ones among the agents reported (Benjamini and Hochberg, 1995; within a reported agent Benjamini and Bogomolov, 2014).

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

from persona_pipeline.guard.baselines.variance import Indices, Numbers, special

LEVEL = 0.05
DIMENSIONS_SHARE, CLAIMS_SHARE = 0.75, 0.25
MOST_TOGETHER = 20


@dataclass(frozen=True)
class Corrected:
    """P-values after correction, to be compared with ``LEVEL``.

    ``dimensions``, ``claims``: in the order given, NaN where there is no test. ``agents``: of each agent before the correction
    for agents: the smallest of its two families.
    """

    dimensions: Numbers
    claims: Numbers
    agents: Numbers


def corrected(
    dimensions: Numbers,
    dimension_agents: Indices,
    claims: Numbers,
    claim_agents: Indices,
    *,
    watched: int,
) -> Corrected:
    """Correct the p-values of every dimension and claim of some agents.

    ``dimension_agents``, ``claim_agents``: the agent (0 to ``watched`` - 1) of each p-value.
    """
    own = holm_within(dimensions, dimension_agents) / DIMENSIONS_SHARE
    single = holm_within(claims, claim_agents) / CLAIMS_SHARE
    smallest = np.ones(watched)
    for values, places in ((own, dimension_agents), (single, claim_agents)):
        known = np.isfinite(values)
        np.minimum.at(smallest, places[known], np.minimum(1.0, values[known]))
    factor = float(max(watched, 1))
    if factor > MOST_TOGETHER:
        factor /= max(1, _found(smallest, factor))
    return Corrected(np.minimum(1.0, factor * own), np.minimum(1.0, factor * single), smallest)


def level_of(tests: Numbers, watched: int, share: float) -> Numbers:
    """Return the level that one of an agent's ``tests`` of a kind must pass if no other test of it does."""
    return LEVEL * share / (np.maximum(1.0, tests) * max(1, watched))


def families_named(watched: int) -> str:
    """Return what was corrected for, in words."""
    within = "Holm over an agent's dimensions and over its claims"
    if watched > MOST_TOGETHER:
        return f"{within}; Benjamini-Hochberg at {LEVEL:.0%} over {watched} agents"
    return f"{within}; Bonferroni over {watched} agents" if watched > 1 else within


def holm_within(p_values: Numbers, groups: Indices) -> Numbers:
    """Return p-values adjusted by Holm's method within each group; NaN stays NaN and counts for nothing."""
    adjusted = np.full(p_values.shape, np.nan)
    known = np.flatnonzero(np.isfinite(p_values))
    if not len(known):
        return adjusted
    order = known[np.lexsort((p_values[known], groups[known]))]
    ordered = groups[order]
    sizes = np.bincount(ordered)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    left = sizes[ordered] - (np.arange(len(order)) - starts[ordered])
    # Stepping up by 2 from group to group starts the running maximum anew in each.
    stepped = np.maximum.accumulate(np.minimum(1.0, left * p_values[order]) + 2.0 * ordered) - 2.0 * ordered
    adjusted[order] = np.minimum(1.0, stepped)
    return adjusted


def _found(p_values: Numbers, watched: float) -> int:
    """Return how many of the agents Benjamini and Hochberg's procedure reports; those not known count as unsuspicious."""
    ordered = np.sort(p_values)
    below = np.flatnonzero(ordered <= LEVEL * np.arange(1, len(ordered) + 1) / watched)
    return int(below[-1]) + 1 if len(below) else 0


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

    Two constant groups have no spread to test against: equal means give t 0 and p 1, different ones t +-infinity and p 0, with
    n_a + n_b - 2 degrees of freedom. Raises ``ValueError``: a group has fewer than two values, or one that is not finite.
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
        p = float(2 * special().stdtr(degrees, -abs(t)))
    return WelchResult(t, degrees, p, p < alpha, mean_a, mean_b, sd_a, sd_b)


def cohens_d(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the difference of two means in pooled standard deviations (Cohen, 1988).

    Two constant groups give 0.0 for equal means, else +-infinity. Raises ``ValueError``: a group has fewer than two values, or
    one that is not finite.
    """
    _check(a, "a")
    _check(b, "b")
    difference = _mean(a) - _mean(b)
    squares = (len(a) - 1) * stdev(a) ** 2 + (len(b) - 1) * stdev(b) ** 2
    if squares == 0:
        return 0.0 if difference == 0 else math.copysign(math.inf, difference)
    return difference / math.sqrt(squares / (len(a) + len(b) - 2))


def _check(values: Sequence[float], name: str) -> None:
    if len(values) < 2:
        raise ValueError(f"group {name} has {len(values)} value(s); at least two are needed")
    if not all(math.isfinite(value) for value in values):
        raise ValueError(f"group {name} holds a value that is not finite")


def _mean(values: Sequence[float]) -> float:
    # Summing 0.1 three times gives more than 0.3: without spread to test against, that would pass for a difference.
    return float(values[0]) if min(values) == max(values) else fmean(values)


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

    ``pairs``: how many there are. ``mean``: their mean; None without any. ``p_value``: that there is no change; at any time, and
    of whatever number of looks. ``margin_p``: the same that it is as large as the margin, up or down: the larger of the two.
    ``low``, ``high``: the confidence sequence at the level asked for; the widest there can be while nothing is known.
    ``kind``: of scenes, where those of one kind show more than all together.
    """

    pairs: int
    mean: float | None
    p_value: float
    margin_p: float
    low: float
    high: float
    kind: str = ""


def paired_change(
    differences: Sequence[float],
    level: float,
    *,
    margin: float = 1.0,
    widest: float = WIDEST,
    interval: bool = True,
    kinds: Sequence[str] = (),
) -> PairedChange:
    """Return what differences say, after the last of them; earlier looks are accounted for.

    ``differences``: after minus before, a scene each, in the order they came. ``level``: share (0-1) of runs in which the
    interval may miss the change at some time. ``margin``: a change that matters, in points. ``widest``: the largest difference
    there can be. ``interval``: off where only the p-values are wanted, which is a thousand times less work. ``kinds``: of each
    difference; a change in one kind alone is looked for too.
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
    kind = ""
    if len(set(kinds)) > 1:
        nothing, kind = _in_any_kind(values, kinds)
    return PairedChange(len(values), mean, nothing, max(margins), low, high, kind)


def _in_any_kind(values: Numbers, kinds: Sequence[str]) -> tuple[float, str]:
    """Return the p-value that nothing changed in any kind, and the kind that shows most; empty: all together do.

    Half of the money is on all differences, the rest in equal parts on those of each kind: what is held together is a bet, too.
    """
    names, none = sorted(set(kinds)), np.zeros(1)
    held = [log_wealth(values, none)[0] - math.log(2)]
    for name in names:
        own = np.array([kind == name for kind in kinds])
        path = np.concatenate([none, log_wealth(values[own], none)[0]])
        held.append(path[np.cumsum(own)] - math.log(2 * len(names)))
    most = float(np.logaddexp.reduce(np.stack(held), axis=0).max())
    return min(1.0, math.exp(-most)), ["", *names][int(np.argmax([path[-1] for path in held]))]


def log_wealth(values: Numbers, shifts: Numbers) -> Numbers:
    """Return the log of what is held after each difference by who bets against each shift, half on up and half on down.

    Returns an array of (shifts, differences); it begins with one unit of money.
    """
    rates = _RATES[:, None] / _spreads(values)[None, :]
    stakes = np.tanh(rates[:, None, :] * (values[None, :] - shifts[:, None])[None, :, :])
    stakes = np.clip(stakes, -_LARGEST_STAKE, _LARGEST_STAKE)
    up, down = np.cumsum(np.log1p(stakes), axis=2), np.cumsum(np.log1p(-stakes), axis=2)
    both = np.concatenate([up, down])
    top = both.max(axis=0)
    return top + np.log(np.exp(both - top).mean(axis=0))


def _spreads(values: Numbers) -> Numbers:
    """Return the standard deviation to expect of each difference from those before it alone."""
    count = np.arange(len(values))
    sums = np.concatenate([[0.0], np.cumsum(values)[:-1]])
    squares = np.concatenate([[0.0], np.cumsum(values**2)[:-1]])
    around = np.maximum(0.0, squares - sums**2 / np.maximum(1, count))
    pooled = (_KNOWN * _SPREAD**2 + around) / (_KNOWN + np.maximum(0, count - 1))
    return np.maximum(_SMALLEST_SPREAD, np.sqrt(pooled))
