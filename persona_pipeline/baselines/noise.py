"""How large an error a drop has: the judge's part and the week's part, for every claim and dimension of a fleet at once.

A claim's score in a window is its level, plus what the week does to it (sd w), plus the judge's error (sd j). So a drop
between a baseline of m windows and a run has the variance

    j² (1 / judgments before + 1 / judgments now) + w² (1 + 1 / m)

and w is 0 where both sides judged the same messages. The same holds of a dimension, whose windows are looked at as a whole,
computed parts included.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from persona_pipeline.baselines.variance import (
    MEDIAN_FACTOR,
    MEDIAN_FROM,
    ROUNDING_VARIANCE,
    Numbers,
    lower_variances,
    means,
    moderated,
    prior_of,
    satterthwaite,
    variances,
)

# With so few degrees of freedom what the claims of one run do between them says nothing of the week.
FEWEST_DEGREES = 4
# From so many windows on an agent has a spread of its own.
OWN_WINDOWS = 4
SOURCES = ("same messages", "own windows", "own windows and the fleet's", "the fleet's windows", "this run", "unknown")
SAME, OWN, SHRUNK, FLEET, RUN, UNKNOWN = range(len(SOURCES))
Indices = NDArray[np.intp]


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
        squares, degrees: of repeated judgments around their window's mean, outlier verdicts left out; 0 for dimensions.
        outliers: outlier verdicts.
    """

    mean: Numbers
    median: Numbers
    windows: Numbers
    between: Numbers
    between_medians: Numbers
    below: Numbers
    below_medians: Numbers
    count: Numbers
    squares: Numbers
    degrees: Numbers
    outliers: Numbers

    @classmethod
    def over_windows(
        cls, window_means: Numbers, window_medians: Numbers, counts: Numbers, judged: tuple[Numbers, Numbers, Numbers]
    ) -> "Level":
        """Return the level of rows from their windows.

        Args:
            window_means, window_medians: rows x windows, NaN where a row has no score in a window.
            counts: judgments, rows x windows.
            judged: what ``repeats`` says of each row, summed over its windows.
        """
        windows = np.isfinite(window_means).sum(axis=-1).astype(float)
        count = np.where(np.isfinite(window_means), counts, 0.0).sum(axis=-1)
        often = count >= (MEDIAN_FROM - 0.5) * np.maximum(windows, 1)
        return cls(
            mean=means(window_means),
            median=np.where(often, means(window_medians), np.nan),
            windows=windows,
            between=variances(window_means),
            between_medians=np.where(often, variances(window_medians), np.nan),
            below=lower_variances(window_means),
            below_medians=np.where(often, lower_variances(window_medians), np.nan),
            count=count,
            squares=judged[0],
            degrees=judged[1],
            outliers=judged[2],
        )


@dataclass(frozen=True)
class Fleet:
    """Every claim and dimension of the agents that are watched. Agents that are not in the run have no ``after``.

    Attributes:
        claims_before, claims_now: a row a claim.
        dimensions_before, dimensions_now: a row a dimension of an agent.
        dimension_of: the dimension's row of each claim.
        agent_of: the agent of each dimension's row.
        weight: of each claim in its dimension's score, 0-1; they sum to the judged share of the score.
        same: whether both sides of a dimension judged the same messages.
    """

    claims_before: Level
    claims_now: Level
    dimensions_before: Level
    dimensions_now: Level
    dimension_of: Indices
    agent_of: Indices
    weight: Numbers
    same: NDArray[np.bool_]


@dataclass(frozen=True)
class Drops:
    """By how much each row fell, and what the error of that is made of (variances; NaN: cannot be tested).

    Attributes:
        drop: before - now, positive is worse; of medians where outlier verdicts were seen.
        fallen: before - now of the scores themselves, to which the deltas of spec/2 apply.
        judge_before, judge_now: the judge's part.
        week: the week's part in one window.
        windows: of the baseline.
        degrees: of freedom of the whole error.
        source: index into ``SOURCES``: where the week's part was learnt.
        one: the judge's part of a single judgment a claim.
    """

    drop: Numbers
    fallen: Numbers
    judge_before: Numbers
    judge_now: Numbers
    week: Numbers
    windows: Numbers
    degrees: Numbers
    source: Indices
    one: Numbers

    @property
    def variance(self) -> Numbers:
        """The whole variance of the drop."""
        return self.judge_before + self.judge_now + self.week * (1 + 1 / np.maximum(self.windows, 1))

    @property
    def p_value(self) -> Numbers:
        """One-sided, of a drop above 0; NaN where nothing can be tested."""
        from scipy.special import stdtr

        error = np.sqrt(self.variance)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(error > 0, stdtr(self.degrees, -self.drop / error), np.nan)


def drops_of(fleet: Fleet) -> tuple[Drops, Drops]:
    """Return the drops of all dimensions and of all claims."""
    claim_agents = fleet.agent_of[fleet.dimension_of]
    robust = _outliers_seen(fleet, claim_agents)
    before, factor_before = _centre(fleet.claims_before, robust)
    now, factor_now = _centre(fleet.claims_now, robust)
    judge, judge_degrees = _judge(fleet, claim_agents)
    windows = fleet.claims_before.windows
    known = np.isfinite(judge)
    noise = np.where(known, judge, 0.0)
    judge_before = noise * factor_before / np.maximum(fleet.claims_before.count, 1)
    judge_now = noise * factor_now / np.maximum(fleet.claims_now.count, 1)
    judge_window = judge_before * windows
    drop = before - now

    units = len(fleet.agent_of)
    between, degrees = _between(fleet.claims_before, factor_before > 1)
    pooled, pooled_judge, pooled_degrees = _pooled(between, judge_window, degrees, fleet.dimension_of, units)
    week, week_degrees, source = _week(pooled, pooled_judge, pooled_degrees, _own(fleet))
    from_run = _from_run(fleet, drop, judge_before + judge_now)
    week, week_degrees, source = _fallback(week, week_degrees, source, from_run)
    at = fleet.dimension_of
    claims = _assembled(
        fleet.same[at], drop, fleet.claims_before.mean - fleet.claims_now.mean, judge_before, judge_now,
        week[at], windows, judge_degrees, week_degrees[at], source[at], known, noise * factor_now,
    )  # fmt: skip

    def summed(values: Numbers) -> Numbers:
        return np.bincount(at, np.where(np.isfinite(values), values, 0.0) * fleet.weight**2, minlength=units)

    unit_robust = np.zeros(units, bool)
    np.logical_or.at(unit_robust, at, robust)
    first, _ = _centre(fleet.dimensions_before, unit_robust)
    second, _ = _centre(fleet.dimensions_now, unit_robust)
    medians = unit_robust & np.isfinite(fleet.dimensions_before.median)
    whole, whole_degrees = _between(fleet.dimensions_before, medians)
    whole_week, whole_freedom, whole_source = _week(whole, summed(judge_window), whole_degrees, _own(fleet))
    whole_week, whole_freedom, whole_source = _fallback(
        whole_week, whole_freedom, whole_source, (summed(week[at]), week_degrees, source)
    )
    dimension_judge = np.zeros(units, bool)
    np.logical_or.at(dimension_judge, at, known)
    freedom = np.bincount(at, judge_degrees, minlength=units)
    dimensions = _assembled(
        fleet.same, first - second, fleet.dimensions_before.mean - fleet.dimensions_now.mean, summed(judge_before),
        summed(judge_now), whole_week, fleet.dimensions_before.windows, freedom, whole_freedom, whole_source,
        dimension_judge, summed(noise * factor_now),
    )  # fmt: skip
    return dimensions, claims


def _outliers_seen(fleet: Fleet, claim_agents: Indices) -> NDArray[np.bool_]:
    # Of the others only their baselines are asked: an agent's answer must not depend on who else is in the run.
    if fleet.claims_before.outliers.sum() > 0:
        return np.ones(len(claim_agents), bool)
    return np.bincount(claim_agents, fleet.claims_now.outliers)[claim_agents] > 0


def _centre(level: Level, robust: NDArray[np.bool_]) -> tuple[Numbers, Numbers]:
    used = robust & np.isfinite(level.median)
    return np.where(used, level.median, level.mean), np.where(used, MEDIAN_FACTOR, 1.0)


def _between(level: Level, medians: NDArray[np.bool_]) -> tuple[Numbers, Numbers]:
    """Return the variance between the windows of each row, as it matters for falls, and its degrees of freedom.

    A score near 9 cannot rise, so scores fall further than they rise: what the fleet shows below its means counts for all.
    """
    between = np.where(medians, level.between_medians, level.between)
    below = np.where(medians, level.below_medians, level.below)
    degrees = np.where(np.isfinite(between), level.windows - 1, 0.0)
    whole, lower = (float(np.sum(np.where(degrees > 0, part * degrees, 0.0))) for part in (between, below))
    return between * max(1.0, lower / whole if whole > 0 else 1.0), degrees


def _judge(fleet: Fleet, claim_agents: Indices) -> tuple[Numbers, Numbers]:
    """Return the variance of one judgment of each claim, drawn to the fleet's, and its degrees of freedom."""
    before, now = fleet.claims_before, fleet.claims_now
    degrees = before.degrees + now.degrees
    with np.errstate(divide="ignore", invalid="ignore"):
        own = (before.squares + now.squares) / degrees
        learnt = prior_of(before.squares / before.degrees, before.degrees, ROUNDING_VARIANCE)
    if before.degrees.sum() > 0:
        variance, freedom = moderated(own, degrees, learnt, float(before.degrees.sum()))
    else:
        # Nothing was judged twice for a baseline: what the agent's own run says of the judge holds for all its claims.
        squares, freedom = (np.bincount(claim_agents, values)[claim_agents] for values in (now.squares, now.degrees))
        with np.errstate(divide="ignore", invalid="ignore"):
            variance = np.where(freedom > 0, squares / freedom, np.nan)
    return np.where(np.isfinite(variance), np.maximum(variance, ROUNDING_VARIANCE), np.nan), freedom


def _pooled(
    between: Numbers, judge: Numbers, degrees: Numbers, at: Indices, units: int
) -> tuple[Numbers, Numbers, Numbers]:
    total = np.bincount(at, degrees, minlength=units)
    weights = np.maximum(total, 1.0)
    pooled = np.bincount(at, np.where(degrees > 0, between * degrees, 0.0), minlength=units) / weights
    noise = np.bincount(at, np.where(degrees > 0, judge * degrees, 0.0), minlength=units) / weights
    return pooled, noise, total


def _own(fleet: Fleet) -> NDArray[np.bool_]:
    return fleet.dimensions_before.windows >= OWN_WINDOWS


def _week(
    between: Numbers, judge: Numbers, degrees: Numbers, own: NDArray[np.bool_]
) -> tuple[Numbers, Numbers, Indices]:
    """Return the week's variance of each dimension's row, its degrees of freedom and source; UNKNOWN where nothing is known.

    Plain variances between windows hold judge and week together; outliers and all, since a robust estimate of a large week's
    effect is too small. The judge's part is taken out where it is known.
    """
    total = float(degrees.sum())
    if total <= 0:
        return np.zeros(len(between)), np.zeros(len(between)), np.full(len(between), UNKNOWN)
    # Baselines judged differently often are brought to the same judge's part before they are compared.
    common = float(np.sum(judge * degrees) / total)
    adjusted = between - judge + common
    prior = prior_of(adjusted, degrees, max(common, ROUNDING_VARIANCE) / 20)
    variance, freedom = moderated(np.maximum(adjusted, 0.0), degrees, prior, total)
    alone = total == degrees
    source = np.where(degrees <= 0, FLEET, np.where(alone | own, OWN, SHRUNK))
    week = np.maximum(variance - common, 0.0)
    # What is left when the judge's part is taken out is as uncertain as the whole was.
    left = np.divide(week, variance, out=np.zeros_like(week), where=variance > 0)
    return week, freedom * left**2, source


def _from_run(fleet: Fleet, drop: Numbers, judge: Numbers) -> tuple[Numbers, Numbers, Indices]:
    """Return the week's variance as this run tells it: how differently the claims of an agent's other dimensions moved.

    For baselines of one window, where no windows can be compared: baseline and run are two windows, and most claims did not
    fall. A dimension that moved as a whole does not count, and no dimension is judged by itself where there are others.
    """
    at, units = fleet.dimension_of, len(fleet.agent_of)
    moved = np.isfinite(drop) & ~fleet.same[at]

    def by_unit(values: Numbers) -> Numbers:
        return np.bincount(at, np.where(moved, values, 0.0), minlength=units)

    count = by_unit(np.ones(len(at)))
    centre = by_unit(drop) / np.maximum(count, 1.0)
    squares, noise = by_unit((drop - centre[at]) ** 2), by_unit(judge)
    degrees = np.maximum(count - 1, 0.0)

    def others(values: Numbers) -> Numbers:
        return np.bincount(fleet.agent_of, values)[fleet.agent_of] - values

    alone = others(degrees) < FEWEST_DEGREES
    freedom = np.where(alone, degrees, others(degrees))
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = np.where(alone, squares, others(squares)) / freedom
        judged = np.where(alone, noise / count, others(noise) / others(count))
    known = freedom >= FEWEST_DEGREES
    week = np.where(known, np.maximum(variance - judged, 0.0) / 2, 0.0)
    return week, np.where(known, freedom, 0.0), np.where(known, RUN, UNKNOWN)


def _fallback(
    week: Numbers, degrees: Numbers, source: Indices, other: tuple[Numbers, Numbers, Indices]
) -> tuple[Numbers, Numbers, Indices]:
    missing = source == UNKNOWN
    return tuple(np.where(missing, second, first) for first, second in zip((week, degrees, source), other, strict=True))  # pyright: ignore[reportReturnType]


def _assembled(
    same: NDArray[np.bool_],
    drop: Numbers,
    fallen: Numbers,
    judge_before: Numbers,
    judge_now: Numbers,
    week: Numbers,
    windows: Numbers,
    judge_degrees: Numbers,
    week_degrees: Numbers,
    source: Indices,
    known: NDArray[np.bool_],
    one: Numbers,
) -> Drops:
    week = np.where(same, 0.0, week)
    source = np.where(same, SAME, source)
    # Nothing was judged twice and no week is known: there is nothing to test against.
    testable = np.isfinite(drop) & (known | ((source != SAME) & (source != UNKNOWN)))
    spread = week * (1 + 1 / np.maximum(windows, 1))
    degrees = satterthwaite([(judge_before + judge_now, judge_degrees), (spread, week_degrees)])
    return Drops(
        np.where(testable, drop, np.nan), fallen, judge_before, judge_now, week, windows, degrees, source, one
    )
