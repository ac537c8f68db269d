"""What counts as a fall, and what is worth asking the judge again before it is called one."""

from dataclasses import dataclass

import numpy as np

from persona_pipeline.baselines.families import (
    CLAIMS_SHARE,
    DIMENSIONS_SHARE,
    LEVEL,
    MOST_TOGETHER,
    Corrected,
    corrected,
    level_of,
)
from persona_pipeline.baselines.level import Fleet, Indices, Mask
from persona_pipeline.baselines.noise import Drops, drops_of
from persona_pipeline.baselines.regression import PROPOSITION_DELTA, REGRESSION_DELTA, TOLERANCE, UNDECIDED_DELTA
from persona_pipeline.baselines.variance import Numbers

CONFIRMATIONS = 5
# Among so many judgments two outlier verdicts do not decide.
TRUSTED = 5
# How far further judgments may still move a drop, in their standard errors.
REACH = 2.0


@dataclass(frozen=True)
class Decided:
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
) -> Decided:
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
    return Decided(
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
    decided: Decided,
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
