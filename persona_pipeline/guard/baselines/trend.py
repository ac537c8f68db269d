"""Slow drift: a dimension that falls a little each week, never by so much that one comparison would see it.

A one-sided CUSUM (Page, 1954) over an agent's windows: how far each fell below the level so far, in standard deviations that
are pooled over the fleet, less an allowance; the sum starts anew from 0 whenever it gets there, and the windows up to then make
up the level. So a baseline that is taken again resets nothing, and the last zero tells when a drift began.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from persona_pipeline.guard.baselines.variance import Mask, Numbers, moderated, prior_of, variances

FEWEST_WINDOWS = 8
FEWEST_JUDGMENTS = 3
# Found by benchmarks/simulations.py trend: 0.4 % of steady series alarm in their first 6 weeks, 7 % in 24.
ALLOWANCE, LIMIT = 0.5, 6.0
# The sum goes no higher, so that what recovered stops being a trend within weeks.
HIGHEST = 1.5 * LIMIT
# A dimension that hardly ever varies is not certain to a hundredth of a point.
SMALLEST_VARIANCE = 0.01
MOST = 6.0


@dataclass(frozen=True)
class WindowScore:
    """A dimension's score (0-9; None: unscored) in the window that ends at ``end``, from ``judgments`` a claim."""

    end: datetime
    score: float | None
    judgments: int


@dataclass(frozen=True)
class Trend:
    """A dimension that has been falling.

    Attributes:
        began: end of the first window of the fall.
        windows: of the fall so far.
        before: mean score (0-9) of the windows before. now: score of the newest window.
        strength: the sum beside its limit; above 1 is a trend.
    """

    began: datetime
    windows: int
    before: float
    now: float
    strength: float

    def text(self, agent_id: str, dimension: str) -> str:
        """Return the finding in one sentence."""
        return (
            f"{agent_id}: {dimension} has been falling since the week of {self.began:%d %b %Y}: from {self.before:.1f} to "
            f"{self.now:.1f} in {self.windows} windows; compare what the agent wrote before and after, and what changed then"
        )


def find_trends(series: Mapping[tuple[str, str], Sequence[WindowScore]]) -> dict[tuple[str, str], Trend]:
    """Return the series, by (agent, dimension), that are falling now.

    Args:
        series: windows judged alike (the same claims, judge and prompt), oldest first, of every agent that is watched: what a
            steady dimension does is learnt from all. Windows without a score or with fewer than 3 judgments a claim are
            passed over; a series needs 8 others before it can have a trend.
    """
    usable = {
        key: [item for item in windows if item.score is not None and item.judgments >= FEWEST_JUDGMENTS]
        for key, windows in series.items()
    }
    usable = {key: windows for key, windows in usable.items() if len(windows) > FEWEST_WINDOWS}
    if not usable:
        return {}
    longest = max(len(windows) for windows in usable.values())
    scores = np.full((len(usable), longest), np.nan)
    for row, windows in enumerate(usable.values()):
        scores[row, : len(windows)] = [item.score for item in windows]
    sums, zeros = cusum(scores)
    found = {}
    for row, (key, windows) in enumerate(usable.items()):
        last, zero = len(windows) - 1, int(zeros[row, len(windows) - 1])
        if sums[row, last] > LIMIT:
            found[key] = Trend(
                began=windows[zero + 1].end,
                windows=last - zero,
                before=float(np.mean(scores[row, : zero + 1])),
                now=float(scores[row, last]),
                strength=float(sums[row, last] / LIMIT),
            )
    return found


def cusum(scores: Numbers, *, allowance: float = ALLOWANCE) -> tuple[Numbers, np.ndarray]:
    """Return the sum after each window and the index of its last zero, both series x windows.

    Args:
        scores: series x windows, NaN after a series' end; sums stay 0 during the first 8.
    """
    variance, degrees = _steady(scores)
    sums, zeros = np.zeros(scores.shape), np.zeros(scores.shape, dtype=int)
    last = np.full(len(scores), min(FEWEST_WINDOWS, scores.shape[1]) - 1)
    total = np.nansum(scores[:, :FEWEST_WINDOWS], axis=1)
    level_count = np.isfinite(scores[:, :FEWEST_WINDOWS]).sum(axis=1)
    pending = np.zeros(len(scores))
    value = np.zeros(len(scores))
    zeros[:, :FEWEST_WINDOWS] = np.arange(min(FEWEST_WINDOWS, scores.shape[1]))
    for window in range(FEWEST_WINDOWS, scores.shape[1]):
        now = scores[:, window]
        known = np.isfinite(now)
        level = total / np.maximum(level_count, 1)
        error = np.sqrt(variance * (1 + 1 / np.maximum(level_count, 1)))
        fall = _normal((level - np.where(known, now, level)) / error, degrees)
        value = np.where(known, np.clip(value + fall - allowance, 0.0, HIGHEST), value)
        pending += np.where(known, now, 0.0)
        back: Mask = known & (value <= 0)
        total = np.where(back, total + pending, total)
        level_count = np.where(back, level_count + window - last, level_count)
        last = np.where(back, window, last)
        pending = np.where(back, 0.0, pending)
        sums[:, window], zeros[:, window] = value, last
    return sums, zeros


def _steady(scores: Numbers) -> tuple[Numbers, Numbers]:
    """Return each series' variance from window to window, drawn to the fleet's, and its degrees of freedom.

    Read off the first windows, which no later drift has touched.
    """
    first = scores[:, :FEWEST_WINDOWS]
    degrees = np.maximum(np.isfinite(first).sum(axis=1) - 1, 0).astype(float)
    own = variances(first)
    prior = prior_of(own, degrees, SMALLEST_VARIANCE)
    variance, freedom = moderated(own, degrees, prior, float(degrees.sum()))
    return np.maximum(variance, SMALLEST_VARIANCE), freedom


def _normal(t: Numbers, degrees: Numbers) -> Numbers:
    """Return t values as the normal ones of the same probability, at most ``MOST`` either way: one window is never everything."""
    from scipy.special import ndtri, stdtr

    # From the lower tail, where the probability is small and exact.
    size = np.minimum(-ndtri(np.maximum(stdtr(degrees, -np.abs(t)), 1e-12)), MOST)
    return np.sign(t) * size
