"""What a window can see: the interval of a drop, the smallest fall that would be seen, and what it takes to see a smaller one."""

import math
from dataclasses import dataclass

import numpy as np

from persona_pipeline.baselines.noise import Drops
from persona_pipeline.baselines.variance import Numbers

CONFIDENCE = 0.95
POWER = 0.8
TARGET = 1.0
# A dimension that cannot see a fall of so many points guards little.
BLIND = 2.0
MOST_JUDGMENTS, MOST_WINDOWS, MOST_MESSAGES = 15, 26, 2000


@dataclass(frozen=True)
class Needs:
    """Any one of these makes a fall of ``TARGET`` points visible; None: no amount of it does, within reason.

    Attributes:
        messages: of the agent in a window, if what a week does to a score shrinks with how much was said.
        judgments: of a claim, for baseline and run.
        windows: in the baseline.
    """

    messages: int | None = None
    judgments: int | None = None
    windows: int | None = None


def interval(drops: Drops, confidence: float = CONFIDENCE) -> tuple[Numbers, Numbers]:
    """Return the two-sided confidence interval of each drop (NaN: not tested)."""
    from scipy.special import stdtrit

    reach = stdtrit(drops.degrees, (1 + confidence) / 2) * np.sqrt(drops.variance)
    return drops.drop - reach, drops.drop + reach


def detectable(drops: Drops, levels: Numbers, power: float = POWER) -> Numbers:
    """Return the fall of each row that is told from judge and week with this power, in points; NaN where nothing is tested.

    Args:
        levels: of the one-sided test of each row, corrections included. A fall must also be beyond spec/2's delta.
    """
    return np.where(np.isfinite(drops.drop), _quantiles(drops, levels, power) * np.sqrt(drops.variance), np.nan)


def needs(drops: Drops, levels: Numbers, row: int, messages: int | None, target: float = TARGET) -> Needs:
    """Return what would let a row see a fall of ``target`` points with power ``POWER``, its degrees of freedom as they are.

    Nothing where it does already.

    Args:
        messages: that the agent said in the window; None: unknown.
    """
    allowed = float((target / _quantiles(drops, levels, POWER)[row]) ** 2)
    if float(drops.variance[row]) <= allowed:
        return Needs()
    before, now, one = (float(part[row]) for part in (drops.judge_before, drops.judge_now, drops.one))
    week, windows = float(drops.week[row]), max(1.0, float(drops.windows[row]))
    weeks = float(drops.week_part[row])
    return Needs(
        messages=_whole(weeks * (messages or 0), allowed - before - now, MOST_MESSAGES) if weeks > 0 else None,
        judgments=_whole(one * (1 + 1 / windows), allowed - weeks, MOST_JUDGMENTS) if one > 0 else None,
        windows=_whole(before * windows + week, allowed - now - week, MOST_WINDOWS) if weeks > 0 else None,
    )


def sees(smallest: float | None, need: Needs | None) -> str:
    """Return in one sentence what a window can see and what a smaller fall needs; "" where that is not known."""
    if smallest is None:
        return ""
    text = f"this window can see a fall of {smallest:.1f}"
    if smallest > BLIND:
        text = f"this window cannot see a fall of {BLIND:g} points, only one of {smallest:.1f}: do not trust its green"
    if smallest <= TARGET or need is None:
        return text
    ways = [
        f"{count} {what}"
        for count, what in (
            (need.messages, "messages"),
            (need.judgments, "judgments a claim"),
            (need.windows, "windows in the baseline"),
        )
        if count
    ]
    if not ways:
        return f"{text}; {TARGET:.1f} needs more messages, judgments and windows together"
    return f"{text}; {TARGET:.1f} needs {', '.join(ways[:-1])}{' or ' if len(ways) > 1 else ''}{ways[-1]}"


def _quantiles(drops: Drops, levels: Numbers, power: float) -> Numbers:
    from scipy.special import stdtrit

    return stdtrit(drops.degrees, 1 - levels) + stdtrit(drops.degrees, power)


def _whole(part: float, room: float, most: int) -> int | None:
    """Return the smallest whole n with part / n <= room, None beyond ``most``."""
    if room <= 0 or part <= 0:
        return None
    count = math.ceil(part / room - 1e-9)
    return count if count <= most else None
