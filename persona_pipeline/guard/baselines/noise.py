"""How large an error a drop has: the judge's part and the week's part, for every claim and dimension of a fleet at once.

A claim's score in a window is its level, plus what the week does to it (sd w), plus the judge's error (sd j). So a drop
between a baseline of m windows and a run has the variance

    j² (1 / judgments before + 1 / judgments now) + w² (1 + 1 / m)

and w is 0 where both sides judged the same messages. The same holds of a dimension, whose windows are looked at as a whole,
computed parts included.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from persona_pipeline.guard.baselines.spread import ENOUGH_REPEATS
from persona_pipeline.guard.baselines.variance import (
    ROUNDING_VARIANCE,
    Fleet,
    Indices,
    Level,
    Mask,
    Numbers,
    by_group,
    centre,
    moderated,
    prior_of,
    satterthwaite,
    special,
)
from persona_pipeline.scoring.results import HIGHEST

# How weeks differ is learnt from others only where so many agents show it: no neighbour alone moves another's limits.
FEWEST_AGENTS = 3
# With so few degrees of freedom what the claims of one run do between them says nothing of the week.
FEWEST_DEGREES = 4
# What the mean square of a handful of normal numbers loses with the farthest of them, made up for.
TRIMMED = 2.0
# What fell says nothing of the weeks: moves beyond so many standard deviations of the others', and not within so many points,
# which weeks alone may do: below that, false alarms of three agents beside one window double.
FALLEN, MOVES = 4.0, 2.0
# Where windows tell, the others' moves make an error at most half as large again, however far one of them fell.
MOST_WIDER = 1.5**2
# The median size of normal numbers in standard deviations, turned over.
BY_MEDIAN = 1.4826
SOURCES = ("same messages", "own windows", "own windows and the fleet's", "the fleet's windows", "this run", "unknown")
SAME, OWN, SHRUNK, FLEET, RUN, UNKNOWN = range(len(SOURCES))


@dataclass(frozen=True)
class Week:
    """What is known of the week, a row a dimension.

    ``effect``: variance of what a window does to a score. ``whole``: variance of a window's score, the judge's part included;
    what the effect was learnt from. ``degrees``: of freedom of ``whole``. ``source``: index into ``SOURCES``.
    """

    effect: Numbers
    whole: Numbers
    degrees: Numbers
    source: Indices

    def or_else(self, other: "Week") -> "Week":
        """Return this where something is known, the other elsewhere."""
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Week(*(np.where(self.source == UNKNOWN, theirs, own) for own, theirs in pairs))

    def at(self, rows: Indices) -> "Week":
        """Return these rows, one of them as often as it is named."""
        return Week(*(part[rows] for part in vars(self).values()))


def between_windows(level: Level, medians: Mask) -> tuple[Numbers, Numbers]:
    """Return the variance between the windows of each row, as it matters for falls, and its degrees of freedom.

    A score near 9 cannot rise, so scores fall further than they rise: what the fleet shows below its means counts for all.
    """
    between = np.where(medians, level.between_medians, level.between)
    below = np.where(medians, level.below_medians, level.below)
    degrees = np.where(np.isfinite(between), level.windows - 1, 0.0)
    whole, lower = (float(np.sum(np.where(degrees > 0, part * degrees, 0.0))) for part in (between, below))
    return between * max(1.0, lower / whole if whole > 0 else 1.0), degrees


def learnt(
    agent_of: Indices, between: Numbers, judge: Numbers, degrees: Numbers, own: Mask, otherwise: Numbers
) -> Week:
    """Return what is known of the week from windows: the fleet's where enough agents have several, else each agent's own.

    ``agent_of``: the agent of each row; the others as in ``from_windows``.
    """
    showing = np.unique(agent_of[degrees > 0])
    if len(showing) >= FEWEST_AGENTS:
        return from_windows(between, judge, degrees, own, otherwise)
    found = from_windows(between, judge, np.zeros(len(between)), own, otherwise)
    for agent in showing:
        alone = from_windows(between, judge, np.where(agent_of == agent, degrees, 0.0), own, otherwise)
        elsewhere = np.where(agent_of == agent, alone.source, UNKNOWN)
        found = found.or_else(Week(alone.effect, alone.whole, alone.degrees, elsewhere))
    return found


def from_windows(between: Numbers, judge: Numbers, degrees: Numbers, own: Mask, otherwise: Numbers) -> Week:
    """Return what is known of the week from the windows of the fleet's baselines; UNKNOWN where there is one window each.

    Plain variances between windows hold both kinds of noise together; outliers and all, since a robust estimate of a large week's
    effect is too small. The judge's part is taken out where it is known. ``between``, ``judge``, ``degrees``: variance between
    the windows of each row, the judge's part in it as the baselines tell it (0: they do not), and its degrees of freedom.
    ``own``: rows with enough windows of their own. ``otherwise``: the judge's part where the baselines do not tell it.
    """
    total = float(degrees.sum())
    if total <= 0:
        nothing = np.zeros(len(between))
        return Week(nothing, nothing, nothing, np.full(len(between), UNKNOWN))
    # Baselines judged differently often are brought to the same judge's part before they are compared.
    common = float(np.sum(judge * degrees) / total)
    adjusted = between - judge + common
    prior = prior_of(adjusted, degrees, max(common, ROUNDING_VARIANCE) / 20)
    variance, freedom = moderated(np.maximum(adjusted, 0.0), degrees, prior, total)
    alone = total == degrees
    source = np.where(degrees <= 0, FLEET, np.where(alone | own, OWN, SHRUNK))
    return Week(np.maximum(variance - (common or otherwise), 0.0), variance, freedom, source)


def from_run(fleet: Fleet, drop: Numbers, judge: Numbers) -> Week:
    """Return the week's variance as this run tells it: how differently the claims of an agent's other dimensions moved.

    For baselines of one window, where no windows can be compared: baseline and run are two windows, and most claims did not
    fall. A dimension that moved as a whole does not count, and no dimension is judged by itself where there are others.
    """
    at, units = fleet.dimension_of, len(fleet.agent_of)
    moved = np.isfinite(drop) & ~fleet.same[at]

    def by_unit(values: Numbers) -> Numbers:
        return by_group(at, np.where(moved, values, 0.0), units)

    def others(values: Numbers) -> Numbers:
        return by_group(fleet.agent_of, values)[fleet.agent_of] - values

    count = by_unit(np.ones(len(at)))
    centre = by_unit(drop) / np.maximum(count, 1.0)
    away = np.where(moved, (drop - centre[at]) ** 2, 0.0)
    squares, degrees, noise = by_unit(away), np.maximum(count - 1, 0.0), by_unit(judge)
    alone = others(degrees) < FEWEST_DEGREES
    # By itself, a dimension is judged without the claim that moved most, which may be the one that fell.
    farthest = np.zeros(units)
    np.maximum.at(farthest, at, away)
    without = squares - farthest * count / np.maximum(count - 1, 1.0)
    spread = np.where(alone, TRIMMED * np.maximum(without, 0.0), others(squares))
    freedom = np.where(alone, count - 2, others(degrees))
    known = freedom >= np.where(alone, 2, FEWEST_DEGREES)
    freedom = np.where(known, freedom, 1.0)
    variance = spread / freedom
    judged = np.where(alone, noise, others(noise)) / np.maximum(np.where(alone, count, others(count)), 1.0)
    week = np.where(known, np.maximum(variance - judged, 0.0) / 2, 0.0)
    return Week(week, variance / 2, np.where(known, freedom, 0.0), np.where(known, RUN, UNKNOWN))


# From so many windows on an agent has a spread of its own.
OWN_WINDOWS = 4
# From so many on a claim has one of its own.
ENOUGH_WINDOWS = 8
NEAR_END = 0.5


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

    def or_more_careful(self, other: "Drops") -> "Drops":
        """Return of each row what makes less of the same drop."""
        careful = _tail(other, np.abs(other.drop)) > _tail(self, np.abs(self.drop))
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Drops(*(np.where(careful, theirs, own) for own, theirs in pairs))

    def wider(self, more: Numbers, degrees: Numbers) -> "Drops":
        """Return the drops with so much more variance from the week, known with so many degrees of freedom."""
        total = satterthwaite([(self.variance, self.degrees), (more, degrees)])
        return replace(
            self,
            week=self.week + more / (1 + 1 / np.maximum(self.windows, 1)),
            source=np.where((more > 0) & (self.source == UNKNOWN), RUN, self.source),
            degrees=np.where(more > 0, total, self.degrees),
        )

    @property
    def p_value(self) -> Numbers:
        """One-sided, of a drop above 0; NaN where nothing can be tested."""
        return _tail(self, self.drop)


def _tail(drops: Drops, drop: Numbers) -> Numbers:
    error = np.sqrt(drops.variance)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(error > 0, special().stdtr(drops.degrees, -drop / error), np.nan)


@dataclass(frozen=True)
class _Judge:
    """The judge's part in each row (variances).

    ``one``: of a single judgment now. ``before``, ``now``: of each side. ``window``: of one window of the baseline, as the
    baselines alone tell it; 0: they do not. ``otherwise``: the same as the agent's own run tells it, outlier verdicts included.
    ``degrees``: of freedom. ``known``: there is something to go by.
    """

    one: Numbers
    before: Numbers
    now: Numbers
    window: Numbers
    otherwise: Numbers
    degrees: Numbers
    known: Mask


def drops_of(fleet: Fleet, moved: Mapping[str, Sequence[float]] | None = None) -> tuple[Drops, Drops]:
    """Return the drops of all dimensions and of all claims.

    An agent's answer rests on its own run and on the baselines of all; where a baseline has fewer than 4 windows, it rests also
    on how far the others' dimensions moved. ``moved``: by how much dimensions of agents that are not in this fleet fell (points),
    by agent; see ``shared_weeks``.
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
    claims = _assembled(fleet.same[at], before - now, fallen, judge, week.at(at), fleet.claims_before)
    if (often := fleet.claims_before.windows >= ENOUGH_WINDOWS).any():
        # A claim that varies by itself hides among those of its dimension; drawn to all claims, as far as they are alike, it shows.
        shown = np.where(often, degrees, 0.0)
        by_itself = learnt(fleet.agent_of[at], between, judge.window, shown, often, judge.otherwise).or_else(
            week.at(at)
        )
        claims = claims.or_more_careful(
            _assembled(fleet.same[at], before - now, fallen, judge, by_itself, fleet.claims_before)
        )

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
        fleet.same, first - second, fallen, whole_judge, whole_week.or_else(parts), fleet.dimensions_before
    )
    few = ~fleet.same & ~own
    if few.any():
        least, degrees = shared_weeks(np.where(fleet.same, np.nan, dimensions.drop), fleet.agent_of, moved or {})
        several = fleet.dimensions_before.windows > 1
        least = np.where(several, np.minimum(least, MOST_WIDER * dimensions.variance), least)
        more = np.where(few, np.maximum(least - dimensions.variance, 0.0), 0.0)
        dimensions, claims = dimensions.wider(more, degrees), claims.wider(more[at], degrees[at])
    return dimensions, claims


def shared_weeks(drop: Numbers, agent_of: Indices, moved: Mapping[str, Sequence[float]]) -> tuple[Numbers, Numbers]:
    """Return the least variance of a dimension's drop, and its degrees of freedom, as the other agents' dimensions show it.

    A week that moves all of a dimension, of an agent or of the fleet alike is in no claim's difference from the others, and in
    one window there is nothing to compare it with: what is known of it is how far the dimensions of others moved, up and down,
    agents left out of which one fell unlike the rest. How far is usual is what half of them at least do not exceed, an agent a
    voice: of two others the one that moved less decides. Where fewer than 3 agents are in the run nothing is. ``drop``: of the
    dimensions of a run, NaN for those that tell nothing. ``agent_of``: the agent of each. ``moved``: the same of agents that are
    not among them.
    """
    sizes = {f"row {agent}": np.abs(drop[(agent_of == agent) & np.isfinite(drop)]) for agent in np.unique(agent_of)}
    sizes |= {agent: np.abs(np.asarray(values, float)) for agent, values in moved.items()}
    told = {key: (own, float(np.median(own)), own.max()) for key, own in sizes.items() if len(own)}
    variance, degrees = np.zeros(len(drop)), np.ones(len(drop))
    found: dict[str, tuple[float, int]] = {}
    for agent in np.unique(agent_of):
        # To all that tell nothing the same others do.
        key = row if (row := f"row {agent}") in told else ""
        others = [item for name, item in told.items() if name != key] if key not in found else []
        if len(others) >= FEWEST_AGENTS - 1:
            usual = sorted(median for _, median, _ in others)[(len(others) - 1) // 2]
            farthest = max(FALLEN * BY_MEDIAN * usual, MOVES)
            steady = [own for own, _, most in others if most <= farthest]
            kept = np.concatenate(steady if len(steady) >= FEWEST_AGENTS - 1 else [own for own, *_ in others])
            kept = kept[kept <= farthest]
            found[key] = float(np.mean(kept**2)), len(kept)
        if key in found:
            variance[agent_of == agent], degrees[agent_of == agent] = found[key]
    return variance, degrees


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


def _assembled(same: Mask, drop: Numbers, fallen: Numbers, judge: _Judge, week: Week, before: Level) -> Drops:
    # Whatever others do, no score from 0 to 9 varies more about its mean; a mean at an end may lie half a point off it.
    windows, mean = before.windows, np.clip(before.mean, NEAR_END, HIGHEST - NEAR_END)
    effect = np.where(same, 0.0, np.fmin(week.effect, mean * (HIGHEST - mean)))
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
