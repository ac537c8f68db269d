"""The score people would give, from a judge's scores of everything and people's of some of it."""

import math
from collections.abc import Sequence

import numpy as np

from persona_pipeline.baselines.level import Indices, Mask
from persona_pipeline.baselines.variance import Numbers
from persona_pipeline.calibration.measures import Measure, student_quantile

# Below this many labels the intervals cover less than they say: .91 at 25.
FEWEST_LABELS = 50
HIGHEST = 9.0
# Labels of a stratum that its spread can be told from.
_FEWEST_IN_STRATUM = 5
MOST_STRATA = 4


def peoples_mean(judge: Sequence[float], labels: Sequence[float | None], *, strata: int = MOST_STRATA) -> Measure:
    """Return the mean people would give to all of a judge's judgments: prediction-powered inference, for a finite population.

    Labels are random within strata of the judge's score; strata may be labelled unequally. Each stratum's share of the whole is
    known, so the mean of the labels is weighted by it and moved along the regression of labels on judge by what is left of the
    difference between labelled and all. That is the combined regression estimator of stratified sampling (Cochran, Sampling
    Techniques, 1977, 7.10), and without strata PPI++ (Angelopoulos, Duchi, Zrnic, 2023, arXiv 2311.01453) with its power tuning.
    What is labelled is known and adds no error (the finite-population factor).

    Args:
        judge: the judge's score of every judgment.
        labels: what people gave it; None: not labelled.
        strata: of the judge's score, at most so many.
    """
    x = np.asarray(judge, dtype=np.float64)
    y = np.asarray([math.nan if label is None else label for label in labels], dtype=np.float64)
    known = np.isfinite(y)
    count = int(known.sum())
    if count < 4:
        return Measure(n=count)
    stratum = _strata(x, known, strata)
    whole = np.bincount(stratum).astype(np.float64)
    sampled = np.bincount(stratum[known], minlength=len(whole)).astype(np.float64)
    weights = (whole / sampled)[stratum[known]] / len(x)
    own, given = x[known], y[known]
    middle_x, middle_y = float(weights @ own), float(weights @ given)
    spread = float(weights @ (own - middle_x) ** 2)
    slope = float(weights @ ((own - middle_x) * (given - middle_y))) / spread if spread > 1e-12 else 0.0
    residuals = given - middle_y - slope * (own - middle_x)
    # Within its stratum; the slope takes a degree of freedom.
    means = np.bincount(stratum[known], residuals, len(whole)) / sampled
    squares = np.bincount(stratum[known], (residuals - means[stratum[known]]) ** 2, len(whole))
    degrees = count - len(whole) - (spread > 1e-12)
    variances = squares / (sampled - 1) * (count - len(whole)) / max(degrees, 1)
    parts = (whole / len(x)) ** 2 * (1 - sampled / whole) / sampled * variances
    ahead = float(x.mean()) - middle_x
    # The slope is not known either (Cochran 7.8), and strata have few labels each (Satterthwaite, 1946).
    error = float(parts.sum()) * (1 + (ahead**2 / spread if spread > 1e-12 else 0.0))
    trusted = float(parts.sum()) ** 2 / max(float((parts**2 / (sampled - 1)).sum()), 1e-18)
    half = math.sqrt(error) * student_quantile(max(min(trusted, degrees), 1))
    return bounded(middle_y + slope * ahead, half, count)


def bounded(value: float, half: float, n: int) -> Measure:
    """Return a mean of scores with its interval, within 0-9."""
    value, low, high = (min(max(number, 0.0), HIGHEST) for number in (value, value - half, value + half))
    return Measure(value=value, low=low, high=high, n=n)


def _strata(x: Numbers, known: Mask, most: int) -> Indices:
    """Return the stratum of each judgment by its score: each with enough labels to tell its spread."""
    edges: list[float] = []
    ordered = np.sort(x[known])
    wanted = min(most, len(ordered) // _FEWEST_IN_STRATUM)
    for part in range(1, wanted):
        edge = float(ordered[len(ordered) * part // wanted])
        below = int((ordered < edge).sum()) - int((ordered < edges[-1]).sum() if edges else 0)
        if below >= _FEWEST_IN_STRATUM and int((ordered >= edge).sum()) >= _FEWEST_IN_STRATUM:
            edges.append(edge)
    return np.searchsorted(np.asarray(edges), x, side="right")
