"""Many calls at once, as many as the server bears, and one alone first where a prefix is shared."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

Item = TypeVar("Item")

# Calls that were under way together are told the same thing; it counts once.
_ONE_WARNING_SECONDS = 0.5
# About the work of one call. Calls that start at one instant are answered at one instant and keep waiting for each other.
_SPACING_SECONDS = 0.002


class AdaptiveWidth:
    """How many calls may be under way: halved when the server throttles, widened again as calls succeed.

    Calls start one after another, two milliseconds apart. The width grows by one a success up to half of what it was when
    throttled, then by one a round, as TCP does.

    Args:
        maximum: calls under way at once when nothing narrows it, at least 1.
    """

    def __init__(self, maximum: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.maximum = max(1, maximum)
        self.narrowed = 0
        self._clock = clock
        self._width = float(self.maximum)
        self._threshold = float(self.maximum)
        self._last_narrowed = float("-inf")
        self._active = 0
        self._next_start = float("-inf")
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def width(self) -> int:
        return int(self._width)

    def throttled(self) -> None:
        """The server has answered 429 or 529."""
        if self._clock() - self._last_narrowed < _ONE_WARNING_SECONDS:
            return
        self._last_narrowed = self._clock()
        self._width = max(1.0, self._width / 2)
        self._threshold = max(1.0, self._width / 2)
        self.narrowed += 1

    def succeeded(self) -> None:
        """A call was answered."""
        step = 1.0 if self._width < self._threshold else 1.0 / self._width
        self._width = min(float(self.maximum), self._width + step)
        self._wake()

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Hold one of the places for as long as the block runs."""
        while self._active >= self.width:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn in self._waiting:
                    self._waiting.remove(turn)
                else:
                    self._wake()
                raise
        self._active += 1
        try:
            await self._spaced()
            yield
        finally:
            self._active -= 1
            self._wake()

    async def _spaced(self) -> None:
        now = self._clock()
        start = max(now, self._next_start)
        self._next_start = start + _SPACING_SECONDS
        if start > now:
            await asyncio.sleep(start - now)

    def _wake(self) -> None:
        free = self.width - self._active
        while free > 0 and self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                free -= 1


async def fan_out(
    groups: Sequence[Sequence[Item]],
    call: Callable[[Item], Awaitable[bool]],
    *,
    leads: Callable[[Sequence[Item]], bool],
) -> None:
    """Run ``call`` on every item; the groups run side by side.

    Args:
        call: does its own waiting for a place; returns whether the item was answered; does not raise.
        leads: whether a group's first call goes alone until it is answered, so that the rest finds its prefix
            cached. After two failures the rest no longer waits.
    """
    # The first items of all groups stand in front of the queue: what waits on them can start early.
    async with asyncio.TaskGroup() as tasks:
        for group in groups:
            if leads(group):
                tasks.create_task(_lead(group, call, tasks))
            else:
                for item in group:
                    tasks.create_task(_run(call, item))


async def _lead(group: Sequence[Item], call: Callable[[Item], Awaitable[bool]], tasks: asyncio.TaskGroup) -> None:
    rest = deque(group)
    failures = 0
    while rest and failures < 2:
        if await call(rest.popleft()):
            break
        failures += 1
    for item in rest:
        tasks.create_task(_run(call, item))


async def _run(call: Callable[[Item], Awaitable[bool]], item: Item) -> None:
    await call(item)
