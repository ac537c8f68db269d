"""Connections to the judge's server: what goes out waits for leave, what comes back is heard."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from persona_pipeline.errors import ConfigError
from persona_pipeline.judging.options import AnthropicOptions
from persona_pipeline.judging.pacing import Cost, Pacer, Turn
from persona_pipeline.judging.providers.anthropic import AnthropicProvider

if TYPE_CHECKING:
    from anthropic import Anthropic


@dataclass
class Leave:
    """A call's time, and what it takes of the server's limits.

    Attributes:
        ends: the monotonic time at which the call is given up. Waiting for the server's leave does not count: it moves on.
        latest: beyond which it does not move.
        cost: of each request.
        turn: for the next request, where it has one.
    """

    ends: float
    latest: float = float("inf")
    cost: Cost = field(default_factory=dict)
    turn: Turn | None = None

    def waited(self, seconds: float) -> None:
        self.ends = min(self.ends + seconds, self.latest)


@dataclass
class UnderWay:
    leave: Leave
    timeout: asyncio.Timeout
    sent: int = 0
    statuses: list[int] = field(default_factory=list)

    def waited(self, seconds: float) -> None:
        self.leave.waited(seconds)
        if not self.timeout.expired():
            self.timeout.reschedule(asyncio.get_running_loop().time() + self.leave.ends - time.monotonic())

    @property
    def may_be_billed(self) -> bool:
        """Whether the server has a request that it has not refused."""
        return self.sent > len(self.statuses) or any(status < 400 for status in self.statuses)


# The call under way in this task.
UNDER_WAY: ContextVar[UnderWay] = ContextVar("under_way")


def connect(
    options: AnthropicOptions, pacer: Pacer | None = None, on_status: Callable[[int], None] = lambda status: None
) -> Any:
    """Return a client, to be closed.

    Args:
        pacer: every request to judge waits for its leave, those the SDK sends again included; a 429 is not sent again.
        on_status: hears of every response.

    Raises:
        ConfigError: there is no key.
    """

    async def leave(_: Any) -> None:
        call = UNDER_WAY.get(None)
        if call is None:
            return
        if pacer and call.leave.turn is None:
            started = time.monotonic()
            call.leave.turn = await pacer.turn(call.leave.cost)
            call.waited(time.monotonic() - started)
        call.sent += 1

    async def hear(response: Any) -> None:
        call = UNDER_WAY.get(None)
        if call is not None:
            call.statuses.append(response.status_code)
            if pacer and call.leave.turn:
                pacer.heard(call.leave.turn, response.status_code, response.headers)
            call.leave.turn = None
        if pacer and response.status_code == 429:
            # The SDK would sleep and ask again with all others that were refused.
            response.headers["x-should-retry"] = "false"
        on_status(response.status_code)

    return options.provider.connect(options, {"request": [leave], "response": [hear]})


def connect_sync(options: AnthropicOptions) -> "Anthropic":
    """Return a client for code that waits, to be closed. Only Anthropic's own kind of server has what needs one: message batches.

    Raises:
        ConfigError: there is no key, or the judge is another provider's.
    """
    from anthropic import Anthropic

    if not isinstance(options.provider, AnthropicProvider):
        raise ConfigError(
            f"message batches are for the judge anthropic, not {options.provider.name}; set PERSONA_JUDGE=anthropic, or judge live"
        )
    return Anthropic(**options.provider.arguments(options))


class SharedClient:
    """One client for all that ask at the same time in one event loop.

    Args:
        pacer, on_status: as of ``connect``.
    """

    def __init__(self, options: AnthropicOptions, pacer: Pacer, on_status: Callable[[int], None]) -> None:
        self._connect = lambda: connect(options, pacer, on_status)
        self._client: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._users = 0

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Any]:
        """Hold the client; the last to let go closes it."""
        loop = asyncio.get_running_loop()
        client = self._client
        if client is None or self._loop is not loop:
            client = self._client = self._connect()
            self._loop, self._users = loop, 0
        self._users += 1
        try:
            yield client
        finally:
            self._users -= 1
            if not self._users and self._client is client:
                self._client = None
                await client.close()
