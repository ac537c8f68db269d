"""One call over a provider's SDK: what goes out waits for leave, what comes back is heard, every failure is one typed exception."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.judging.model.options import ModelOptions
from persona_pipeline.judging.model.pace import Admission, Cost, Pacer
from persona_pipeline.judging.providers.anthropic import AnthropicProvider

if TYPE_CHECKING:
    from anthropic import Anthropic
import re
from collections.abc import Mapping

from persona_pipeline.base.documents.json import strict_json
from persona_pipeline.judging.model.messages import unknown_usage
from persona_pipeline.judging.providers.base import Provider
from persona_pipeline.judging.verdict import Blame, Unscored, Usage


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
    turn: Admission | None = None

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
    options: ModelOptions, pacer: Pacer | None = None, on_status: Callable[[int], None] = lambda status: None
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


def connect_sync(options: ModelOptions) -> "Anthropic":
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

    def __init__(self, options: ModelOptions, pacer: Pacer, on_status: Callable[[int], None]) -> None:
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


# No later call can do better: wrong key, no money, not allowed, no such model.
_FATAL_STATUS = (401, 402, 403, 404)
# Too long, not allowed, not understood: the next request may be.
_OF_THE_REQUEST = (400, 413, 422)
_FATAL_CODES = re.compile(r"spend_limit|on_hold|billing|insufficient_quota")
_KEY = re.compile(r"sk-[A-Za-z0-9_-]{8,}")


@dataclass
class CallError(Exception):
    """A call that brought no message.

    Attributes:
        signature: equal for failures of the same kind.
        status: HTTP status, None when there was no response.
        fatal: no later call can succeed either.
        blame: whose it is: a status that speaks of this request alone says nothing against the endpoint.
        usage: nothing where the server says it did not work on it; unknown where it may have.
    """

    detail: str
    signature: str
    reason: Unscored = Unscored.API_ERROR
    status: int | None = None
    fatal: bool = False
    usage: Usage = field(default_factory=lambda: Usage(calls=1))

    @property
    def throttled(self) -> bool:
        """Whether the same call may succeed later, when the server's limits leave room."""
        return self.status == 429 and not self.fatal

    @property
    def blame(self) -> Blame:
        return Blame.REQUEST if self.status in _OF_THE_REQUEST else Blame.ENDPOINT


async def send(provider: Provider, client: Any, body: Mapping[str, Any], leave: Leave) -> Any:
    """Return the response as a message.

    Raises:
        CallError: there is none.
    """
    sdk: Any = provider.sdk()
    call = UnderWay(leave, asyncio.timeout(leave.ends - time.monotonic()))
    UNDER_WAY.set(call)
    try:
        async with call.timeout:
            content = await provider.create(client, body)
    except TimeoutError:
        said = ", ".join(map(str, call.statuses))
        detail = f"no answer within the deadline{f' (the server said {said})' if said else ''}"
        # Refusals are not billed.
        usage = unknown_usage() if call.may_be_billed else Usage(calls=1)
        raise CallError(detail, "timeout", Unscored.TIMEOUT, usage=usage) from None
    except CallError:
        raise
    except sdk.APITimeoutError:
        raise CallError("the server went silent", "silence", Unscored.TIMEOUT, usage=unknown_usage()) from None
    except sdk.APIConnectionError as error:
        raise _connection_error(error) from error
    except sdk.APIStatusError as error:
        raise _status_error(error) from error
    except Exception as error:
        detail = f"{type(error).__name__}: {_line(str(error))}"
        if call.sent:
            raise CallError(detail, type(error).__name__, usage=unknown_usage()) from error
        # Credentials that cannot be had are missing for the next call too; what a value of this request breaks is not.
        fatal = not isinstance(error, ValueError)
        raise CallError(f"nothing could be sent: {detail}", type(error).__name__, fatal=fatal) from error
    try:
        return provider.read(strict_json(content.decode("utf-8")))
    except ValueError:
        said = call.statuses[-1] if call.statuses else 200
        raise CallError(f"HTTP {said} with a body that is not JSON", "not json", usage=unknown_usage()) from None


def _connection_error(error: Exception) -> CallError:
    cause = error.__cause__ or error
    name = type(cause).__name__
    # Refused before anything was sent; any other break may have come after the work.
    usage = Usage(calls=1) if name in ("ConnectError", "ConnectTimeout") else unknown_usage()
    return CallError(f"connection failed: {name}: {_line(str(cause)) or 'no reason given'}", name, usage=usage)


def _status_error(error: Any) -> CallError:
    kinds, code, message = _what_it_says(error)
    words = [part for part in (*kinds, code) if part]
    said = _line(message) or ("" if words else "no JSON in the response")
    detail = f"HTTP {error.status_code}" + (f" {' '.join(words)}" if words else "") + (f": {said}" if said else "")
    return CallError(
        detail,
        f"{error.status_code} {code}",
        # What the prompt's filter of a cloud will not let through.
        Unscored.REFUSAL if code == "content_filter" else Unscored.API_ERROR,
        status=error.status_code,
        fatal=error.status_code in _FATAL_STATUS or bool(_FATAL_CODES.search(code)),
    )


def _what_it_says(error: Any) -> tuple[list[str], str, str]:
    """Return the kind, the code and the words of an error, wherever its server puts them."""
    body = error.body[0] if isinstance(error.body, list) and error.body else error.body
    outer = body if isinstance(body, Mapping) else {}
    inner = outer.get("error")
    inner = inner if isinstance(inner, Mapping) else outer
    details = inner.get("details")
    codes = (details.get("error_code") if isinstance(details, Mapping) else None, inner.get("code"))
    # Amazon names the kind in a header, with more behind a colon.
    kinds = (
        inner.get("type"),
        inner.get("status"),
        error.response.headers.get("x-amzn-errortype", "").partition(":")[0],
    )
    return (
        [_line(kind) for kind in kinds if isinstance(kind, str) and kind],
        next((_line(code) for code in codes if isinstance(code, str)), ""),
        str(inner.get("message") or inner.get("Message") or ""),
    )


def _line(text: str) -> str:
    """A server's words on one short line, without what looks like a key."""
    printable = "".join(character if character.isprintable() else " " for character in text)
    return _KEY.sub("sk-...", " ".join(printable.split()))[:200]
