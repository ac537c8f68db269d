"""Tests of the lab: paired differences that may be looked at after each one, and means over the scenes of an interview.

**Paired differences.** If two versions are the same, the sign of each difference is a coin flip, whatever the noise of the judge:
the two could change places. A bet on the signs then wins nothing on average, even if the stake depends on the size. The wealth of
the bets is a test martingale: by Ville's inequality it exceeds 1 / alpha in at most a share alpha of runs, at any stopping time.
The stake is tanh(rate x size), with three rates for small and large changes. Bets on a drop and on a rise are separate and learn
nothing from earlier differences, so one more lower scene never makes a drop less certain. After Howard, Ramdas, McAuliffe and
Sekhon (2020, time-uniform Chernoff bounds, the symmetric case) and Waudby-Smith and Ramdas (2024, betting). The interval assumes
symmetric noise.

**Interviews.** Scores are arrays of (scenes, sessions) in points (0-9), NaN where there is none. A scene is one unit and its
sessions are repeats, so intervals are over scenes. Drops are tested as the guard tests drops of scores. The spread of sessions is
learnt from the earlier interview alone, drawn towards a usual value, so the judged interview never widens its own limits.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from persona_pipeline.guard.baselines.regression import DropTest
from persona_pipeline.guard.baselines.statistics import LEVEL, Numbers, special
from persona_pipeline.lab.results import MeanChange

# Per point, and what each begins with. Measured: as quick as rates that adapt to the spread of the differences.
RATES, SHARES = np.array([0.2, 0.7, 2.5]), np.array([0.25, 0.25, 0.5])
# A stake is never everything.
_LARGEST_STAKE = 1.0 - 1e-7
# The largest change of a score.
WIDEST = 9.0
# Halvings of the range of changes: to a ten-thousandth of a point.
_HALVINGS = 18


@dataclass(frozen=True)
class PairedChange:
    """Evidence of paired differences. P-values (0-1) are one-sided and hold after any number of looks.

    Attributes:
        fell, rose: of no drop, and of no rise.
        lower, higher: of a drop, or a rise, by the margin or more.
    """

    fell: float
    rose: float
    lower: float
    higher: float


def paired_change(differences: Sequence[float], margin: float) -> PairedChange:
    """Return what differences say, after the last of them.

    ``differences``: after minus before, in the order they came. ``margin``: a change that matters, above 0.
    """
    values = np.asarray(differences, dtype=float)
    return PairedChange(_p_value(-values), _p_value(values), _p_value(values + margin), _p_value(margin - values))


def paired_interval(differences: Sequence[float], level: float) -> tuple[float, float]:
    """Return the confidence sequence of the change after the last difference: its lower and upper end.

    ``level``: share (0-1) of runs in which it may miss the change at some time.
    """
    values = np.asarray(differences, dtype=float)
    return _low_end(values, level / 2), -_low_end(-values, level / 2)


def log_wealth(values: Numbers) -> Numbers:
    """Return the log of the wealth after each value of bets that values are above 0; it begins with one unit."""
    stakes = np.clip(np.tanh(RATES[:, None] * values), -_LARGEST_STAKE, _LARGEST_STAKE)
    held = np.cumsum(np.log1p(stakes), axis=1) + np.log(SHARES)[:, None]
    return np.logaddexp.reduce(held, axis=0)


def _p_value(values: Numbers) -> float:
    """Return the p-value that values are not above 0."""
    return min(1.0, math.exp(-float(log_wealth(values).max(initial=0.0))))


def _low_end(values: Numbers, level: float) -> float:
    """Return the largest change that values are shown to be above; ``-WIDEST``: none."""
    low, high = -WIDEST, WIDEST
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _p_value(values - middle) <= level else (low, middle)
    return low


FEWEST_SCENES = 6
# Assumed variance of a conversation's score in points squared; its degrees of freedom; and the least, by rounding alone.
GUESS, GUESS_DEGREES, LEAST_VARIANCE = 1.8**2, 12, 1 / 12


def means(values: Numbers) -> Numbers:
    """Return the mean of known values along the last axis, NaN without any."""
    known = np.isfinite(values)
    return np.where(known, values, 0.0).sum(axis=-1) / np.where(known.any(axis=-1), known.sum(axis=-1), np.nan)


def mean_interval(values: Numbers) -> tuple[float | None, float | None, float | None]:
    """Return the mean of scenes and its 95 % interval within 0 to 9 (Student's t); None below 6 scenes, and of none."""
    if not len(values):
        return None, None, None
    mean = float(values.mean())
    if len(values) < FEWEST_SCENES:
        return mean, None, None
    reach = float(special().stdtrit(len(values) - 1, 0.975)) * float(values.std(ddof=1)) / math.sqrt(len(values))
    return mean, max(0.0, mean - reach), min(9.0, mean + reach)


def variance_of(scores: Numbers, usual: float = GUESS, least: float = LEAST_VARIANCE) -> tuple[float, int]:
    """Return the variance between sessions of a scene, drawn towards a usual one, and its degrees of freedom."""
    degrees = int(np.maximum(np.isfinite(scores).sum(axis=1) - 1, 0).sum())
    squares = float(np.nansum((scores - means(scores)[:, None]) ** 2))
    drawn = (GUESS_DEGREES * usual + squares) / (GUESS_DEGREES + degrees)
    return max(drawn, least), GUESS_DEGREES + degrees


def change_of(before: Numbers, after: Numbers, variance: tuple[float, int], tests: int) -> MeanChange | None:
    """Return the change of a mean over scenes that both interviews have; None where no scene is scored in both.

    ``variance``: between sessions of a scene, and its degrees of freedom. ``tests``: how many means are tested together.
    """
    known = [np.isfinite(side).sum(axis=1) for side in (before, after)]
    paired = (known[0] > 0) & (known[1] > 0)
    scenes = int(paired.sum())
    if not scenes:
        return None
    first, last = (float(means(side[paired]).mean()) for side in (before, after))
    size, degrees = variance
    error = math.sqrt(size * sum(float((1 / count[paired]).sum()) for count in known)) / scenes
    test = DropTest(error, degrees, LEVEL / tests)
    low, high = test.interval(last - first)
    return MeanChange(
        before=first,
        after=last,
        low=max(-WIDEST, low),
        high=min(WIDEST, high),
        p_value=test.p_value(first - last),
        detectable=test.detectable(0.0),
        scenes=scenes,
    )
