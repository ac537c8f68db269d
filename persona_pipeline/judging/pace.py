"""Pacing of calls: the server's limits a minute, and pauses after refusals."""

import asyncio
import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

_MINUTE = 60.0

# Seconds until the server counts a sent request. Its report includes refills up to then.
_ON_THE_WAY = 0.25

# Guesses after refusals: this share of the accepted rate, growing by this share a minute; the longest pause in seconds.
_SLOWER, _WIDENED, _LONGEST_PAUSE = 0.7, 1.0, 30.0
# Requests a minute; more means unlimited.
_MOST_GUESSED = 1e6

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
    guessed: bool = False
    spent: float = 0.0
    most: float | None = None

    @property
    def full(self) -> float:
        return self.per_minute if self.most is None else self.most

    def refill(self, now: float) -> None:
        minutes = max(0.0, now - self.at) / _MINUTE
        if self.guessed:
            self.per_minute = min(_MOST_GUESSED, self.per_minute * (1 + _WIDENED) ** min(minutes, _MINUTE))
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
        self._guess: _Allowance | None = None
        self._accepted: deque[float] = deque()
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
        for allowance, taken in self._taken(cost):
            allowance.refill(now)
            waits.append(allowance.wait(taken))
        return max(0.0, *waits)

    def _taken(self, cost: Cost) -> Iterator[tuple[_Allowance, float]]:
        """Yield every allowance with what a request of this cost takes of it."""
        yield from ((allowance, cost.get(kind, 0.0)) for kind, allowance in self._allowances.items())
        if self._guess:
            yield self._guess, 1.0

    async def turn(self, cost: Cost) -> Admission:
        """Wait until a request of this cost may go, and take what it costs."""
        while (seconds := self.wait(cost)) > 0:
            # Another request may take it first; then this one waits again.
            await asyncio.sleep(seconds)
        for allowance, taken in self._taken(cost):
            allowance.level -= taken
            allowance.spent += taken
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
            self._refuse(turn, status, seconds_to_wait(headers), now)
        elif status < 400:
            self._accepted_at, self._refused_in_a_row = now, 0
            self._accepted.append(now)
            while self._accepted[0] < now - _MINUTE:
                self._accepted.popleft()

    def _refuse(self, turn: Admission, status: int, asked: float | None, now: float) -> None:
        """Pause, ``asked`` seconds or longer each time, and go slower from then on where the server does not say how fast."""
        self.refused += 1
        is_again = self._refused_in_a_row > 0
        if turn.sent >= self._refused_at:
            # Requests that were under way together are refused together; the pause grows once.
            self._refused_in_a_row += 1
            self._refused_at = now
        pause = min(_LONGEST_PAUSE, 2.0 ** (self._refused_in_a_row - 1)) if asked is None else asked
        self._paused_until = max(self._paused_until, now + pause)
        # One request that an overloaded server refuses may be chance.
        is_slowed = is_again if status == OVERLOADED else Limit.REQUESTS not in self._allowances
        if self._accepted and is_slowed:
            borne = len(self._accepted) * _MINUTE / max(1.0, now - self._accepted[0])
            self._guess = _Allowance(_SLOWER * borne, 0.0, now, guessed=True)

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
