"""Pacing of calls: the server's limits a minute, and pauses after refusals."""

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

_MINUTE = 60.0

# Seconds until the server counts a sent request. Its report includes refills up to then.
_ON_THE_WAY = 0.25

# Seconds of a pause for which the server gives no time.
_LONGEST_PAUSE = 30.0

# Too many a minute, and too many at once.
_THROTTLED, OVERLOADED = 429, 529


class Limit(StrEnum):
    """What a server counts by the minute. ``tokens``: input and the most that the output may have, together."""

    REQUESTS = "requests"
    INPUT_TOKENS = "input-tokens"
    OUTPUT_TOKENS = "output-tokens"
    TOKENS = "tokens"


# The headers that say a limit, what remains of it, and the time until it is whole again; Anthropic's are moments, and not needed.
_HEADERS = (
    *(
        (kind, f"anthropic-ratelimit-{kind}-limit", f"anthropic-ratelimit-{kind}-remaining", "")
        for kind in (Limit.REQUESTS, Limit.INPUT_TOKENS, Limit.OUTPUT_TOKENS)
    ),
    *(
        (kind, f"x-ratelimit-limit-{kind}", f"x-ratelimit-remaining-{kind}", f"x-ratelimit-reset-{kind}")
        for kind in (Limit.REQUESTS, Limit.TOKENS)
    ),
)

# Shorter times are too coarse to compute how fast a limit refills.
_SHORTEST_RESET = 1.0

_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?!s))?(?:([\d.]+)s)?(?:([\d.]+)ms)?")

_UNITS = (86_400.0, 3_600.0, 60.0, 1.0, 0.001)

Cost = Mapping[Limit, float]


@dataclass
class _Allowance:
    """A limit that refills evenly, up to ``most`` (None: a minute's worth); ``spent``: all that was ever taken from it."""

    per_minute: float
    level: float
    at: float
    spent: float = 0.0
    most: float | None = None

    @property
    def full(self) -> float:
        return self.per_minute if self.most is None else self.most

    def refill(self, now: float) -> None:
        minutes = max(0.0, now - self.at) / _MINUTE
        self.level = min(self.full, self.level + self.per_minute * minutes)
        self.at = now

    def wait(self, cost: float) -> float:
        """Return the seconds until there is enough; what costs more than a full allowance takes a full one."""
        return max(0.0, min(cost, self.full) - self.level) * _MINUTE / self.per_minute


@dataclass
class Admission:
    """Leave for one request, given at ``sent`` by the pacer's clock; ``spent``: what had been taken from each allowance by then."""

    sent: float
    spent: dict[Limit, float] = field(default_factory=dict)


class Pacer:
    """Gives requests leave to go, so that a server need not refuse them.

    Args:
        per_minute: limits known beforehand; others are learnt.
        clock: seconds, monotonic.

    Attributes:
        refused: how many requests the server refused, for its limits or because it was overloaded.
    """

    def __init__(
        self, per_minute: Mapping[Limit, float] | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._fixed = dict(per_minute or {})
        self._allowances = {kind: _Allowance(most, most, clock()) for kind, most in self._fixed.items()}
        self._paused_until = float("-inf")
        self._accepted_at = float("-inf")
        self._refused_at = float("-inf")
        self._refused_in_a_row = 0
        self.refused = 0

    def idle(self, since: float) -> float:
        """Return for how many seconds the server has let nothing through, counted from a moment of the pacer's clock at most."""
        return self._clock() - max(since, self._accepted_at)

    def wait(self, cost: Cost) -> float:
        """Return the seconds until a request of this cost may go: 0 is now."""
        now = self._clock()
        waits = [self._paused_until - now]
        for kind, allowance in self._allowances.items():
            allowance.refill(now)
            waits.append(allowance.wait(cost.get(kind, 0.0)))
        return max(0.0, *waits)

    async def turn(self, cost: Cost) -> Admission:
        """Wait until a request of this cost may go, and take what it costs."""
        while (seconds := self.wait(cost)) > 0:
            # Another request may take it first; then this one waits again.
            await asyncio.sleep(seconds)
        for kind, allowance in self._allowances.items():
            allowance.level -= cost.get(kind, 0.0)
            allowance.spent += cost.get(kind, 0.0)
        return Admission(self._clock(), {kind: allowance.spent for kind, allowance in self._allowances.items()})

    def heard(self, turn: Admission, status: int, headers: Mapping[str, str]) -> None:
        """Learn from a response; headers are by names in lower case: those of ``_HEADERS``, and ``retry-after``."""
        now = self._clock()
        for kind, *names in _HEADERS:
            limit, remaining, reset = (headers.get(name) for name in names)
            most, left = _number(limit), _number(remaining)
            if most and left is not None:
                self._told(kind, turn, most, left, _duration(reset), now)
        if status in (_THROTTLED, OVERLOADED):
            self._refuse(turn, seconds_to_wait(headers), now)
        elif status < 400:
            self._accepted_at, self._refused_in_a_row = now, 0

    def _refuse(self, turn: Admission, asked: float | None, now: float) -> None:
        """Pause for ``asked`` seconds, or where the server does not say, longer each time."""
        self.refused += 1
        if turn.sent >= self._refused_at:
            # Requests that were under way together are refused together; the pause grows once.
            self._refused_in_a_row += 1
            self._refused_at = now
        pause = min(_LONGEST_PAUSE, 2.0 ** (self._refused_in_a_row - 1)) if asked is None else asked
        self._paused_until = max(self._paused_until, now + pause)

    def _told(
        self, kind: Limit, turn: Admission, limit: float, remaining: float, reset: float | None, now: float
    ) -> None:
        """Take the remainder that a response reports, less requests sent since and plus refills since.

        ``reset``: seconds until the limit, which may be a day's, is whole again, where that is said.
        """
        fixed, per_minute = self._fixed.get(kind, float("inf")), limit
        if reset is not None and reset >= _SHORTEST_RESET and remaining < limit:
            per_minute = (limit - remaining) * _MINUTE / reset
        most, rate = min(limit, fixed), min(per_minute, fixed)
        known = self._allowances.get(kind)
        spent = known.spent if known else 0.0
        since = spent - turn.spent.get(kind, spent)
        level = min(most, remaining + max(0.0, now - turn.sent - _ON_THE_WAY) * rate / _MINUTE) - since
        self._allowances[kind] = _Allowance(rate, level, now, spent=spent, most=most)


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None


def _duration(text: str | None) -> float | None:
    """Return the seconds of a time such as ``6m0s``, ``12ms`` or ``8.64``; None where it is none."""
    parts = _DURATION.fullmatch(text or "")
    if not text or not parts:
        return _number(text)
    counts = [_number(part) or 0.0 for part in parts.groups()]
    return sum(count * unit for count, unit in zip(counts, _UNITS, strict=True))


def seconds_to_wait(headers: Mapping[str, str]) -> float | None:
    """Return the seconds after which a server wants to be asked again; None: it does not say, or names a date."""
    milliseconds = _number(headers.get("retry-after-ms"))
    return _number(headers.get("retry-after")) if milliseconds is None else milliseconds / 1000
