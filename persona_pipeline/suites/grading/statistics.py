"""How sure means and counts are: intervals of means, the sign test, and means by weight."""

import math
import statistics
from collections.abc import Iterable, Sequence


def mean_interval(values: Sequence[float]) -> tuple[float, float, float, float]:
    """Return mean, lower and upper end of its 95 % t interval, and standard deviation (n - 1) of at least two values."""
    from scipy.special import stdtrit

    mean = math.fsum(values) / len(values)
    spread = statistics.stdev(values)
    # To three digits, as the tables of AgentV and its cases have it.
    half = round(float(stdtrit(len(values) - 1, 0.975)), 3) * spread / math.sqrt(len(values))
    return mean, mean - half, mean + half, spread


def sign_test(wins: int, losses: int) -> float | None:
    """Return the two-sided p of the exact sign test, None without a win or a loss."""
    from scipy.special import bdtr

    return min(1.0, 2 * float(bdtr(min(wins, losses), wins + losses, 0.5))) if wins + losses else None


def weighted_mean(pairs: Iterable[tuple[float, float]]) -> float | None:
    """Return sum(score * weight) / sum(weight) of (score, weight) pairs, None when the weights add up to 0."""
    total = weights = 0.0
    for score, weight in pairs:
        total += score * weight
        weights += weight
    return total / weights if weights else None


def share_interval(count: int, total: int) -> tuple[float, float] | None:
    """Return the exact 95 % interval (Clopper and Pearson) of a share, 0-1; None of no cases."""
    if total == 0:
        return None
    from scipy.special import betaincinv

    low = float(betaincinv(count, total - count + 1, 0.025)) if count else 0.0
    high = float(betaincinv(count + 1, total - count, 0.975)) if count < total else 1.0
    return low, high
