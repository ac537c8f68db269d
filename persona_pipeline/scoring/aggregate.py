"""The arithmetic from raw judgments to scores (spec/1 and spec/2), all on the 0-9 scale."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence

from persona_pipeline.propositions.dimensions import DIMENSIONS

HIGHEST = 9.0
HARD_FACTOR = 0.8
# Counted and shown, but no part of the overall score.
NOT_IN_OVERALL = frozenset(item.name for item in DIMENSIONS.values() if not item.in_overall)


def final_score(raw: float, *, inverted: bool, hard: bool) -> float:
    """Return the score of a raw judgment: flipped (``9 - raw``) if inverted, then x 0.8 below 9 if hard.

    Raises:
        ValueError: ``raw`` is not within 0-9.
    """
    if not 0 <= raw <= HIGHEST:
        raise ValueError(f"raw score {raw!r} is not within 0-9")
    score = HIGHEST - raw if inverted else raw
    return score * HARD_FACTOR if hard and score < HIGHEST else score


def weighted_mean(pairs: Iterable[tuple[float, float]]) -> float:
    """Return sum(score x weight) / sum(weight) of ``(score, weight)`` pairs.

    Raises:
        ValueError: there is no pair, all weights are 0, or one is not finite.
    """
    pairs = list(pairs)
    # A power of two changes no digit, and sums of huge or tiny weights stay within what a float holds.
    scale = -math.frexp(max((weight for _, weight in pairs), default=0.0))[1]
    pairs = [(score, math.ldexp(weight, scale)) for score, weight in pairs]
    total = math.fsum(weight for _, weight in pairs)
    if not 0 < total < math.inf:
        raise ValueError("nothing to average: no pair has a weight")
    mean = math.fsum(score * weight for score, weight in pairs) / total
    # Rounding must not carry a mean outside its scores: 9 is the top of the scale.
    present = [score for score, weight in pairs if weight]
    return min(max(mean, min(present)), max(present))


def overall_score(dimensions: Mapping[str, float | None]) -> float | None:
    """Return the mean of the scored dimensions, ideas_quantity left out; None when there is none."""
    scores = [score for name, score in dimensions.items() if score is not None and name not in NOT_IN_OVERALL]
    return statistics.fmean(scores) if scores else None


def spread(samples: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the standard deviation (n - 1) and the standard error of samples; ``(None, None)`` below two."""
    if len(samples) < 2:
        return None, None
    deviation = statistics.stdev(samples)
    return deviation, deviation / math.sqrt(len(samples))
