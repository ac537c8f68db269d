"""The score people would give one agent, learnt from the labels of everybody."""

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from persona_pipeline.baselines.variance import Numbers
from persona_pipeline.calibration.measures import TAIL, Measure
from persona_pipeline.calibration.prediction import HIGHEST

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
