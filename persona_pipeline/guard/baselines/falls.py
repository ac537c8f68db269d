"""What counts as a fall, and what is worth asking the judge again before it is called one.

Many tests, few false alarms: dimensions and claims of an agent, and the agents that are watched.

An agent's dimensions are one family and its claims another, each corrected by Holm's method (Holm, 1979), and the two share the
agent's level: the smaller part for claims, since a claim has to fall three times as far anyway.

Agents are corrected for by how many are watched: up to ``MOST_TOGETHER`` no run should cry wolf, so each gets its
share of the level (Bonferroni); beyond, some false alarm is the price of seeing anything, and what is held is the share of
false ones among the agents reported (Benjamini and Hochberg, 1995; within a reported agent Benjamini and Bogomolov, 2014).

No agent's answer depends on which others were evaluated in the same run, only on how many are watched: every way into the product
decides alike. (Beyond ``MOST_TOGETHER`` other agents' p-values help: the more of them fell, the less is asked of each.)
"""

from dataclasses import dataclass

import numpy as np

from persona_pipeline.guard.baselines.noise import Drops, drops_of
from persona_pipeline.guard.baselines.regression import PROPOSITION_DELTA, REGRESSION_DELTA, TOLERANCE, UNDECIDED_DELTA
from persona_pipeline.guard.baselines.variance import Fleet, Indices, Mask, Numbers

LEVEL = 0.05
DIMENSIONS_SHARE, CLAIMS_SHARE = 0.75, 0.25
MOST_TOGETHER = 20


@dataclass(frozen=True)
class Corrected:
    """P-values after correction, to be compared with ``LEVEL``.

    Attributes:
        dimensions, claims: in the order given, NaN where there is no test.
        agents: of each agent before the correction for agents: the smallest of its two families.
    """

    dimensions: Numbers
    claims: Numbers
    agents: Numbers


def corrected(
    dimensions: Numbers,
    dimension_agents: Indices,
    claims: Numbers,
    claim_agents: Indices,
    *,
    agents: int,
    watched: int,
    others: Numbers | None = None,
) -> Corrected:
    """Correct the p-values of every dimension and claim of some agents.

    Args:
        dimension_agents, claim_agents: the agent (0 to ``agents`` - 1) of each p-value.
        watched: how many agents are watched, those not in this run included; at least ``agents``.
        others: p-values of watched agents that are not in this run, where known; they matter beyond ``MOST_TOGETHER``.
    """
    own = holm_within(dimensions, dimension_agents) / DIMENSIONS_SHARE
    single = holm_within(claims, claim_agents) / CLAIMS_SHARE
    smallest = np.ones(agents)
    for values, places in ((own, dimension_agents), (single, claim_agents)):
        known = np.isfinite(values)
        np.minimum.at(smallest, places[known], np.minimum(1.0, values[known]))
    factor = float(max(watched, agents, 1))
    if factor > MOST_TOGETHER:
        known = smallest if others is None else np.concatenate([smallest, others])
        factor /= max(1, _found(known, factor))
    return Corrected(np.minimum(1.0, factor * own), np.minimum(1.0, factor * single), smallest)


def level_of(tests: Numbers, watched: int, share: float) -> Numbers:
    """Return the level that one of an agent's ``tests`` of a kind must pass if no other test of it does."""
    return LEVEL * share / (np.maximum(1.0, tests) * max(1, watched))


def families_named(watched: int) -> str:
    """Return what was corrected for, in words."""
    within = "Holm over an agent's dimensions and over its claims"
    if watched > MOST_TOGETHER:
        return f"{within}; Benjamini-Hochberg at {LEVEL:.0%} over {watched} agents"
    return f"{within}; Bonferroni over {watched} agents" if watched > 1 else within


def holm_within(p_values: Numbers, groups: Indices) -> Numbers:
    """Return p-values adjusted by Holm's method within each group; NaN stays NaN and counts for nothing."""
    adjusted = np.full(p_values.shape, np.nan)
    known = np.flatnonzero(np.isfinite(p_values))
    if not len(known):
        return adjusted
    order = known[np.lexsort((p_values[known], groups[known]))]
    ordered = groups[order]
    sizes = np.bincount(ordered)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    left = sizes[ordered] - (np.arange(len(order)) - starts[ordered])
    # Stepping up by 2 from group to group starts the running maximum anew in each.
    stepped = np.maximum.accumulate(np.minimum(1.0, left * p_values[order]) + 2.0 * ordered) - 2.0 * ordered
    adjusted[order] = np.minimum(1.0, stepped)
    return adjusted


def _found(p_values: Numbers, watched: float) -> int:
    """Return how many of the agents Benjamini and Hochberg's procedure reports; those not known count as unsuspicious."""
    ordered = np.sort(p_values)
    below = np.flatnonzero(ordered <= LEVEL * np.arange(1, len(ordered) + 1) / watched)
    return int(below[-1]) + 1 if len(below) else 0


CONFIRMATIONS = 5
# Among so many judgments two outlier verdicts do not decide.
TRUSTED = 5
# How far further judgments may still move a drop, in their standard errors.
REACH = 2.0


@dataclass(frozen=True)
class DecidedFall:
    """The drops of a run with what is decided of them: corrected p-values, and masks of what is a fall.

    ``beyond_*``: beyond its delta. ``fell_*``: beyond it, and more than judge and week explain where that can be tested.
    ``undecided``: dimensions that dropped too far to be passed over, and by no more than judge and week explain.
    """

    dimensions: Drops
    claims: Drops
    p_values: Corrected
    beyond_dimensions: Mask
    beyond_claims: Mask
    fell_dimensions: Mask
    fell_claims: Mask
    undecided: Mask


def decide(
    fleet: Fleet,
    *,
    agents: int,
    watched: int,
    delta: float = REGRESSION_DELTA,
    proposition_delta: float = PROPOSITION_DELTA,
    undecided_delta: float = UNDECIDED_DELTA,
    others: Numbers | None = None,
) -> DecidedFall:
    """Decide what fell in a run.

    Args:
        agents, watched, others: see ``corrected``; agents of the fleet that are not in the run have no ``now`` and no test.
        delta, proposition_delta: points a dimension and a claim may fall.
        undecided_delta: points from which a dimension's drop that may be chance is undecided.
    """
    dimensions, claims = drops_of(fleet)
    at = fleet.agent_of[fleet.dimension_of]
    p_values = corrected(
        dimensions.p_value, fleet.agent_of, claims.p_value, at, agents=agents, watched=watched, others=others
    )
    beyond, beyond_claims = dimensions.fallen > delta + TOLERANCE, claims.fallen > proposition_delta + TOLERANCE
    chance = p_values.dimensions >= LEVEL
    return DecidedFall(
        dimensions,
        claims,
        p_values,
        beyond,
        beyond_claims,
        beyond & ~chance,
        beyond_claims & ~(p_values.claims >= LEVEL),
        beyond & chance & (dimensions.fallen > undecided_delta + TOLERANCE),
    )


def worth_asking(
    fleet: Fleet,
    decided: DecidedFall,
    *,
    watched: int,
    delta: float = REGRESSION_DELTA,
    proposition_delta: float = PROPOSITION_DELTA,
    times: int = CONFIRMATIONS,
) -> Mask:
    """Return the claims to judge again: those that fell beyond their delta, and all of a dimension that did, unless ``times``
    further judgments could not change the answer.

    They could not where the drop would not be significant even if they all spoke for it, nor where it would stay a fall
    even if they all spoke against it.
    """
    at = fleet.dimension_of
    counts = fleet.claims_now.count
    tests = (
        _tests(decided.dimensions, fleet.agent_of),
        _tests(decided.claims, fleet.agent_of[at]),
    )
    fewest = np.full(len(fleet.agent_of), np.inf)
    np.minimum.at(fewest, at, np.where(fleet.weight > 0, counts, np.inf))
    open_dimensions = decided.beyond_dimensions & _open(
        decided.dimensions, tests[0], fewest, share=DIMENSIONS_SHARE, watched=watched, delta=delta, times=times
    )
    open_claims = decided.beyond_claims & _open(
        decided.claims, tests[1], counts, share=CLAIMS_SHARE, watched=watched, delta=proposition_delta, times=times
    )
    judged = (counts > 0) & np.isfinite(fleet.claims_before.mean)
    return judged & (open_claims | (open_dimensions[at] & (fleet.weight > 0)))


def levels_of(drops: Drops, agent_of: Indices, *, watched: int, share: float) -> Numbers:
    """Return the level that each row must pass if no other row of its agent does; see ``level_of``."""
    return level_of(_tests(drops, agent_of), watched, share)


def _tests(drops: Drops, agent_of: Indices) -> Numbers:
    """Return how many rows of each row's agent are tested."""
    return np.bincount(agent_of, np.isfinite(drops.drop))[agent_of].astype(np.float64)


def _open(
    drops: Drops, tests: Numbers, counts: Numbers, *, share: float, watched: int, delta: float, times: int
) -> Mask:
    """Return which answers are still open. What cannot be tested, or rests on a verdict or two, always is."""
    from scipy.special import stdtr

    known = np.isfinite(drops.drop) & (drops.judge_now > 0) & np.isfinite(counts)
    safe = np.where(known, drops.judge_now, 0.0)
    # The mean of all judgments then: those made now keep their share of it.
    total = np.where(known, counts, 1.0) + times
    reach = REACH * np.sqrt(safe * times / total)
    left = np.sqrt(np.maximum(drops.variance - safe + safe * (total - times) / total, 1e-12))
    strictest = level_of(tests, watched, share)
    # Beyond so many agents the level depends on how many fell; at best all of them did.
    mildest = strictest * (watched if watched > MOST_TOGETHER else 1)
    with np.errstate(invalid="ignore"):
        possible = stdtr(drops.degrees, -(drops.drop + reach) / left) < mildest
        certain = (drops.fallen - reach > delta) & (stdtr(drops.degrees, -(drops.drop - reach) / left) < strictest)
    certain &= counts >= TRUSTED
    return ~known | (possible & ~certain)
