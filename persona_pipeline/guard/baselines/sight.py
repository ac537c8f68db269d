"""What a comparison can see: the interval of a drop, the smallest fall that is reported, and what it takes to see a smaller one."""

import math

import numpy as np

from persona_pipeline.guard.baselines.models import Sight
from persona_pipeline.guard.baselines.noise import SOURCES, Drops
from persona_pipeline.guard.baselines.variance import Numbers, special

CONFIDENCE = 0.95
POWER = 0.8
# What a dimension should see beyond what it may fall.
NEAR = 0.5
MOST_JUDGMENTS, MOST_WINDOWS = 15, 26


def interval(drops: Drops) -> tuple[Numbers, Numbers]:
    """Return the two-sided 95 % interval of each drop (NaN: not tested)."""
    reach = special().stdtrit(drops.degrees, (1 + CONFIDENCE) / 2) * np.sqrt(drops.variance)
    return drops.drop - reach, drops.drop + reach


def detectable(drops: Drops, levels: Numbers, delta: float) -> Numbers:
    """Return the fall of each row that is reported in four of five runs, in points; NaN where nothing is tested.

    It must pass its test, and be seen beyond ``delta``. ``levels``: of the one-sided test of each row, corrections included.
    """
    error = np.sqrt(drops.variance)
    test, more = _quantiles(drops, levels)
    return np.where(np.isfinite(drops.drop), np.maximum((test + more) * error, delta + more * error), np.nan)


def sight_of(drops: Drops, levels: Numbers, row: int, delta: float) -> Sight:
    """Return what a row could have seen, and what would let it see a fall of ``delta`` + 0.5, its degrees of freedom as they are.

    Nothing is needed where it does already; None: no amount does, within reason. What weeks do is no error of sampling, as far as
    is known: neither judgments nor messages take it away.
    """
    test, more = (float(part[row]) for part in _quantiles(drops, levels))

    def seen(variance: float) -> float:
        return max((test + more) * variance**0.5, delta + more * variance**0.5)

    target = delta + NEAR
    allowed = min(target / (test + more), NEAR / more) ** 2
    before, now, one = (float(part[row]) for part in (drops.judge_before, drops.judge_now, drops.one))
    week, windows, weeks = float(drops.week[row]), max(1.0, float(drops.windows[row])), float(drops.week_part[row])
    found = Sight(
        detectable=seen(float(drops.variance[row])),
        judge=one**0.5 or None,
        week=week**0.5,
        week_from=SOURCES[drops.source[row]],
        windows=int(drops.windows[row]),
        target=target,
        limit=seen(weeks) if weeks > 0 else None,
    )
    if found.detectable > target:
        needed = {
            "judgments": _whole(one * (1 + 1 / windows), allowed - weeks, MOST_JUDGMENTS) if one > 0 else None,
            "windows_needed": _whole(before * windows + week, allowed - now - week, MOST_WINDOWS)
            if weeks > 0
            else None,
        }
        found = found.model_copy(update=needed)
    return found.model_copy(update={"text": sees(found)})


def sees(sight: Sight) -> str:
    """Return in one sentence which drops a window shows and what a smaller one needs."""
    smallest, target = sight.detectable, sight.target
    text = f"smallest detectable drop {smallest:.1f}"
    if sight.missed:
        text = f"low power: {sight.missed} would be missed"
    if smallest <= target:
        return text
    ways = [
        f"{count} {what}"
        for count, what in ((sight.judgments, "judgments a claim"), (sight.windows_needed, "windows in the baseline"))
        if count
    ]
    text += f"; to detect {target:.1f}: {' or '.join(ways) or 'more judgments and windows together'}"
    if sight.limit is None:
        return text
    return f"{text} (judgments alone: not below {sight.limit:.1f})"


def _quantiles(drops: Drops, levels: Numbers) -> tuple[Numbers, Numbers]:
    return -special().stdtrit(drops.degrees, levels), special().stdtrit(drops.degrees, POWER)


def _whole(part: float, room: float, most: int) -> int | None:
    """Return the smallest whole n with part / n <= room, None beyond ``most``."""
    if room <= 0 or part <= 0:
        return None
    count = math.ceil(part / room - 1e-9)
    return count if count <= most else None
