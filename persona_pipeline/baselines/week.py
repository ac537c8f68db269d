"""What a week does to scores: from the windows of baselines or, where those have one window each, from the run itself."""

from dataclasses import dataclass

import numpy as np

from persona_pipeline.baselines.level import Fleet, Indices, Level, Mask, by_group
from persona_pipeline.baselines.variance import ROUNDING_VARIANCE, Numbers, moderated, prior_of

# How weeks differ is learnt from others only where so many agents show it: no neighbour alone moves another's limits.
FEWEST_AGENTS = 3
# With so few degrees of freedom what the claims of one run do between them says nothing of the week.
FEWEST_DEGREES = 4
# What the mean square of a handful of normal numbers loses with the farthest of them, made up for.
TRIMMED = 2.0
SOURCES = ("same messages", "own windows", "own windows and the fleet's", "the fleet's windows", "this run", "unknown")
SAME, OWN, SHRUNK, FLEET, RUN, UNKNOWN = range(len(SOURCES))


@dataclass(frozen=True)
class Week:
    """What is known of the week, a row a dimension.

    Attributes:
        effect: variance of what a window does to a score.
        whole: variance of a window's score, the judge's part included; what the effect was learnt from.
        degrees: of freedom of ``whole``.
        source: index into ``SOURCES``.
    """

    effect: Numbers
    whole: Numbers
    degrees: Numbers
    source: Indices

    def or_else(self, other: "Week") -> "Week":
        """Return this where something is known, the other elsewhere."""
        missing = self.source == UNKNOWN
        return Week(
            np.where(missing, other.effect, self.effect),
            np.where(missing, other.whole, self.whole),
            np.where(missing, other.degrees, self.degrees),
            np.where(missing, other.source, self.source),
        )

    def at(self, rows: Indices) -> "Week":
        """Return these rows, one of them as often as it is named."""
        return Week(self.effect[rows], self.whole[rows], self.degrees[rows], self.source[rows])


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

    Args:
        agent_of: the agent of each row; the others as in ``from_windows``.
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

    Plain variances between windows hold judge and week together; outliers and all, since a robust estimate of a large week's
    effect is too small. The judge's part is taken out where it is known.

    Args:
        between, judge, degrees: variance between the windows of each row, the judge's part in it as the baselines tell it (0:
            they do not), and its degrees of freedom.
        own: rows with enough windows of their own.
        otherwise: the judge's part where the baselines do not tell it.
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
