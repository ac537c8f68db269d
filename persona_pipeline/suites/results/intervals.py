"""How sure a mean over few values is: its t interval."""

import math
import statistics
from collections.abc import Sequence

# Two-sided 95 % quantiles of Student's t for 1 to 29 degrees of freedom; 1.96 beyond.
T_95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.16, 2.145, 2.131,
    2.12, 2.11, 2.101, 2.093, 2.086, 2.08, 2.074, 2.069, 2.064, 2.06, 2.056, 2.052, 2.048, 2.045,
)  # fmt: skip


def t_quantile(degrees: int) -> float:
    """Return the two-sided 95 % quantile of Student's t. ``degrees`` >= 1."""
    return T_95[degrees - 1] if degrees <= len(T_95) else 1.96


def mean_interval(values: Sequence[float]) -> tuple[float, float, float, float]:
    """Return mean, lower and upper end of its 95 % t interval, and standard deviation (n - 1) of at least two values."""
    mean = math.fsum(values) / len(values)
    spread = statistics.stdev(values)
    half = t_quantile(len(values) - 1) * spread / math.sqrt(len(values))
    return mean, mean - half, mean + half, spread
