"""How large an error a drop has: the judge's part and the week's part, for every claim and dimension of a fleet at once.

A claim's score in a window is its level, plus what the week does to it (sd w), plus the judge's error (sd j). So a drop
between a baseline of m windows and a run has the variance

    j² (1 / judgments before + 1 / judgments now) + w² (1 + 1 / m)

and w is 0 where both sides judged the same messages. The same holds of a dimension, whose windows are looked at as a whole,
computed parts included.
"""

from dataclasses import dataclass

import numpy as np

from persona_pipeline.baselines.level import Fleet, Indices, Mask, by_group, centre
from persona_pipeline.baselines.variance import ROUNDING_VARIANCE, Numbers, moderated, prior_of, satterthwaite
from persona_pipeline.baselines.week import SAME, UNKNOWN, Week, between_windows, from_run, learnt

# From so many windows on an agent has a spread of its own.
OWN_WINDOWS = 4
# Degrees of freedom from which a run alone tells how much its judge varies.
ENOUGH_REPEATS = 20


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
    def week_part(self) -> Numbers:
        """What the weeks add to the variance of the drop."""
        return self.week * (1 + 1 / np.maximum(self.windows, 1))

    @property
    def variance(self) -> Numbers:
        """The whole variance of the drop."""
        return self.judge_before + self.judge_now + self.week_part

    @property
    def p_value(self) -> Numbers:
        """One-sided, of a drop above 0; NaN where nothing can be tested."""
        from scipy.special import stdtr

        error = np.sqrt(self.variance)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(error > 0, stdtr(self.degrees, -self.drop / error), np.nan)


@dataclass(frozen=True)
class _Judge:
    """The judge's part in each row (variances).

    Attributes:
        one: of a single judgment now. before, now: of each side.
        window: of one window of the baseline, as the baselines alone tell it; 0: they do not.
        otherwise: the same as the agent's own run tells it, outlier verdicts included.
        degrees: of freedom. known: there is something to go by.
    """

    one: Numbers
    before: Numbers
    now: Numbers
    window: Numbers
    otherwise: Numbers
    degrees: Numbers
    known: Mask


def drops_of(fleet: Fleet) -> tuple[Drops, Drops]:
    """Return the drops of all dimensions and of all claims.

    An agent's answer rests on its own run and on the baselines of all, never on another agent's run.
    """
    at, units = fleet.dimension_of, len(fleet.agent_of)
    robust = _outliers_seen(fleet)
    own = fleet.dimensions_before.windows >= OWN_WINDOWS
    before, factor_before = centre(fleet.claims_before, robust)
    now, factor_now = centre(fleet.claims_now, robust)
    judge = _judge(fleet, factor_before, factor_now)
    between, degrees = between_windows(fleet.claims_before, factor_before > 1)
    total = by_group(at, degrees, units)
    pooled, window, otherwise = (
        by_group(at, np.where(degrees > 0, part * degrees, 0.0), units) / np.maximum(total, 1.0)
        for part in (between, judge.window, judge.otherwise)
    )
    week = learnt(fleet.agent_of, pooled, window, total, own, otherwise)
    week = week.or_else(from_run(fleet, before - now, judge.before + judge.now))
    fallen = fleet.claims_before.mean - fleet.claims_now.mean
    claims = _assembled(fleet.same[at], before - now, fallen, judge, week.at(at), fleet.claims_before.windows)

    def summed(values: Numbers) -> Numbers:
        return by_group(at, values * fleet.weight**2, units)

    any_robust = by_group(at, robust.astype(float), units) > 0
    first, factor = centre(fleet.dimensions_before, any_robust)
    second, _ = centre(fleet.dimensions_now, any_robust)
    whole_judge = _Judge(
        *(summed(part) for part in (judge.one, judge.before, judge.now, judge.window, judge.otherwise)),
        degrees=_dimension_degrees(fleet, judge.degrees),
        known=by_group(at, judge.known.astype(float), units) > 0,
    )
    whole, whole_degrees = between_windows(fleet.dimensions_before, factor > 1)
    golden = by_group(at, judge.window * fleet.weight_before**2, units)
    # Windows of a whole dimension, or what the weeks of its claims come to if they are independent of each other.
    parts = Week(summed(week.effect[at]), summed(week.whole[at]), week.degrees, week.source)
    whole_week = learnt(fleet.agent_of, whole, golden, whole_degrees, own, whole_judge.otherwise)
    fallen = fleet.dimensions_before.mean - fleet.dimensions_now.mean
    dimensions = _assembled(
        fleet.same, first - second, fallen, whole_judge, whole_week.or_else(parts), fleet.dimensions_before.windows
    )
    return dimensions, claims


def _outliers_seen(fleet: Fleet) -> Mask:
    agents = fleet.agent_of[fleet.dimension_of]
    if fleet.claims_before.judge.outliers.any():
        return np.ones(len(agents), bool)
    return by_group(agents, fleet.claims_now.judge.outliers)[agents] > 0


def _judge(fleet: Fleet, factor_before: Numbers, factor_now: Numbers) -> _Judge:
    """Return the judge's part of every claim, drawn to the fleet's; 0 where nothing was judged twice."""
    before, now = fleet.claims_before.judge, fleet.claims_now.judge
    counts = np.maximum(fleet.claims_before.count, 1), np.maximum(fleet.claims_now.count, 1)
    windows, nothing = fleet.claims_before.windows, np.zeros(len(fleet.weight))
    if before.degrees.any():
        golden = _variance(before.squares, before.degrees)
        prior, total = prior_of(golden, before.degrees, ROUNDING_VARIANCE), float(before.degrees.sum())
        alone, _ = moderated(golden, before.degrees, prior, total)
        degrees = before.degrees + now.degrees
        one, degrees = moderated(_variance(before.squares + now.squares, degrees), degrees, prior, total)
        window = _floored(alone) * factor_before * windows / counts[0]
        mean, otherwise = one, nothing
    else:
        # Nothing was judged twice for a baseline: what the agent's own run says of the judge holds for all its claims.
        agents = fleet.agent_of[fleet.dimension_of]
        squares, degrees, all_squares, all_degrees = (
            by_group(agents, part)[agents] for part in (now.squares, now.degrees, now.all_squares, now.all_degrees)
        )
        # Windows tell the whole error; taking it apart by a judge that was hardly repeated would make it less certain.
        enough = degrees >= np.where(windows > 1, ENOUGH_REPEATS, 1)
        one = np.where(enough, _variance(squares, degrees), np.nan)
        mean = np.where(enough, _variance(all_squares, all_degrees), np.nan)
        window, otherwise = nothing, _floored(mean) * windows / counts[0]
    return _Judge(
        one=_floored(one) * factor_now,
        before=np.where(factor_before > 1, _floored(one) * factor_before, _floored(mean)) / counts[0],
        now=np.where(factor_now > 1, _floored(one) * factor_now, _floored(mean)) / counts[1],
        window=window,
        otherwise=otherwise,
        degrees=degrees,
        known=np.isfinite(one),
    )


def _dimension_degrees(fleet: Fleet, degrees: Numbers) -> Numbers:
    at, units = fleet.dimension_of, len(fleet.agent_of)
    if fleet.claims_before.judge.degrees.any():
        return by_group(at, degrees, units)
    # Every claim of an agent was given the same estimate.
    largest = np.zeros(units)
    np.maximum.at(largest, at, degrees)
    return largest


def _variance(squares: Numbers, degrees: Numbers) -> Numbers:
    return np.where(degrees > 0, squares / np.maximum(degrees, 1.0), np.nan)


def _floored(variance: Numbers) -> Numbers:
    """Return 0 where nothing is known, and nowhere less than whole scores must vary."""
    return np.where(np.isfinite(variance), np.maximum(variance, ROUNDING_VARIANCE), 0.0)


def _assembled(same: Mask, drop: Numbers, fallen: Numbers, judge: _Judge, week: Week, windows: Numbers) -> Drops:
    effect = np.where(same, 0.0, week.effect)
    source = np.where(same, SAME, week.source)
    # Nothing was judged twice and no week is known: there is nothing to test against.
    testable = np.isfinite(drop) & (judge.known | ((source != SAME) & (source != UNKNOWN)))
    times = 1 + 1 / np.maximum(windows, 1)
    judged = judge.before + judge.now
    # The week's part is what was left of the windows' variance without the judge's, so it is as uncertain as the whole was.
    whole = np.where(effect > 0, week.whole * times, 0.0)
    degrees = satterthwaite([(whole, week.degrees), (judged + effect * times - whole, judge.degrees)])
    return Drops(
        np.where(testable, drop, np.nan), fallen, judge.before, judge.now, effect, windows, degrees, source, judge.one
    )


def _largest(groups: Indices, values: Numbers, count: int) -> Numbers:
    largest = np.zeros(count)
    np.maximum.at(largest, groups, values)
    return largest
