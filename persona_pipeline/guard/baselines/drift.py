"""Slow drift: dimensions that drop over weeks, each week by too little for one comparison."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from persona_pipeline.guard.baselines.statistics import Numbers, special

FEWEST_WINDOWS = 8
# Degrees of freedom of the variance of all series, against those of a single series.
FLEET_DEGREES = 12.0
# A dimension that hardly ever varies is not certain to a hundredth of a point.
SMALLEST_VARIANCE = 0.01
MOST_FALL = 6.0


@dataclass(frozen=True)
class WindowScore:
    """A dimension's score (0-9; None: unscored) in the window that ends at ``end``, from ``judgments`` a claim."""

    end: datetime
    score: float | None
    judgments: int


Series = Mapping[tuple[str, str], Sequence[WindowScore]]


def find_moved(series: Series) -> dict[tuple[str, str], str]:
    """Return the series that surely dropped, by (agent, dimension), each with a sentence.

    ``series``: comparable windows (same claims, judge and prompt) of every watched agent, oldest first: all of them show the usual
    variation. Windows without a score are skipped; a series needs 8 other windows.
    """
    usable = _usable(series)
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


def _usable(series: Series) -> dict[tuple[str, str], list[WindowScore]]:
    found = {
        key: [item for item in windows if item.score is not None and item.judgments > 0]
        for key, windows in series.items()
    }
    return {key: windows for key, windows in found.items() if len(windows) > FEWEST_WINDOWS}


def _table(series: Series) -> Numbers:
    longest = max(map(len, series.values()), default=FEWEST_WINDOWS)
    scores = np.full((len(series), longest), np.nan)
    for row, windows in enumerate(series.values()):
        scores[row, : len(windows)] = [item.score for item in windows]
    return scores


def _steady(scores: Numbers) -> tuple[Numbers, Numbers]:
    """Return each series' variance from window to window, drawn to that of all series, and its degrees of freedom.

    ``scores``: the first windows, which no later drift has touched. The variance of all counts for ``FLEET_DEGREES``.
    """
    known = np.isfinite(scores)
    degrees = np.maximum(known.sum(axis=1) - 1, 0).astype(float)
    levels = np.nansum(scores, axis=1) / np.maximum(known.sum(axis=1), 1)
    squares = np.nansum((scores - levels[:, None]) ** 2, axis=1)
    total = max(float(degrees.sum()), 1.0)
    variance = (FLEET_DEGREES * squares.sum() / total + squares) / (FLEET_DEGREES + degrees)
    return np.maximum(variance, SMALLEST_VARIANCE), np.minimum(FLEET_DEGREES + degrees, total)


def _normal(t: Numbers, degrees: Numbers) -> Numbers:
    """Return t values as normal values of the same probability, limited to ``MOST_FALL``: one window never decides alone."""
    # From the lower tail, where the probability is small and exact.
    size = np.minimum(-special().ndtri(np.maximum(special().stdtr(degrees, -np.abs(t)), 1e-12)), MOST_FALL)
    return np.sign(t) * size


# In standard deviations: each stake detects drops of about its size soonest.
RATES = np.array([0.5, 1.0, 2.0])
# One week alone is never everything.
MOST_WON, MOST_KEPT = 3.0, 0.9
# One fleet of this many has a false alarm in any of its series, however long it is watched.
CERTAIN = 20.0


def winnings(scores: Numbers) -> Numbers:
    """Return the logarithm of an e-process against each series after each window, series x windows; 0 in the first 8.

    See Ramdas, Grünwald, Vovk and Shafer (2023). The distance of each window below the mean of the windows before, in standard
    deviations of the first, is standard normal and independent where weeks are. A stake exp(rate x drop - rate² / 2) has an
    expectation of 1, so by Ville's inequality the product exceeds k times its start, at any time, in at most one of k steady
    series. Weeks that resemble the week before count less. ``scores``: series x windows, NaN after a series' end.
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
    # The part that most series keep from the week before does not count.
    last = np.concatenate([np.zeros((len(off), 1)), off[:, :-1]], axis=1)
    kept, size = (np.cumsum(part, axis=1) - part for part in (off * last, off**2))
    alike = np.clip(np.median(kept / np.maximum(size, 1e-9), axis=0), 0.0, MOST_KEPT)
    fall = np.minimum(_normal((off - alike * last) / np.sqrt(1 - alike**2), degrees[:, None]), MOST_WON)
    held = np.cumsum(np.where(bets, RATES[:, None, None] * fall - RATES[:, None, None] ** 2 / 2, 0.0), axis=2)
    top = held.max(axis=0)
    return top + np.log(np.exp(held - top).mean(axis=0))
