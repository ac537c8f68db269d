"""Many tests, few false alarms: dimensions and claims of an agent, and the agents that are watched.

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
from numpy.typing import NDArray

from persona_pipeline.baselines.variance import Numbers

LEVEL = 0.05
DIMENSIONS_SHARE, CLAIMS_SHARE = 0.75, 0.25
MOST_TOGETHER = 20
Indices = NDArray[np.intp]


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
