"""The score that people would give, from a judge's scores and some labels: of all that was judged, and of one agent's window."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from persona_pipeline.guard.baselines.models import USUAL_ERROR, Measure
from persona_pipeline.guard.baselines.variance import Indices, Mask, Numbers, special
from persona_pipeline.guard.calibration.measures import HIGHEST, TAIL, student_quantile, within_scale

# Labels of a stratum that its spread can be told from.
_FEWEST_IN_STRATUM = 5
MOST_STRATA = 4
# A label that makes up so much of the judge's spread decides a slope alone.
_MOST_OF_SPREAD = 0.2
# What the answers of a stratum vary is believed like one more answer, as all of them together do.
_MORE_ANSWERS = 1.0


def peoples_mean(judge: Sequence[float], labels: Sequence[float | None], *, strata: int = MOST_STRATA) -> Measure:
    """Return the mean people would give to all of a judge's judgments: prediction-powered inference, for a finite population.

    Labels are random within strata of the judge's score; strata may be labelled unequally. Each stratum's share of the whole is
    known, so the mean of the labels is weighted by it and moved along the regression of labels on judge by what is left of the
    difference between labelled and all. That is the combined regression estimator of stratified sampling (Cochran, Sampling
    Techniques, 1977, 7.10), and without strata PPI++ (Angelopoulos, Duchi, Zrnic, 2023, arXiv 2311.01453) with its power tuning.
    What is labelled is known and adds no error (the finite-population factor).

    A stratum's interval is that of a share (Jeffreys' by the beta distribution; Brown, Cai and DasGupta, Statistical Science 16,
    2001) of as many yes/no answers as vary like its labels, and all of them are put together by what each leaves open below and
    above (MOVER: Zou and Donner, Statistics in Medicine 27, 2008): near 0 and 9 an interval has no two equal sides. ``judge``:
    the judge's score of every judgment. ``labels``: what people gave it, 0-9; None: not labelled. ``strata``: of the judge's
    score, at most so many.
    """
    x = np.asarray(judge, dtype=np.float64)
    y = np.asarray([math.nan if label is None else label for label in labels], dtype=np.float64) / HIGHEST
    known = np.isfinite(y)
    count = int(known.sum())
    if count == len(x) > 0:
        value = float(y.mean()) * HIGHEST
        return Measure(value=value, low=value, high=value, n=count)
    if count < 4:
        return Measure(n=count)
    stratum = _strata(x, known, strata)
    whole = np.bincount(stratum).astype(np.float64)
    sampled = np.bincount(stratum[known], minlength=len(whole)).astype(np.float64)
    own, given, at = x[known], y[known], stratum[known]
    weights = (whole / sampled)[at] / len(x)
    middle_x, middle_y = float(weights @ own), float(weights @ given)
    levers = weights * (own - middle_x) ** 2
    spread = float(levers.sum())
    leans = spread > 1e-12 and float(levers.max()) < _MOST_OF_SPREAD * spread
    slope = float(weights @ ((own - middle_x) * (given - middle_y))) / spread if leans else 0.0
    ahead = float(x.mean()) - middle_x if leans else 0.0
    residuals = given - slope * (own - middle_x)
    residuals -= (np.bincount(at, residuals, len(whole)) / sampled)[at]
    # Within its stratum; the slope takes a degree of freedom.
    degrees = max(count - len(whole) - leans, 1)
    squares = np.bincount(at, residuals**2, len(whole)) * (count - len(whole)) / degrees
    shares = np.bincount(at, given, len(whole)) / sampled
    answers, trusted = _answers(shares, squares, sampled, whole)
    low, high = _share_limits(shares, answers, student_quantile(min(trusted, degrees)))
    # The slope is not known either (Cochran 7.8).
    wider = math.sqrt(1 + ahead**2 / spread) if leans else 1.0
    value = middle_y + slope * ahead
    below, above = (wider * math.hypot(*(whole / len(x) * (shares - limit))) for limit in (low, high))
    value, low, high = (min(max(number, 0.0), 1.0) * HIGHEST for number in (value, value - below, value + above))
    return Measure(value=value, low=low, high=high, n=count)


def _answers(shares: Numbers, squares: Numbers, sampled: Numbers, whole: Numbers) -> tuple[Numbers, float]:
    """Return how many yes/no answers would vary like each stratum's labels, and the degrees of freedom (Satterthwaite, 1946)."""
    # A stratum whose labels are all alike varies as all others do.
    nudged = (shares * sampled + 1) / (sampled + 2)
    most, prior = shares * (1 - shares), nudged * (1 - nudged)
    all_of_it = float(sampled @ most)
    usual = min(max(float(squares.sum()) / all_of_it, 0.02), 1.0) if all_of_it > 1e-9 else 1.0
    ratios = (squares + _MORE_ANSWERS * usual * prior) / ((sampled - 1) * most + _MORE_ANSWERS * prior)
    answers = sampled / np.maximum(1 - sampled / whole, 1e-12) / ratios
    parts = (whole / whole.sum()) ** 2 * np.maximum(most, prior) / answers
    trusted = float(parts.sum()) ** 2 / max(float((parts**2 / np.maximum(sampled - 1, 1)).sum()), 1e-30)
    return answers, max(trusted, 2.0)


def _share_limits(shares: Numbers, answers: Numbers, quantile: float) -> tuple[Numbers, Numbers]:
    tail, yes, no = float(special().ndtr(-quantile)), shares * answers + 0.5, (1 - shares) * answers + 0.5
    low = np.where(shares <= 0, 0.0, np.minimum(special().betaincinv(yes, no, tail), shares))
    return low, np.where(shares >= 1, 1.0, np.maximum(special().betaincinv(yes, no, 1 - tail), shares))


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


@dataclass(frozen=True)
class PersonsError:
    """By how much one person's score of one judgment errs: ``variance`` in points squared, ``spread``: how unsure that is."""

    variance: float
    spread: float

    @classmethod
    def learnt(cls, labels: Sequence[Sequence[float]]) -> "PersonsError":
        """Learn from judgments that several people labelled; where there are none, it is what is said of any person."""
        several = [np.asarray(scores, dtype=np.float64) for scores in labels if len(scores) > 1]
        squares = sum(float(((scores - scores.mean()) ** 2).sum()) for scores in several)
        degrees = _USUAL_DEGREES + sum(len(scores) - 1 for scores in several)
        variance = (_USUAL_DEGREES * USUAL_ERROR**2 + squares) / degrees
        return cls(variance, variance * math.sqrt(2 / degrees))


# How many judgments that two people labelled it is worth what is taken for granted of one person's error.
_USUAL_DEGREES = 5.0
# People's scores differ in truth by this part of what they differ at least.
_LEAST_TRUE = 0.3
# Standard deviation of the judge's slope beyond what is labelled, as a share of it.
_BEYOND = 0.35
# Spread of how a judge is biased from agent to agent, as a share of how it errs on one judgment: what is believed before labels
# speak (half-normal of scale 1, Gelman 2006). Agents of one cast are judged by the same claims, so it is seldom above one.
_SHARES = np.linspace(0.0, 2.4, 17)
# Scores that are tried; beyond the scale too, as a judge errs at its ends.
_TRIED = np.linspace(-4.5, 13.5, 361)
# A score that fewer labels are as far out as lies beyond what is labelled.
FEWEST_AS_FAR = 5


@dataclass(frozen=True)
class PeoplesScores:
    """A judge's scores regressed on people's, with an effect of the agent, and read backwards.

    judge = level + slope x people + agent + rest: what the judge makes of what is there, whatever that is. Regressing people on
    the judge draws every score to those that were labelled, and a fall that the labels do not hold is hidden (calibration by
    inversion: Eisenhart, Annals of Mathematical Statistics 10, 1939; Fieller, JRSS B 16, 1954). People err too, which flattens
    the slope: their scores are drawn together by their reliability first (regression calibration: Carroll et al., Measurement
    Error in Nonlinear Models, 2006, 4). Averaged over how much agents may differ (Battese, Harter and Fuller, JASA 83, 1988),
    each weighted by how well it fits. Few labels of an agent move its own effect little, and its interval says what is not known
    of it. ``middle``: people's mean score of what is labelled; ``people``: their scores, sorted. ``degrees``: of freedom of the
    fit. ``weights``, ``coefficients``, ``covariances``, ``noise``, ``own``: of each fit; ``own``: variance of the judge's error on
    one judgment. ``unsure``: standard deviation of the slope that comes from not knowing people's error, as a share of it.
    ``groups``: labels of each agent: number, sums of the design, and of what the judge gave.
    """

    middle: float
    people: Numbers
    error: PersonsError
    degrees: int
    weights: Numbers
    coefficients: Numbers
    covariances: Numbers
    noise: Numbers
    own: Numbers
    unsure: float
    groups: dict[Hashable, tuple[int, Numbers, float]]

    @classmethod
    def learnt(
        cls,
        judge: Sequence[float],
        people: Sequence[float],
        agents: Sequence[Hashable],
        raters: Sequence[int] | None = None,
        error: PersonsError | None = None,
    ) -> "PeoplesScores":
        """Learn from labelled judgments: what the judge gave, people's mean, whose they are, and how many people gave it."""
        error = error or PersonsError.learnt(())
        y, given = np.asarray(judge, dtype=np.float64), np.asarray(people, dtype=np.float64)
        count = np.ones_like(y) if raters is None else np.asarray(raters, dtype=np.float64)
        middle, differ = float(given.mean()), float(given.var(ddof=1))
        errs = error.variance / count
        true = max(differ - float(errs.mean()), _LEAST_TRUE * differ, 1e-9)
        reliable = true / (true + errs)
        design = np.stack([np.ones_like(y), reliable * (given - middle)], axis=1)
        degrees = max(len(y) - 2, 1)
        order = {agent: place for place, agent in enumerate(dict.fromkeys(agents))}
        at = np.asarray([order[agent] for agent in agents])
        counts = np.bincount(at).astype(np.float64)
        sums = np.stack([np.bincount(at, column) for column in design.T], axis=1).astype(np.float64)
        totals = np.bincount(at, y).astype(np.float64)
        coefficients, covariances, squares, determinants = _fits(design, y, counts, sums, totals)
        noise = np.maximum(squares, 1e-9) / degrees
        logs = -0.5 * (determinants + degrees * np.log(noise) + _SHARES**2)
        weights = np.exp(logs - logs.max())
        # A quarter of what people's errors add to the rest is taken off: more, and one careful person's judge is trusted too far.
        peoples = coefficients[:, 1] ** 2 * float((reliable * errs).mean())
        return cls(
            middle,
            np.sort(given),
            error,
            degrees,
            weights / weights.sum(),
            coefficients,
            covariances,
            noise,
            np.maximum(noise - peoples / 4, _LEAST_TRUE * noise),
            error.spread * float((1 / count).mean()) / true,
            {agent: (int(counts[p]), sums[p], float(totals[p])) for agent, p in order.items()},
        )

    @property
    def slope(self) -> Measure:
        """How many points the judge moves where people move one."""
        value = float(self.weights @ self.coefficients[:, 1])
        variance = float(self.weights @ (self.noise * self.covariances[:, 1, 1])) + (value * self.unsure) ** 2
        half = student_quantile(self.degrees) * math.sqrt(variance)
        return Measure(value=value, low=value - half, high=value + half, n=len(self.people))

    def as_far(self, score: float) -> int | None:
        """Return how many labels are as low as a score (as high, where it is above their mean); None: enough."""
        found = int((self.people <= score).sum() if score < self.middle else (self.people >= score).sum())
        return found if found < FEWEST_AS_FAR else None

    def mean(
        self,
        agent: Hashable,
        judge: Sequence[float],
        labels: Sequence[float | None] | None = None,
        weights: Sequence[float] | None = None,
        raters: Sequence[int] | None = None,
    ) -> Measure:
        """Return the weighted mean that people would give judgments of an agent; a label is known but for its people's error.

        ``labels``: people's scores of them, None: not labelled. ``raters``: how many people gave each. ``weights``: of the
        judgments; None: all the same.
        """
        x = np.asarray(judge, dtype=np.float64)
        share = np.ones_like(x) if weights is None else np.asarray(weights, dtype=np.float64)
        share = share / share.sum()
        given = np.asarray([math.nan if label is None else label for label in labels or [None] * len(x)], dtype=float)
        known = np.isfinite(given)
        people = np.ones_like(x) if raters is None else np.maximum(np.asarray(raters, dtype=np.float64), 1)
        told, left = float(share[known] @ given[known]), float(share[~known].sum())
        half = student_quantile(self.degrees) * _blur(share[known], people[known], self.error)
        value = low = high = 0.0
        if left > 1e-9:
            rest = share[~known] / left
            value, low, high = self._inverted(agent, float(rest @ x[~known]), float(rest @ rest))
        below, above = math.hypot(half, left * (value - low)), math.hypot(half, left * (high - value))
        value = told + left * value
        return Measure(
            value=within_scale(value),
            low=within_scale(value - below),
            high=within_scale(value + above),
            n=len(self.people),
        )

    def _inverted(self, agent: Hashable, given: float, few: float) -> tuple[float, float, float]:
        """Return what people would give where the judge gave this mean, and its interval; ``few``: the sum of squared weights."""
        tried = _TRIED - self.middle
        count, sums, total = self.groups.get(agent, (0, np.zeros(2), 0.0))
        shrunk = _SHARES**2 / (1 + _SHARES**2 * count)
        effect = shrunk * (total - self.coefficients @ sums)
        levels = np.stack([np.ones_like(tried), tried], axis=1)
        lever = levels[None] - (shrunk[:, None] * sums)[:, None, :]
        error = np.einsum("sti,sij,stj->st", lever, self.covariances, lever)
        most = min(FEWEST_AS_FAR, len(self.people))
        beyond = np.maximum(0.0, np.maximum(_TRIED - self.people[-most], self.people[most - 1] - _TRIED))
        slope = self.coefficients[:, 1:]
        variance = self.noise[:, None] * (error + shrunk[:, None]) + few * self.own[:, None]
        variance = variance + slope**2 * ((tried * self.unsure) ** 2 + (_BEYOND * beyond) ** 2)
        expected = self.coefficients @ levels.T + effect[:, None]
        below = self.weights @ special().stdtr(self.degrees, (given - expected) / np.sqrt(variance))
        possible = (below > TAIL) & (below < 1 - TAIL)
        middle = int(np.argmin(np.abs(below - 0.5)))
        if not possible.any():
            possible[middle] = True
        first, last = np.flatnonzero(possible)[[0, -1]]
        value, low, high = (float(_TRIED[place]) for place in (middle, first, last))
        # Wholly beyond the scale: its end, with what is open on one side.
        low, high = min(low, HIGHEST - (high - low) / 2), max(high, (high - low) / 2)
        low, high = within_scale(low), within_scale(high)
        # A judge that may not follow people at all tells what is possible, and nothing of what is likely.
        return within_scale(value) if self.slope.is_above_zero else (low + high) / 2, low, high


def census(labels: Sequence[float], raters: Sequence[int], weights: Sequence[float], error: PersonsError) -> Measure:
    """Return the weighted mean of judgments that are all labelled: complete, and as sure as those are who labelled them."""
    share = np.asarray(weights, dtype=np.float64) / sum(weights)
    value = float(share @ np.asarray(labels, dtype=np.float64))
    half = student_quantile(2 * error.variance**2 / error.spread**2) * _blur(share, np.asarray(raters), error)
    return Measure(value=value, low=within_scale(value - half), high=within_scale(value + half), n=len(labels))


def _blur(share: Numbers, raters: Numbers, error: PersonsError) -> float:
    return math.sqrt(float((share**2 / raters).sum()) * error.variance)


def _fits(
    design: Numbers, y: Numbers, counts: Numbers, sums: Numbers, totals: Numbers
) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """Fit by generalised least squares, for each share that agents may differ by.

    Returns Coefficients, their covariances but for the noise, squares of what is left, and logarithms of the determinants.
    """
    ratios = _SHARES[:, None] ** 2
    factors = ratios / (1 + ratios * counts)
    information = design.T @ design - np.einsum("sg,gi,gj->sij", factors, sums, sums) + 1e-9 * np.eye(2)
    covariances = np.linalg.inv(information)
    coefficients = np.einsum("sij,sj->si", covariances, design.T @ y - (factors * totals) @ sums)
    left = totals - coefficients @ sums.T
    squares = ((y - coefficients @ design.T) ** 2).sum(axis=1) - (factors * left**2).sum(axis=1)
    return coefficients, covariances, squares, np.log1p(ratios * counts).sum(axis=1) + np.linalg.slogdet(information)[1]
