"""What the scores of an interview tell: a mean over scenes, how far sessions agree, and what dropped since another interview.

Scores are arrays of (scenes, sessions) in points (0-9), NaN where there is none. A scene is one unit: its sessions are repeats of
it, and intervals are over scenes.

**Agreement.** The intraclass correlation of one session, one-way, ICC(1,1) of Shrout and Fleiss (1979), with the F interval of
McGraw and Wong (1996): sessions are repeats in no order, not raters that every scene has in common.

**Drops.** Student's t of the mean drop over scenes, one-sided. How much sessions of a scene differ is learnt from the earlier
interview alone, drawn towards a usual value: the interview that is judged never widens its own limits, so that a lower score
never makes a verdict better.
"""

import math

import numpy as np

from persona_pipeline.guard.baselines.statistics import LEVEL
from persona_pipeline.guard.baselines.variance import Numbers, special
from persona_pipeline.lab.interview.results import MeanChange, Retest

FEWEST_SCENES = 6
# Variance of one conversation's score in points squared, as assumed; its degrees of freedom; and the least, by rounding alone.
GUESS, GUESS_DEGREES, LEAST_VARIANCE = 1.5**2, 12, 1 / 12
_POWER = 0.8


def means(values: Numbers) -> Numbers:
    """Return the mean of what is known along the last axis, NaN where nothing is."""
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


def retest(scores: Numbers) -> Retest:
    """Return how far the sessions of (scenes, sessions) agree, over the scenes that have a score in each."""
    whole = scores[np.isfinite(scores).all(axis=1)]
    scenes, sessions = whole.shape
    if scenes < FEWEST_SCENES or sessions < 2:
        return Retest(scenes=scenes, sessions=sessions, why_not=f"{FEWEST_SCENES} scenes in two sessions are needed")
    between = sessions * float(whole.mean(axis=1).var(ddof=1))
    within = float(whole.var(axis=1, ddof=1).mean())
    degrees = scenes * (sessions - 1)
    told = Retest(scenes=scenes, sessions=sessions, sd=math.sqrt(within))
    if not within:
        return told.model_copy(update={"why_not": "every scene has the same score in each session"})
    ratio = between / within
    low = ratio / float(special().fdtri(scenes - 1, degrees, 0.975))
    high = ratio * float(special().fdtri(degrees, scenes - 1, 0.975))
    icc = [max(-1.0, (each - 1) / (each + sessions - 1)) for each in (ratio, low, high)]
    return told.model_copy(update=dict(zip(("icc", "low", "high"), icc, strict=True)))


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
    reach = float(special().stdtrit(degrees, 0.975)) * error
    wanted = float(special().stdtrit(degrees, 1 - LEVEL / tests)) + float(special().stdtrit(degrees, _POWER))
    return MeanChange(
        before=first,
        after=last,
        low=max(-9.0, last - first - reach),
        high=min(9.0, last - first + reach),
        p_value=min(1.0, tests * float(special().stdtr(degrees, (last - first) / error))),
        detectable=wanted * error,
        scenes=scenes,
    )
