"""What the scores of an interview tell: a mean over scenes, how far sessions agree, and what dropped since another interview.

Scores are arrays of (scenes, sessions) or (dimensions, scenes, sessions), in points (0-9), NaN where there is none. A scene is one
unit: its sessions are repeats of it, and intervals are over scenes.

**Agreement.** The intraclass correlation of one session, one-way, ICC(1,1) of Shrout and Fleiss (1979), with the F interval of
McGraw and Wong (1996): sessions are repeats in no order, not raters that every scene has in common.

**Drops.** A scene's sessions before are compared with its sessions after: Student's t of each mean's drop, one-sided. Its variance
is that of sessions within scenes and of drops between scenes. By Bonferroni over all means, of dimensions, of kinds of scene in
them and of claims, one of them is called wrongly in 5 % of interviews at most. A whole session may have a mood of its own, which
sessions within scenes do not show. So a drop must also be one of sessions: Student's t of their means, each scene's own level taken
off, by Bonferroni over all scenes and their kinds.
"""

import math
from collections.abc import Sequence

import numpy as np

from persona_pipeline.guard.baselines.statistics import LEVEL, Numbers, special
from persona_pipeline.lab.interview.results import MeanChange, Retest

FEWEST_SCENES = 6
# Normal quantile of a power of .8.
_POWER = 0.8416
# A kind of scene has few sessions to learn its variance from: that of its dimension counts as so many degrees of freedom beside
# them. It is never less than that of a whole score by rounding.
_PRIOR, _LEAST_VARIANCE = 12, 1 / 12


def means(values: Numbers) -> Numbers:
    """Return the mean of what is known along the last axis, NaN where nothing is."""
    known = np.isfinite(values)
    return np.where(known, values, 0.0).sum(axis=-1) / np.where(known.any(axis=-1), known.sum(axis=-1), np.nan)


def mean_interval(values: Numbers, lowest: float = 0.0) -> tuple[float | None, float | None, float | None]:
    """Return the mean of scenes and its 95 % interval within ``lowest`` to 9 (Student's t); None below 6 scenes, and of none."""
    if not len(values):
        return None, None, None
    mean = float(values.mean())
    if len(values) < FEWEST_SCENES:
        return mean, None, None
    reach = float(special().stdtrit(len(values) - 1, 0.975)) * float(values.std(ddof=1)) / math.sqrt(len(values))
    return mean, max(lowest, mean - reach), min(9.0, mean + reach)


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


def changes(
    before: Numbers, after: Numbers, groups: Sequence[Sequence[int]], *, whole_only: int = 0
) -> list[list[MeanChange | None]]:
    """Return the change of each dimension's mean over each group of scenes; None where no scene of it has both.

    ``before``, ``after``: (dimensions, scenes, sessions), the same scenes in both. ``whole_only``: so many of the last dimensions
    are reported for the first group alone.
    """
    both, split = np.concatenate([before, after], axis=2), before.shape[2]
    drops, errors, degrees = _drops(before, after, groups)
    drops[len(both) - whole_only :, 1:] = np.nan
    tests = max(1, int(np.isfinite(drops).sum()))
    critical = special().stdtrit(degrees, 1 - LEVEL / tests)
    chances = np.minimum(1.0, tests * special().stdtr(degrees, -drops / errors))
    pairs = np.stack([means(before), means(after)], axis=-1)
    found: list[list[MeanChange | None]] = []
    for dimension, own in enumerate(pairs):
        row: list[MeanChange | None] = []
        for place, scenes in enumerate(groups if dimension < len(pairs) - whole_only else groups[:1]):
            paired = own[list(scenes)]
            paired = paired[np.isfinite(paired).all(axis=1)]
            if not len(paired):
                row.append(None)
                continue
            _, low, high = mean_interval(paired[:, 1] - paired[:, 0], -9.0)
            of_sessions = min(1.0, len(groups) * _of_sessions(both[dimension, list(scenes)], split))
            row.append(
                MeanChange(
                    before=float(paired[:, 0].mean()),
                    after=float(paired[:, 1].mean()),
                    low=low,
                    high=high,
                    p_value=max(float(chances[dimension, place]), of_sessions),
                    detectable=float((critical[dimension, place] + _POWER) * errors[dimension, place]),
                    scenes=len(paired),
                )
            )
        found.append(row)
    return found


def _drops(before: Numbers, after: Numbers, groups: Sequence[Sequence[int]]) -> tuple[Numbers, Numbers, Numbers]:
    """Return the drop of each mean as (dimensions, groups), its standard error, and that one's degrees of freedom; NaN: no pair."""
    member = np.zeros((before.shape[1], len(groups)))
    for place, scenes in enumerate(groups):
        member[list(scenes), place] = 1.0
    counts = [np.isfinite(side).sum(axis=-1) for side in (before, after)]
    paired = (counts[0] > 0) & (counts[1] > 0)
    levels = [means(side) for side in (before, after)]
    drop = np.where(paired, levels[0] - levels[1], 0.0)
    residuals = np.concatenate([before - levels[0][..., None], after - levels[1][..., None]], axis=-1)
    within = np.where(paired, np.nansum(residuals**2, axis=-1), 0.0) @ member
    inverse = np.where(paired, sum(1 / np.maximum(count, 1) for count in counts), 0.0)
    weight = np.divide(1.0, inverse, out=np.zeros(inverse.shape), where=paired)
    scenes = paired @ member
    between = (weight * drop**2) @ member - ((weight * drop) @ member) ** 2 / np.maximum(weight @ member, 1e-9)
    degrees = np.where(paired, counts[0] + counts[1] - 1, 0) @ member - 1
    squares = within + between
    usual = squares[:, :1] / np.maximum(degrees[:, :1], 1)
    variance = np.maximum((squares + _PRIOR * usual) / (degrees + _PRIOR), _LEAST_VARIANCE)
    known = np.where(scenes > 0, scenes, np.nan)
    # What a kind of scene borrows from its dimension is known no better than the dimension.
    freedom = np.clip(degrees + _PRIOR, 1, np.maximum(degrees[:, :1], 1))
    return drop @ member / known, np.sqrt(variance * (inverse @ member)) / known, freedom


def _of_sessions(scores: Numbers, split: int) -> float:
    """Return the p-value of a drop between the first sessions and the others of (scenes, sessions); 0 where too few tell."""
    known = np.isfinite(scores)
    scores = scores[known[:, :split].any(axis=1) & known[:, split:].any(axis=1)]
    told = means((scores - means(scores)[:, None]).T)
    first, last = (side[np.isfinite(side)] for side in (told[:split], told[split:]))
    degrees = len(first) + len(last) - 2
    if degrees < 2 or not (len(first) and len(last)):
        return 0.0
    spread = math.sqrt((len(first) * first.var() + len(last) * last.var()) / degrees * (1 / len(first) + 1 / len(last)))
    drop = float(first.mean() - last.mean())
    return float(special().stdtr(degrees, -drop / spread)) if spread else float(drop <= 0)
