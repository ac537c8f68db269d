"""How well two lists of scores agree (rank correlation, weighted kappa, bias, each with an interval), and what people would give.

Scores are 0-9; lists are paired by place. What cannot be measured has no value, and says so by None.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from persona_pipeline.guard.baselines.models import Measure
from persona_pipeline.guard.baselines.variance import Indices, Mask, Numbers

# Two-sided 95 %.
TAIL = 0.025
_HIGHEST = 1 - 1e-12


def spearman(a: Sequence[float], b: Sequence[float], *, n: int | None = None) -> Measure:
    """Return the rank correlation (-1 to 1); of lists of which one is all alike there is none.

    The interval is by Fisher's z with the variance of Bonett and Wright (Psychometrika 65, 2000), (1 + r²/2) / (n - 3).

    Args:
        n: how many of the pairs are independent; None: all.
    """
    from scipy.stats import norm, spearmanr

    count = len(a) if n is None else n
    if count < 4 or len(set(a)) < 2 or len(set(b)) < 2:
        return Measure(n=count)
    r = float(np.asarray(spearmanr(a, b))[0])
    half = float(norm.isf(TAIL)) * math.sqrt((1 + r * r / 2) / (count - 3))
    z = math.atanh(max(-_HIGHEST, min(_HIGHEST, r)))
    return Measure(value=r, low=math.tanh(z - half), high=math.tanh(z + half), n=count)


def weighted_kappa(a: Sequence[float], b: Sequence[float]) -> Measure:
    """Return Cohen's kappa with quadratic weights (1: the same scores; 0: no nearer than chance; below: farther).

    For numbers it is Lin's concordance coefficient (Biometrics 45, 1989), so means of several people need no categories. The
    interval is the jackknife's on Fisher's z (Efron and Stein, 1981).
    """
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    count = len(first)
    whole = float(_concordance(first, second)[0]) if count else math.nan
    if count < 4 or not math.isfinite(whole):
        return Measure(n=count)
    left_out = np.nan_to_num(_concordance(first, second, each_left_out=True), nan=whole).clip(-_HIGHEST, _HIGHEST)
    z = math.atanh(max(-_HIGHEST, min(_HIGHEST, whole)))
    deviations = np.arctanh(left_out) - np.arctanh(left_out).mean()
    half = student_quantile(count - 1) * math.sqrt((count - 1) / count * float(deviations @ deviations))
    return Measure(value=whole, low=math.tanh(z - half), high=math.tanh(z + half), n=count)


def bias(judge: Sequence[float], people: Sequence[float]) -> Measure:
    """Return the mean of judge - people in points, with Student's interval: above zero the judge is milder than people."""
    differences = np.asarray(judge, dtype=np.float64) - np.asarray(people, dtype=np.float64)
    count = len(differences)
    if count < 2:
        return Measure(n=count)
    mean = float(differences.mean())
    half = student_quantile(count - 1) * float(differences.std(ddof=1)) / math.sqrt(count)
    return Measure(value=mean, low=mean - half, high=mean + half, n=count)


def between_people(labels: Sequence[Sequence[float]]) -> tuple[Measure, Measure]:
    """Return how well people agree among themselves, as rank correlation and weighted kappa: the ceiling of any judge.

    Each person's label stands against the mean of the others' on the same judgment, as a judge's stands against people's.

    Args:
        labels: people's scores of each judgment; those with one label say nothing here.
    """
    several = [values for values in labels if len(values) > 1]
    one: list[float] = []
    others: list[float] = []
    for values in several:
        one += values
        others += [(sum(values) - value) / (len(values) - 1) for value in values]
    kappa = weighted_kappa(one, others)
    if kappa.value is not None:
        # Two people's labels of a judgment make two pairs, which are one observation.
        kappa = _widened(kappa, len(one), len(several))
    return spearman(one, others, n=len(several)), kappa.model_copy(update={"n": len(several)})


def labels_to_halve(n: int, population: int | None = None) -> int:
    """Return how many labels more halve an interval that rests on ``n``: three times as many, or fewer where the whole is finite.

    Args:
        population: of how many judgments the mean is wanted (Cochran, Sampling Techniques, 1977, 2.8); None: of any there may be.
    """
    if population is None:
        return 3 * n
    if n >= population:
        return 0
    needed = 1 / ((1 / n - 1 / population) / 4 + 1 / population)
    return min(population, math.ceil(needed - 1e-9)) - n


def _concordance(a: Numbers, b: Numbers, *, each_left_out: bool = False) -> Numbers:
    """Return the concordance of all pairs, or as many as there are with each pair left out in turn."""
    # NaN where all scores are one.
    n = len(a) - each_left_out
    products = (a, b, a * a, b * b, a * b)
    sums = [values.sum() - values if each_left_out else values.sum(keepdims=True) for values in products]
    mean_a, mean_b = sums[0] / n, sums[1] / n
    spread = sums[2] / n - mean_a**2 + sums[3] / n - mean_b**2 + (mean_a - mean_b) ** 2
    with np.errstate(invalid="ignore", divide="ignore"):
        return 2 * (sums[4] / n - mean_a * mean_b) / np.where(spread > 1e-12, spread, np.nan)


def _widened(measure: Measure, pairs: int, independent: int) -> Measure:
    if measure.value is None or measure.low is None or measure.high is None or independent < 4:
        return Measure(n=independent)
    wider = math.sqrt(pairs / independent)
    z, low, high = (math.atanh(max(-_HIGHEST, min(_HIGHEST, v))) for v in (measure.value, measure.low, measure.high))
    return Measure(
        value=measure.value, low=math.tanh(z - wider * (z - low)), high=math.tanh(z + wider * (high - z)), n=independent
    )


def student_quantile(degrees: float) -> float:
    """Return the half width, in standard errors, of Student's 95 % interval."""
    from scipy.special import stdtrit

    return -float(stdtrit(degrees, TAIL))


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


# Spread of how a judge is biased from agent to agent, as a share of how it errs on one judgment: what is believed before labels
# speak (half-normal, Gelman 2006). Agents of one cast are judged by the same claims, so it is seldom above one.
_PRIOR_SHARE = 1.0
_SHARES = np.linspace(0.0, 2.4, 49)


@dataclass(frozen=True)
class PeoplesScores:
    """People's scores regressed on the judge's, with an effect of the agent.

    score of people = level + slope x judge + agent + rest: the unit-level small-area model (Battese, Harter and Fuller, JASA 83,
    1988), averaged over how much agents may differ, weighted by how well each fits. Few labels of an agent move its own effect
    little, and its interval says what is not known of it.

    Attributes:
        middle: the judge's mean score of what is labelled.
        degrees: of freedom of the fit.
    """

    middle: float
    degrees: int
    weights: Numbers
    coefficients: Numbers
    covariances: Numbers
    noise: Numbers
    groups: dict[Hashable, tuple[int, Numbers, float]]

    @classmethod
    def learnt(cls, judge: Sequence[float], people: Sequence[float], agents: Sequence[Hashable]) -> "PeoplesScores":
        """Learn from labelled judgments: what the judge gave, what people gave, whose they are."""
        x, y = np.asarray(judge, dtype=np.float64), np.asarray(people, dtype=np.float64)
        middle = float(x.mean())
        columns = [np.ones_like(x)] if x.min() == x.max() else [np.ones_like(x), x - middle]
        design = np.stack(columns, axis=1)
        degrees = max(len(y) - design.shape[1], 1)
        order = {agent: place for place, agent in enumerate(dict.fromkeys(agents))}
        at = np.asarray([order[agent] for agent in agents])
        counts = np.bincount(at).astype(np.float64)
        sums = np.stack([np.bincount(at, column) for column in columns], axis=1).astype(np.float64)
        totals = np.bincount(at, y).astype(np.float64)
        fits = [_fit(design, y, counts, sums, totals, share**2) for share in _SHARES]
        noise = np.asarray([max(fit.squares, 1e-9) / degrees for fit in fits])
        logs = np.asarray(
            [-0.5 * (fit.log_determinants + degrees * math.log(n)) for fit, n in zip(fits, noise, strict=True)]
        )
        logs -= 0.5 * (_SHARES / _PRIOR_SHARE) ** 2
        weights = np.exp(logs - logs.max())
        return cls(
            middle,
            degrees,
            weights / weights.sum(),
            np.stack([fit.coefficients for fit in fits]),
            np.stack([fit.covariance for fit in fits]),
            noise,
            {agent: (int(counts[p]), sums[p], float(totals[p])) for agent, p in order.items()},
        )

    def mean(
        self,
        agent: Hashable,
        judge: Sequence[float],
        labels: Sequence[float | None] | None = None,
        weights: Sequence[float] | None = None,
    ) -> Measure:
        """Return the weighted mean that people would give judgments of an agent; those that are labelled are known.

        Args:
            labels: people's scores of them, None: not labelled.
            weights: of the judgments; None: all the same.
        """
        x = np.asarray(judge, dtype=np.float64)
        share = np.ones_like(x) if weights is None else np.asarray(weights, dtype=np.float64)
        share = share / share.sum()
        given = np.asarray([math.nan if label is None else label for label in labels or [None] * len(x)], dtype=float)
        known = np.isfinite(given)
        told = float(share[known] @ given[known])
        rest, left = share[~known], float(share[~known].sum())
        wanted = np.asarray([left, float(rest @ (x[~known] - self.middle))])[: self.coefficients.shape[1]]
        count, sums, total = self.groups.get(agent, (0, np.zeros_like(wanted), 0.0))
        ratio = _SHARES**2
        shrunk = ratio / (1 + ratio * count)
        effect = shrunk * (total - self.coefficients @ sums)
        means = told + self.coefficients @ wanted + left * effect
        lever = wanted - left * shrunk[:, None] * sums
        error = np.einsum("si,sij,sj->s", lever, self.covariances, lever)
        error = error + left**2 * shrunk + float(rest @ rest)
        return self._mixed(means, np.sqrt(self.noise * error))

    def _mixed(self, means: Numbers, scales: Numbers) -> Measure:
        """Return mean and interval of the mixture of Student's distributions."""
        from scipy.special import stdtr

        n = sum(count for count, _, _ in self.groups.values())
        value = float(self.weights @ means)
        widest = float(scales.max())
        if widest < 1e-9:
            return Measure(value=_within(value), low=_within(value), high=_within(value), n=n)

        def below(at: float) -> float:
            return float(self.weights @ stdtr(self.degrees, (at - means) / np.maximum(scales, 1e-12)))

        reach = 40 * widest
        low, high = (_root(lambda at, p=p: below(at) - p, value - reach, value + reach) for p in (TAIL, 1 - TAIL))
        return Measure(value=_within(value), low=_within(low), high=_within(high), n=n)


@dataclass(frozen=True)
class _Fit:
    coefficients: Numbers
    covariance: Numbers
    squares: float
    log_determinants: float


def _fit(design: Numbers, y: Numbers, counts: Numbers, sums: Numbers, totals: Numbers, ratio: float) -> _Fit:
    """Fit by generalised least squares, agents' variance being ``ratio`` times that of the rest."""
    factor = ratio / (1 + ratio * counts)
    information = design.T @ design - (sums * factor[:, None]).T @ sums
    covariance = np.linalg.inv(information).astype(np.float64)
    coefficients = covariance @ (design.T @ y - sums.T @ (factor * totals))
    residuals = y - design @ coefficients
    left = totals - sums @ coefficients
    squares = float(residuals @ residuals - factor @ left**2)
    determinants = float(np.log1p(ratio * counts).sum() + np.linalg.slogdet(information)[1])
    return _Fit(coefficients, covariance, squares, determinants)


def _root(rising: Callable[[float], float], low: float, high: float) -> float:
    """Return where a rising function is zero, to a ten-thousandth of a point."""
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (low, middle) if rising(middle) > 0 else (middle, high)
    return (low + high) / 2


def _within(value: float) -> float:
    return min(max(value, 0.0), HIGHEST)
