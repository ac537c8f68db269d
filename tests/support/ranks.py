"""Rank correlation with an interval, for pages that compare two readers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t

from persona_pipeline.guard.baselines.models import Measure
from persona_pipeline.guard.baselines.statistics import Numbers

_HIGHEST = 1 - 1e-12
_LEAST = 1e-6


def spearman(a: Sequence[float], b: Sequence[float]) -> Measure:
    """Return the rank correlation (-1 to 1); of lists of which one is all alike there is none.

    The interval is the infinitesimal jackknife's (Efron, Annals of Statistics 9, 1981) on Fisher's z. It knows of ties: formulas
    for ranks without ties cover .80 to .93 where people's ratings have two peaks.
    """
    count = len(a)
    if count < 4 or len(set(a)) < 2 or len(set(b)) < 2:
        return Measure(n=count)
    first, second = _Ranks.of(a), _Ranks.of(b)
    both, own, others = (
        float(x @ y) / count for x, y in ((first.x, second.x), (first.x, first.x), (second.x, second.x))
    )
    r = both / math.sqrt(own * others)
    # What one pair does to the three means, through its own ranks and through everybody else's.
    moves = first.x * second.x + first.above(second.x) + second.above(first.x)
    moves = moves / math.sqrt(own * others)
    for ranks, spread in ((first, own), (second, others)):
        moves -= r / 2 * (ranks.x**2 + 2 * ranks.above(ranks.x)) / spread
    error = float(moves.std()) / math.sqrt(count - 1) / max(1 - r * r, _LEAST)
    half = float(t.ppf(0.975, count - 1)) * error
    z = math.atanh(max(-_HIGHEST, min(_HIGHEST, r)))
    return Measure(value=r, low=math.tanh(z - half), high=math.tanh(z + half), n=count)


@dataclass(frozen=True)
class _Ranks:
    """``x``: mid-ranks as a share of the count, around 0; ``place``: of each among the distinct values."""

    x: Numbers
    place: NDArray[np.intp]

    @classmethod
    def of(cls, values: Sequence[float]) -> "_Ranks":
        _, place, counts = np.unique(np.asarray(values, dtype=np.float64), return_inverse=True, return_counts=True)
        middle = np.cumsum(counts) - counts / 2
        return cls((middle / len(place) - 0.5)[place], place)

    def above(self, weights: Numbers) -> Numbers:
        """Return, for each value, the mean weight of those above it, ties by half."""
        sums = np.bincount(self.place, weights)
        return ((sums.sum() - np.cumsum(sums) + sums / 2) / len(weights))[self.place]
