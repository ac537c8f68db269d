"""Variances of many series at once, drawn to one another. Everything works on whole arrays.

Scores and standard deviations are in points (0-9), variances in points squared. NaN stands for what is not known.
"""

import math
import sys
from functools import cache
from importlib import import_module
from threading import RLock
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Indices = NDArray[np.intp]

# Variances of a fleet that differ by less than a factor of 1.6 (as the variance of their logarithms) are taken for equal.
NEGLIGIBLE = 0.2


def means(values: Numbers) -> Numbers:
    """Return the mean of the known values along the last axis, NaN where there is none."""
    counts = np.isfinite(values).sum(axis=-1)
    return np.where(counts > 0, np.nansum(values, axis=-1) / np.maximum(counts, 1), np.nan)


def variances(values: Numbers) -> Numbers:
    """Return the variance (n - 1) of the known values along the last axis, NaN below two."""
    counts = np.isfinite(values).sum(axis=-1)
    squares = np.nansum((values - means(values)[..., None]) ** 2, axis=-1)
    return np.where(counts > 1, squares / np.maximum(counts - 1, 1), np.nan)


def prior_of(observed: Numbers, degrees: Numbers, floor: float) -> tuple[float, float]:
    """Return the degrees of freedom and the variance that a fleet's variances have in common.

    The empirical Bayes estimate of limma (Smyth, 2004): each variance is a scaled chi-square around its true one, and the true
    ones are a scaled inverse chi-square around the prior. Fleets that differ no more than chance have infinite prior degrees.
    ``observed``: variances; those without degrees of freedom are passed over. ``floor``: a variance that no score can be below,
    so that a lucky zero does not decide. Returns ``(nan, nan)`` where there is nothing to learn from.
    """
    known = (degrees > 0) & np.isfinite(observed)
    if not known.any():
        return math.nan, math.nan
    values, freedom = np.maximum(observed[known], floor), degrees[known]
    pooled = float(np.average(values, weights=freedom))
    if len(values) < 2:
        return math.inf, pooled
    logs = np.log(values) - special().digamma(freedom / 2) + np.log(freedom / 2)
    expected = float(np.mean(special().polygamma(1, freedom / 2)))
    excess = float(np.var(logs, ddof=1)) - expected
    # Standard error of a variance whose fourth cumulant is that of the logarithm of a chi-square.
    chance = math.sqrt((float(np.mean(special().polygamma(3, freedom / 2))) + 2 * expected**2) / len(values))
    if excess <= max(2 * chance, NEGLIGIBLE):
        return math.inf, pooled
    prior_degrees = 2 * _inverse_trigamma(excess)
    centre = float(np.mean(logs) + special().digamma(prior_degrees / 2) - math.log(prior_degrees / 2))
    return prior_degrees, math.exp(centre)


def moderated(observed: Numbers, degrees: Numbers, prior: tuple[float, float], total: float) -> tuple[Numbers, Numbers]:
    """Return variances drawn towards the prior, and their degrees of freedom, at most ``total`` (those of the whole fleet)."""
    prior_degrees, prior_variance = prior
    own = np.where((degrees > 0) & np.isfinite(observed), observed, 0.0)
    if math.isnan(prior_variance):
        return np.where(degrees > 0, own, np.nan), degrees.astype(float)
    if math.isinf(prior_degrees):
        return np.full(own.shape, prior_variance), np.full(own.shape, max(total, 1.0))
    shrunk = (prior_degrees * prior_variance + degrees * own) / (prior_degrees + degrees)
    return shrunk, np.minimum(prior_degrees + degrees, max(total, 1.0))


def _inverse_trigamma(value: float) -> float:
    """Return y with trigamma(y) = value, by Newton's method on its reciprocal, which is nearly straight."""
    if value > 1e7:
        return 1 / math.sqrt(value)
    if value < 1e-6:
        return 1 / value
    y = 0.5 + 1 / value
    for _ in range(50):
        trigamma = float(special().polygamma(1, y))
        step = trigamma * (1 - trigamma / value) / float(special().polygamma(2, y))
        y += step
        if -step / y < 1e-8:
            break
    return y


_SPECIAL, _TURN = "scipy.special", RLock()


@cache
def special() -> Any:
    """Return SciPy's special functions, such as ``stdtr``, under their names there.

    They are in two modules; the package around them brings in all of NumPy for the arrays of other libraries, which would be 24 MB
    and 0.1 s of every evaluation. Where a release keeps them elsewhere, it is the package.
    """
    with _TURN:
        if _SPECIAL not in sys.modules:
            import scipy

            around = sys.modules[_SPECIAL] = ModuleType(_SPECIAL)
            around.__path__ = [f"{folder}/special" for folder in scipy.__path__]
            try:
                basic, compiled = (vars(import_module(f"{_SPECIAL}.{name}")) for name in ("_basic", "_ufuncs"))
                return SimpleNamespace(**basic | compiled)
            except ImportError:
                pass
            finally:
                # Who asks for the package gets the whole of it.
                del sys.modules[_SPECIAL]
        return import_module(_SPECIAL)
