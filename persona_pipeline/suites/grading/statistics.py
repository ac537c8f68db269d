"""Intervals of means and shares, and means by weight."""

import math
import statistics
from collections.abc import Iterable, Sequence

from persona_pipeline.base.shares import wilson


def mean_interval(values: Sequence[float]) -> tuple[float, float, float, float]:
    """Return mean, lower and upper end of its 95 % t interval, and standard deviation (n - 1) of at least two values."""
    from scipy.special import stdtrit

    mean = math.fsum(values) / len(values)
    spread = statistics.stdev(values)
    # To three digits, as the tables of AgentV and its cases have it.
    half = round(float(stdtrit(len(values) - 1, 0.975)), 3) * spread / math.sqrt(len(values))
    return mean, mean - half, mean + half, spread


def weighted_mean(pairs: Iterable[tuple[float, float]]) -> float | None:
    """Return sum(score * weight) / sum(weight) of (score, weight) pairs, None when the weights add up to 0."""
    total = weights = 0.0
    for score, weight in pairs:
        total += score * weight
        weights += weight
    return total / weights if weights else None


def share_interval(count: int, total: int) -> tuple[float, float] | None:
    """Return the 95 % interval of a share of tests, 0-1; None of no tests."""
    if total == 0:
        return None
    low, high = wilson(count / total, total)
    return max(0.0, low), min(1.0, high)
