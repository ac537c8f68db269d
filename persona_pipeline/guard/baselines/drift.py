"""Scores over weeks: whether they have been falling, each time by too little for one comparison to see, and whether for certain."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from persona_pipeline.guard.baselines.variance import Mask, Numbers, moderated, prior_of, special, variances

FEWEST_WINDOWS = 8
FEWEST_JUDGMENTS = 3
# Found by benchmarks/weeks.py trend: 0.4 % of steady series alarm in their first 6 weeks, 7 % in 24.
ALLOWANCE, LIMIT = 0.5, 6.0
# The sum goes no higher, so that what recovered stops being a trend within weeks.
MOST_SUM = 1.5 * LIMIT
# A dimension that hardly ever varies is not certain to a hundredth of a point.
SMALLEST_VARIANCE = 0.01
MOST_FALL = 6.0


@dataclass(frozen=True)
class WindowScore:
    """A dimension's score (0-9; None: unscored) in the window that ends at ``end``, from ``judgments`` a claim."""

    end: datetime
    score: float | None
    judgments: int


@dataclass(frozen=True)
class Trend:
    """A dimension that has been falling.

    ``began``: end of the first window of the fall. ``windows``: of the fall so far. ``before``: mean score (0-9) of the windows
    before. ``now``: score of the newest window. ``strength``: the sum beside its limit; above 1 is a trend.
    """

    began: datetime
    windows: int
    before: float
    now: float
    strength: float

    def text(self, agent_id: str, dimension: str) -> str:
        """Return the finding in one sentence."""
        return (
            f"{agent_id}: {dimension} has been dropping since the week of {self.began:%d %b %Y}: from {self.before:.1f} to "
            f"{self.now:.1f} in {self.windows} windows; compare what the agent wrote before and after, and what changed then"
        )


Series = Mapping[tuple[str, str], Sequence[WindowScore]]


def find_trends(series: Series) -> dict[tuple[str, str], Trend]:
    """Return the series, by (agent, dimension), that are falling now.

    ``series``: windows judged alike (the same claims, judge and prompt), oldest first, of every agent that is watched: what a
    steady dimension does is learnt from all. Windows without a score or with fewer than 3 judgments a claim are passed over; a
    series needs 8 others before it can have a trend.
    """
    usable = _usable(series, FEWEST_JUDGMENTS)
    scores = _table(usable)
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


def find_moved(series: Series) -> dict[tuple[str, str], str]:
    """Return the series that have fallen for certain, by (agent, dimension), each with a sentence.

    ``series``: as for ``find_trends``, however often they were judged.
    """
    usable = _usable(series, 1)
    scores = _table(usable)
    held, found = winnings(scores), {}
    for row, ((agent_id, dimension), windows) in enumerate(usable.items()):
        own = held[row, : len(windows)]
        if own[-1] > np.log(CERTAIN * len(usable)):
            began = FEWEST_WINDOWS + int(np.argmin(own[FEWEST_WINDOWS - 1 : -1]))
            before, since = float(scores[row, :began].mean()), float(scores[row, began : len(windows)].mean())
            found[agent_id, dimension] = (
                f"{agent_id}: {dimension} has truly moved since the week of {windows[began].end:%d %b %Y}: {before:.1f} before, "
                f"{since:.1f} since; chance alone says so in one fleet of {CERTAIN:.0f}, however long it is watched"
            )
    return found


def _usable(series: Series, judgments: int) -> dict[tuple[str, str], list[WindowScore]]:
    found = {
        key: [item for item in windows if item.score is not None and item.judgments >= judgments]
        for key, windows in series.items()
    }
    return {key: windows for key, windows in found.items() if len(windows) > FEWEST_WINDOWS}


def _table(series: Series) -> Numbers:
    longest = max(map(len, series.values()), default=FEWEST_WINDOWS)
    scores = np.full((len(series), longest), np.nan)
    for row, windows in enumerate(series.values()):
        scores[row, : len(windows)] = [item.score for item in windows]
    return scores


def cusum(scores: Numbers) -> tuple[Numbers, np.ndarray]:
    """Return the sum after each window and the index of its last zero, both series x windows.

    A one-sided CUSUM (Page, 1954) over an agent's windows: how far each fell below the level so far, in standard deviations that
    are pooled over the fleet, less an allowance; the sum starts anew from 0 whenever it gets there, and the windows up to then
    make up the level. So a baseline that is taken again resets nothing, and the last zero tells when a drift began. ``scores``:
    series x windows, NaN after a series' end; sums stay 0 during the first 8.
    """
    variance, degrees = _steady(scores[:, :FEWEST_WINDOWS])
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
        value = np.where(known, np.clip(value + fall - ALLOWANCE, 0.0, MOST_SUM), value)
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

    ``scores``: the first windows, which no later drift has touched.
    """
    degrees = np.maximum(np.isfinite(scores).sum(axis=1) - 1, 0).astype(float)
    own = variances(scores)
    prior = prior_of(own, degrees, SMALLEST_VARIANCE)
    variance, freedom = moderated(own, degrees, prior, float(degrees.sum()))
    return np.maximum(variance, SMALLEST_VARIANCE), freedom


def _normal(t: Numbers, degrees: Numbers) -> Numbers:
    """Return t values as the normal ones of the same probability, at most ``MOST_FALL`` off: one window is never everything."""
    # From the lower tail, where the probability is small and exact.
    size = np.minimum(-special().ndtri(np.maximum(special().stdtr(degrees, -np.abs(t)), 1e-12)), MOST_FALL)
    return np.sign(t) * size


# In standard deviations: falls of about as many of them win soonest.
RATES = np.array([0.5, 1.0, 2.0])
# One week alone is never everything.
MOST_WON, MOST_KEPT = 3.0, 0.9
# Among all series of a fleet together, one such winning is chance in one fleet of so many, however long it is watched.
CERTAIN = 20.0


def winnings(scores: Numbers) -> Numbers:
    """Return the logarithm of what is held after each window by who bets that scores fall, series x windows; 0 in the first 8.

    An e-process (Ramdas, Grünwald, Vovk and Shafer, 2023). How far each window lies below the mean of those before, in standard
    deviations of the first, is a normal number independent of the others where weeks are. A stake exp(rate x fall - rate² / 2) on
    it wins nothing on average, so by Ville's inequality it holds as much as k times what it began with, at any time, in one of k
    series at most. Weeks that resemble the week before win a little. ``scores``: series x windows, NaN after a series' end;
    judged alike and of weeks that do not overlap.
    """
    if not len(scores):
        return np.zeros(scores.shape)
    known = np.isfinite(scores)
    values, count = np.where(known, scores, 0.0), np.cumsum(known, axis=1) - known
    level = (np.cumsum(values, axis=1) - values) / np.maximum(count, 1)
    variance, degrees = _steady(scores[:, :FEWEST_WINDOWS])
    error = np.sqrt(variance[:, None] * (1 + 1 / np.maximum(count, 1)))
    bets = known & (count >= FEWEST_WINDOWS)
    off = np.where(bets, (level - values) / error, 0.0)
    # What most series keep of the week before is no news.
    last = np.concatenate([np.zeros((len(off), 1)), off[:, :-1]], axis=1)
    kept, size = (np.cumsum(part, axis=1) - part for part in (off * last, off**2))
    alike = np.clip(np.median(kept / np.maximum(size, 1e-9), axis=0), 0.0, MOST_KEPT)
    fall = np.minimum(_normal((off - alike * last) / np.sqrt(1 - alike**2), degrees[:, None]), MOST_WON)
    held = np.cumsum(np.where(bets, RATES[:, None, None] * fall - RATES[:, None, None] ** 2 / 2, 0.0), axis=2)
    top = held.max(axis=0)
    return top + np.log(np.exp(held - top).mean(axis=0))
