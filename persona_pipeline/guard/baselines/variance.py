"""How much scores vary, and why: from judgment to judgment, and from window to window. Everything works on whole arrays.

Scores and standard deviations are in points (0-9), variances in points squared. NaN stands for what is not known.
"""

import math
import sys
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from threading import RLock
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

# A verdict this far from the median of its repeats is an outlier: a judge of sd 1.5 gives one in a hundred by chance.
OUTLIER_DISTANCE = 4.0
# A median is steadier than a mean where there are outliers, and varies pi/2 times as much where there are none.
MEDIAN_FACTOR = 1.57
MEDIAN_FROM = 3
# A score is a whole number: rounding alone spreads it by the variance of a uniform distribution of width 1.
ROUNDING_VARIANCE = 1 / 12
# Variances of a fleet that differ by less than a factor of 1.6 (as the variance of their logarithms) are taken for equal.
NEGLIGIBLE = 0.2


def medians(values: Numbers) -> Numbers:
    """Return the median of the known values along the last axis, NaN where there is none."""
    counts = np.isfinite(values).sum(axis=-1)
    ordered = np.sort(values, axis=-1)  # NaN goes last
    last = values.shape[-1] - 1
    lower = np.take_along_axis(ordered, np.clip((counts - 1) // 2, 0, last)[..., None], axis=-1)[..., 0]
    upper = np.take_along_axis(ordered, np.clip(counts // 2, 0, last)[..., None], axis=-1)[..., 0]
    return np.where(counts > 0, (lower + upper) / 2, np.nan)


def means(values: Numbers) -> Numbers:
    """Return the mean of the known values along the last axis, NaN where there is none."""
    counts = np.isfinite(values).sum(axis=-1)
    return np.where(counts > 0, np.nansum(values, axis=-1) / np.maximum(counts, 1), np.nan)


def variances(values: Numbers) -> Numbers:
    """Return the variance (n - 1) of the known values along the last axis, NaN below two."""
    counts = np.isfinite(values).sum(axis=-1)
    squares = np.nansum((values - means(values)[..., None]) ** 2, axis=-1)
    return np.where(counts > 1, squares / np.maximum(counts - 1, 1), np.nan)


def lower_variances(values: Numbers) -> Numbers:
    """Return twice the part of ``variances`` that lies below the mean: the same, unless values fall further than they rise."""
    counts = np.isfinite(values).sum(axis=-1)
    below = np.minimum(values - means(values)[..., None], 0.0)
    return np.where(counts > 1, 2 * np.nansum(below**2, axis=-1) / np.maximum(counts - 1, 1), np.nan)


@dataclass(frozen=True)
class Repeats:
    """What repeated judgments of the same thing say of the judge.

    ``squares``, ``degrees``: sum of squares around their mean and its degrees of freedom, outlier verdicts left out.
    ``outliers``: how many those are; below ``MEDIAN_FROM`` judgments none can be told. ``all_squares``, ``all_degrees``: the same
    with them.
    """

    squares: Numbers
    degrees: Numbers
    outliers: Numbers
    all_squares: Numbers
    all_degrees: Numbers


def repeats(samples: Numbers) -> Repeats:
    """Return what repeated judgments of the same thing (last axis) say of the judge."""
    counts = np.isfinite(samples).sum(axis=-1)
    away = np.abs(samples - medians(samples)[..., None]) >= OUTLIER_DISTANCE
    away &= (counts >= MEDIAN_FROM)[..., None]
    squares, degrees = _squares(np.where(away, np.nan, samples))
    return Repeats(squares, degrees, away.sum(axis=-1).astype(float), *_squares(samples))


def _squares(samples: Numbers) -> tuple[Numbers, Numbers]:
    degrees = np.maximum(np.isfinite(samples).sum(axis=-1) - 1, 0).astype(float)
    return np.where(degrees > 0, variances(samples) * degrees, 0.0), degrees


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


def satterthwaite(parts: list[tuple[Numbers, Numbers]]) -> Numbers:
    """Return the degrees of freedom of a sum of variances, each given with its own (Satterthwaite, 1946)."""
    total = sum((part for part, _ in parts), np.zeros_like(parts[0][0]))
    squares = sum((part**2 / np.maximum(degrees, 1.0) for part, degrees in parts), np.zeros_like(total))
    known = np.isfinite(squares) & (squares > 0)
    return np.where(known, total**2, 1.0) / np.where(known, squares, 1.0)


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


Indices = NDArray[np.intp]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Level:
    """One side of a comparison, a row a claim (or a dimension).

    Attributes:
        mean: mean over windows of the window's mean score.
        median: mean over windows of the window's median; NaN where a window has fewer than three judgments, on average.
        windows: how many (0: there is no score).
        between, between_medians: variance of the windows' means, and of their medians; NaN below two windows.
        below, below_medians: the same from what lies below their mean, see ``lower_variances``.
        count: judgments in all windows together.
        judge: what repeated judgments say, summed over windows; zeros for dimensions.
    """

    mean: Numbers
    median: Numbers
    windows: Numbers
    between: Numbers
    between_medians: Numbers
    below: Numbers
    below_medians: Numbers
    count: Numbers
    judge: Repeats

    @classmethod
    def over_windows(cls, window_means: Numbers, window_medians: Numbers, counts: Numbers, judge: Repeats) -> "Level":
        """Return the level of rows from their windows.

        ``window_means``, ``window_medians``: rows x windows, NaN where a row has no score in a window. ``counts``: judgments,
        rows x windows. ``judge``: what ``repeats`` says of each row, summed over its windows.
        """
        windows = np.isfinite(window_means).sum(axis=-1).astype(float)
        count = np.where(np.isfinite(window_means), counts, 0.0).sum(axis=-1)
        often = count >= (MEDIAN_FROM - 0.5) * np.maximum(windows, 1)
        often &= np.isfinite(window_medians).sum(axis=-1) == windows
        return cls(
            mean=means(window_means),
            median=np.where(often, means(window_medians), np.nan),
            windows=windows,
            between=variances(window_means),
            between_medians=np.where(often, variances(window_medians), np.nan),
            below=lower_variances(window_means),
            below_medians=np.where(often, lower_variances(window_medians), np.nan),
            count=count,
            judge=judge,
        )


@dataclass(frozen=True)
class Fleet:
    """Every claim and dimension of the agents that are watched. Agents that are not in the run have no ``after``.

    Attributes:
        claims_before, claims_now: a row a claim.
        dimensions_before, dimensions_now: a row a dimension of an agent.
        dimension_of: the dimension's row of each claim.
        agent_of: the agent of each dimension's row.
        weight, weight_before: of each claim in its dimension's score now and in the baseline, 0-1; they sum to the judged
            share of the score.
        same: whether both sides of a dimension judged the same messages.
        week: how many weeks after the baseline's newest window a dimension's window ends; 1 is the first.
    """

    claims_before: Level
    claims_now: Level
    dimensions_before: Level
    dimensions_now: Level
    dimension_of: Indices
    agent_of: Indices
    weight: Numbers
    weight_before: Numbers
    same: NDArray[np.bool_]
    week: Numbers


def centre(level: Level, robust: Mask) -> tuple[Numbers, Numbers]:
    """Return each row's score, of medians where ``robust`` says so and they are known, and how much more a median varies."""
    used = robust & np.isfinite(level.median)
    return np.where(used, level.median, level.mean), np.where(used, MEDIAN_FACTOR, 1.0)


def by_group(groups: Indices, values: Numbers, count: int = 0) -> Numbers:
    """Return the sum of the values of each group."""
    return np.bincount(groups, values, minlength=count).astype(np.float64)


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
