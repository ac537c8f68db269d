"""What a comparison is made of, as columns of numbers: every claim and dimension of the agents that are watched."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from persona_pipeline.baselines.variance import (
    MEDIAN_FACTOR,
    MEDIAN_FROM,
    Numbers,
    Repeats,
    lower_variances,
    means,
    variances,
)

Indices = NDArray[np.intp]
Mask = NDArray[np.bool_]


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
        judge: what repeated judgments say, summed over windows; zeros for dimensions.
    """

    mean: Numbers
    median: Numbers
    windows: Numbers
    between: Numbers
    between_medians: Numbers
    below: Numbers
    below_medians: Numbers
    count: Numbers
    judge: Repeats

    @classmethod
    def over_windows(cls, window_means: Numbers, window_medians: Numbers, counts: Numbers, judge: Repeats) -> "Level":
        """Return the level of rows from their windows.

        Args:
            window_means, window_medians: rows x windows, NaN where a row has no score in a window.
            counts: judgments, rows x windows.
            judge: what ``repeats`` says of each row, summed over its windows.
        """
        windows = np.isfinite(window_means).sum(axis=-1).astype(float)
        count = np.where(np.isfinite(window_means), counts, 0.0).sum(axis=-1)
        often = count >= (MEDIAN_FROM - 0.5) * np.maximum(windows, 1)
        often &= np.isfinite(window_medians).sum(axis=-1) == windows
        return cls(
            mean=means(window_means),
            median=np.where(often, means(window_medians), np.nan),
            windows=windows,
            between=variances(window_means),
            between_medians=np.where(often, variances(window_medians), np.nan),
            below=lower_variances(window_means),
            below_medians=np.where(often, lower_variances(window_medians), np.nan),
            count=count,
            judge=judge,
        )


@dataclass(frozen=True)
class Fleet:
    """Every claim and dimension of the agents that are watched. Agents that are not in the run have no ``after``.

    Attributes:
        claims_before, claims_now: a row a claim.
        dimensions_before, dimensions_now: a row a dimension of an agent.
        dimension_of: the dimension's row of each claim.
        agent_of: the agent of each dimension's row.
        weight, weight_before: of each claim in its dimension's score now and in the baseline, 0-1; they sum to the judged
            share of the score.
        same: whether both sides of a dimension judged the same messages.
    """

    claims_before: Level
    claims_now: Level
    dimensions_before: Level
    dimensions_now: Level
    dimension_of: Indices
    agent_of: Indices
    weight: Numbers
    weight_before: Numbers
    same: NDArray[np.bool_]


def centre(level: Level, robust: Mask) -> tuple[Numbers, Numbers]:
    """Return each row's score, of medians where ``robust`` says so and they are known, and how much more a median varies."""
    used = robust & np.isfinite(level.median)
    return np.where(used, level.median, level.mean), np.where(used, MEDIAN_FACTOR, 1.0)


def by_group(groups: Indices, values: Numbers, count: int = 0) -> Numbers:
    """Return the sum of the values of each group."""
    return np.bincount(groups, values, minlength=count).astype(np.float64)
