"""Tests of the specification for two groups of scores, the level of all tests, and SciPy's special functions.

An agent's dimensions and its claims share its level. Claims have the smaller part: they must drop three times as far anyway.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

LEVEL = 0.05
DIMENSIONS_SHARE, CLAIMS_SHARE = 0.75, 0.25


def special() -> Any:
    """Return SciPy's special functions. Importing them takes 0.1 s and 24 MB, so only commands that test drops do."""
    from scipy import special

    return special


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
