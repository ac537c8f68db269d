"""One call over the Anthropic SDK: options, connection, and every way to fail as one typed exception."""

import asyncio
import os
import re
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pydantic import SecretStr

from persona_pipeline.documents import strict_json
from persona_pipeline.errors import ConfigError
from persona_pipeline.judging.questions import Blame
from persona_pipeline.judging.response import unknown_usage
from persona_pipeline.judging.verdict import Unscored, Usage
from persona_pipeline.settings import DEFAULT_JUDGE_MODEL, Settings

if TYPE_CHECKING:
    from anthropic import Anthropic, AsyncAnthropic

ANTHROPIC_URL = "https://api.anthropic.com"
_CREDENTIALS = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_PROFILE",
    "ANTHROPIC_IDENTITY_TOKEN",
    "ANTHROPIC_IDENTITY_TOKEN_FILE",
)
# No later call can do better: wrong key, no money, not allowed, no such model.
_FATAL_STATUS = (401, 402, 403, 404)
# Too long, not allowed, not understood: the next request may be.
_OF_THE_REQUEST = (400, 413, 422)
_FATAL_CODES = re.compile(r"spend_limit|on_hold|billing")
_KEY = re.compile(r"sk-[A-Za-z0-9_-]{8,}")
# The statuses of the responses to the call under way in this task.
_statuses: ContextVar[list[int]] = ContextVar("statuses")


@dataclass(frozen=True)
class AnthropicOptions:
    """How the live judge is called.

    Attributes:
        deadline: wall-clock seconds one judgment may take in all, retries included.
        run_deadline: wall-clock seconds from the first call, after which nothing more is asked; None: none.
        max_tokens: for one answer and the thinking before it; doubled once when it does not suffice.
        width: calls under way at once, at most.
        max_retries: the SDK's own retries of a call; there are no others.
        base_url: default ``ANTHROPIC_BASE_URL``, else Anthropic.
        api_key: default: what the SDK finds in the environment or on disk.
        cache_ttl: how long a shared prefix stays cached: ``5m`` or ``1h``.
        ambient_key: whether keys and headers of the environment are sent where none is given.
        breaker_threshold: identical failures in a row after which nothing more is asked for a while.
    """

    model: str = DEFAULT_JUDGE_MODEL
    effort: str | None = "low"
    width: int = 20
    deadline: float = 60.0
    run_deadline: float | None = None
    max_tokens: int = 2048
    max_retries: int = 4
    base_url: str | None = None
    api_key: SecretStr | None = None
    cache_ttl: str = "5m"
    ambient_key: bool = True
    breaker_threshold: int = 10

    @classmethod
    def from_settings(cls, settings: Settings) -> "AnthropicOptions":
        return cls(
            model=settings.judge_model,
            effort=settings.judge_effort or None,
            width=settings.judge_width,
            deadline=settings.judge_deadline,
            run_deadline=settings.run_deadline,
            max_tokens=settings.judge_max_tokens,
        )

    @property
    def endpoint(self) -> str:
        """The server's base URL, without credentials or a slash at its end."""
        url = urlsplit(self.base_url or os.environ.get("ANTHROPIC_BASE_URL") or ANTHROPIC_URL)
        return url._replace(netloc=url.netloc.rpartition("@")[2]).geturl().rstrip("/")

    @property
    def is_anthropic(self) -> bool:
        host = urlsplit(self.endpoint).hostname or ""
        return host == "anthropic.com" or host.endswith(".anthropic.com")

    def has_credentials(self) -> bool:
        """Whether a key was given or is set in the environment; servers other than Anthropic's need none."""
        return bool(self.api_key) or not self.is_anthropic or any(map(os.environ.get, _CREDENTIALS))

    def require_credentials(self) -> None:
        """Raise ``ConfigError`` with the remedy when there is no key."""
        if not self.has_credentials():
            raise ConfigError(
                "the live judge has no key; set ANTHROPIC_API_KEY, or ANTHROPIC_BASE_URL to a server of your own,"
                " or replay recorded judgments with --judge recorded"
            )


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
    def blame(self) -> Blame:
        return Blame.REQUEST if self.status in _OF_THE_REQUEST else Blame.ENDPOINT


def connect(options: AnthropicOptions, on_status: Callable[[int], None] = lambda status: None) -> "AsyncAnthropic":
    """Return a client, to be closed. ``on_status`` hears of every response, those the SDK retries included.

    Raises:
        ConfigError: there is no key.
    """
    from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient

    async def hear(response: Any) -> None:
        _statuses.get([]).append(response.status_code)
        on_status(response.status_code)

    client = AsyncAnthropic(
        **_client_arguments(options), http_client=DefaultAsyncHttpxClient(event_hooks={"response": [hear]})
    )
    if not options.ambient_key:
        # What ANTHROPIC_CUSTOM_HEADERS holds may be a key too.
        client._custom_headers = {}
    return client


def connect_sync(options: AnthropicOptions) -> "Anthropic":
    """Return a client for code that waits, to be closed.

    Raises:
        ConfigError: there is no key.
    """
    from anthropic import Anthropic

    return Anthropic(**_client_arguments(options))


def _client_arguments(options: AnthropicOptions) -> dict[str, Any]:
    from anthropic import Timeout

    if options.ambient_key:
        options.require_credentials()
    key = options.api_key.get_secret_value() if options.api_key else None
    if key is None and not options.ambient_key:
        key = "none"
    if key is None and not options.is_anthropic and not any(map(os.environ.get, _CREDENTIALS)):
        key = "none"
    return {
        "api_key": key,
        "base_url": options.base_url,
        "timeout": Timeout(options.deadline, connect=min(5.0, options.deadline)),
        "max_retries": options.max_retries,
    }


async def send(client: "AsyncAnthropic", body: Mapping[str, Any], *, ends: float) -> Any:
    """Return the response's JSON.

    Args:
        ends: the monotonic time at which the call is given up.

    Raises:
        CallError: there is none.
    """
    import anthropic

    statuses: list[int] = []
    _statuses.set(statuses)
    try:
        async with asyncio.timeout(ends - time.monotonic()):
            response = await client.messages.with_raw_response.create(**body)
            content = await response.read()
    except TimeoutError:
        heard = f" (the server said {', '.join(map(str, statuses))})" if statuses else ""
        detail = f"no answer within the deadline{heard}"
        raise CallError(detail, "timeout", Unscored.TIMEOUT, usage=unknown_usage()) from None
    except anthropic.APITimeoutError:
        raise CallError("the server went silent", "silence", Unscored.TIMEOUT, usage=unknown_usage()) from None
    except anthropic.APIConnectionError as error:
        raise _connection_error(error) from error
    except anthropic.APIStatusError as error:
        raise _status_error(error) from error
    except anthropic.AnthropicError as error:
        raise CallError(f"{type(error).__name__}: {_line(str(error))}", type(error).__name__) from error
    try:
        return strict_json(content.decode("utf-8"))
    except ValueError:
        raise CallError(
            f"HTTP {response.status_code} with a body that is not JSON", "not json", usage=unknown_usage()
        ) from None


def _connection_error(error: Exception) -> CallError:
    cause = error.__cause__ or error
    name = type(cause).__name__
    # Refused before anything was sent; any other break may have come after the work.
    usage = Usage(calls=1) if name in ("ConnectError", "ConnectTimeout") else unknown_usage()
    return CallError(f"connection failed: {name}: {_line(str(cause)) or 'no reason given'}", name, usage=usage)


def _status_error(error: Any) -> CallError:
    code = error.error_code or ""
    words = [str(part) for part in (error.type, code) if part]
    said = _line(error.api_message or "") or ("no JSON in the response" if not error.type else "")
    detail = f"HTTP {error.status_code}" + (f" {' '.join(words)}" if words else "") + (f": {said}" if said else "")
    return CallError(
        detail,
        f"{error.status_code} {code}",
        status=error.status_code,
        fatal=error.status_code in _FATAL_STATUS or bool(_FATAL_CODES.search(code)),
    )


def _line(text: str) -> str:
    """A server's words on one short line, without what looks like a key."""
    printable = "".join(character if character.isprintable() else " " for character in text)
    return _KEY.sub("sk-...", " ".join(printable.split()))[:200]
