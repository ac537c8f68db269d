"""Providers of judge models: their interface, options of calls, and a call over an SDK."""

import asyncio
import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

from pydantic import SecretStr

from persona_pipeline.base.calls import Timing
from persona_pipeline.base.documents.json import strict_json, visible
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.options import Registry
from persona_pipeline.base.settings import DEFAULT_JUDGE_MODEL, Settings
from persona_pipeline.judging.pace import Admission, Cost, Limit, Pacer, seconds_to_wait
from persona_pipeline.judging.verdict import UNKNOWN_USAGE, Answer, Blame, Unscored, Usage

if TYPE_CHECKING:
    from anthropic import Anthropic

FIRST = "anthropic"
Hooks = Mapping[str, list[Any]]


class Provider(ABC):
    """A provider. It has no state: one instance serves every judge.

    A question goes out as the body of ``POST /v1/messages`` and an answer comes back as such a message; a provider whose server
    speaks otherwise translates both. Limits, retries, deadlines, budgets, caching and recordings are the backend's.

    Attributes:
        name: the value of ``--judge``; part of provenance and of the key of cached judgments.
        default_model: asked where no model is set; None: a model must be set.
        extra: of this package, where the provider needs more than is always installed.
        url_variable: the environment variable that says where the server is.
        key_help: how to give it a key, for people.
        counts_tokens: whether its server counts the tokens of a request without answering it.
        has_batches: whether its server takes message batches.
        describes_models: whether its client can be asked about a model.
    """

    name: ClassVar[str]
    default_model: ClassVar[str | None] = None
    extra: ClassVar[str] = ""
    modules: ClassVar[tuple[str, ...]] = ()
    url_variable: ClassVar[str] = ""
    key_help: ClassVar[str] = ""
    counts_tokens: ClassVar[bool] = False
    has_batches: ClassVar[bool] = False
    describes_models: ClassVar[bool] = False

    @property
    @abstractmethod
    def default_url(self) -> str:
        """Where the server is when nothing else says so; ``ConfigError``: that needs a setting not there, such as a region."""

    @property
    @abstractmethod
    def api_version(self) -> str:
        """The version that a request's meaning depends on: part of the key of cached judgments."""

    @abstractmethod
    def sdk(self) -> ModuleType:
        """Return the SDK, imported: the home of ``APIStatusError``, ``APIConnectionError`` and ``APITimeoutError``."""

    @abstractmethod
    def connect(self, options: "ModelOptions", hooks: Hooks) -> Any:
        """Return a client, to be closed, every request and response of whose HTTP client passes the hooks."""

    def connect_sync(self, options: "ModelOptions") -> "Anthropic":
        """Return a client for code that waits, to be closed: for message batches, which only the Messages API itself has.

        ``ConfigError``: the key is missing, or the server is of another kind.
        """
        raise ConfigError(
            f"message batches are for the judge anthropic, not {self.name}; set PERSONA_JUDGE=anthropic, or judge live"
        )

    @abstractmethod
    async def create(self, client: Any, body: Mapping[str, Any]) -> bytes:
        """Return what the server answers to the body of ``POST /v1/messages``, as it came."""

    def read(self, response: Any) -> Any:
        """Return a server's parsed answer as a message of the Messages API. Other values may be returned unchanged."""
        return response

    def usage_in(self, response: Any) -> Any:
        """Return what a server's answer says it took, in the words of the Messages API."""
        return response.get("usage")

    async def converse(self, client: Any, body: Mapping[str, Any]) -> bytes:
        """Return the server's answer to a body in its own format: for conversations instead of judgments."""
        return await self.create(client, body)

    def is_anthropic(self, endpoint: str) -> bool:
        """Whether this server of the provider is Anthropic's own."""
        return False

    def has_credentials(self, options: "ModelOptions") -> bool:
        """Whether a key is set, as far as is known without a call; local servers need none."""
        return True

    def require_usable(self, options: "ModelOptions") -> None:
        """Check the configuration without a call; ``ConfigError``: a package, key or setting is missing."""
        missing = [name for name in self.modules if not _is_installed(name)]
        if missing:
            raise ConfigError(
                f"the judge {self.name} needs {' and '.join(missing)}; install with: pip install 'persona-pipeline[{self.extra}]'"
            )
        if not self.has_credentials(options):
            raise ConfigError(
                f"the live judge has no key; {self.key_help}, or {self.url_variable} to a server of your own,"
                " or replay recorded judgments with --judge recorded"
            )
        if not options.model:
            raise ConfigError(f"the judge {self.name} has no model; set PERSONA_JUDGE_MODEL to one that its server has")

    def how_to_call(self, options: "ModelOptions", hooks: Hooks | None = None) -> dict[str, Any]:
        """Return the arguments for calls of an SDK client; ``hooks``: for an asynchronous client."""
        sdk: Any = self.sdk()
        return {
            **({} if hooks is None else {"http_client": sdk.DefaultAsyncHttpxClient(event_hooks=dict(hooks))}),
            # Longer than the deadline of a call, so that the SDK does not repeat a request that is still awaited.
            "timeout": sdk.Timeout(2 * options.deadline, connect=min(5.0, options.deadline)),
            "max_retries": options.max_retries,
        }

    def endpoint(self, base_url: str | None) -> str:
        """Return the server's base URL, without credentials or a slash at its end."""
        url = urlsplit(base_url or os.environ.get(self.url_variable) or self.default_url)
        return url._replace(netloc=url.netloc.rpartition("@")[2]).geturl().rstrip("/")


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


RECORDED = "recorded"
_HERE = "persona_pipeline.judging.providers"
PROVIDERS = Registry(
    "persona_pipeline.judges",
    Provider,
    {
        "anthropic": f"{_HERE}.anthropic:AnthropicProvider",
        "bedrock": f"{_HERE}.anthropic:BedrockProvider",
        "vertex": f"{_HERE}.anthropic:VertexProvider",
        "openai": f"{_HERE}.openai:OpenAIProvider",
        "azure": f"{_HERE}.openai:AzureProvider",
        "gemini": f"{_HERE}.openai:GeminiProvider",
        "ollama": f"{_HERE}.openai:OllamaProvider",
        "vllm": f"{_HERE}.openai:VllmProvider",
        "openrouter": f"{_HERE}.openai:OpenRouterProvider",
    },
    what="judge",
)


@lru_cache
def find_provider(name: str) -> Provider:
    """Return the provider of a live judge; ``ConfigError``: the name is unknown, or it cannot be loaded."""
    found = PROVIDERS.find(name)
    if found is None:
        raise ConfigError(f"unknown judge {name!r}{PROVIDERS.hint(name, [RECORDED])}")
    return found()


@dataclass(frozen=True)
class ModelOptions:
    """How the live judge is called.

    Attributes:
        provider: who serves the model.
        deadline: wall-clock seconds one judgment may take in all, retries included.
        run_deadline: wall-clock seconds from the first call, after which nothing more is asked; None: none.
        max_tokens: for one answer and the thinking before it; doubled once when it does not suffice.
        width: calls under way at once, at most.
        grouping: claims per call, all about the same transcript.
        canaries: share of transcripts that get claims with a known answer, in addition to all suspicious ones.
        max_retries: retries of a call by the SDK; the backend adds no others.
        base_url: default: what the environment says (``ANTHROPIC_BASE_URL`` and its like), else the provider's own server.
        api_key: default: what the SDK finds in the environment or on disk.
        cache_ttl: how long a shared prefix stays cached: ``5m`` or ``1h``.
        ambient_key: whether keys and headers of the environment are sent where none is given.
        breaker_threshold: identical failures in a row after which calls stop for a while.
        per_minute: the most requests and tokens a minute; other limits are learnt from the server's answers.
        prices: of models, as ``PERSONA_JUDGE_PRICES`` has them.
        patience: seconds to keep asking a server whose limits let nothing through.
    """

    provider: Provider = field(default_factory=lambda: find_provider(FIRST))
    model: str = DEFAULT_JUDGE_MODEL
    effort: str | None = "low"
    width: int = 20
    deadline: float = 60.0
    run_deadline: float | None = None
    max_tokens: int = 2048
    grouping: int = 1
    canaries: float = 0.0
    max_retries: int = 4
    base_url: str | None = None
    api_key: SecretStr | None = None
    cache_ttl: str = "5m"
    ambient_key: bool = True
    breaker_threshold: int = 10
    per_minute: Mapping[Limit, float] = field(default_factory=dict)
    patience: float = 600.0
    prices: str = ""

    @classmethod
    def from_settings(cls, settings: Settings, judge: str | None = None) -> "ModelOptions":
        """Return the options that the settings say, of their provider (Anthropic where they name recordings) or another ``judge``.

        ``ConfigError``: the provider is unknown.
        """
        named = settings.judge if judge in (None, RECORDED) else judge
        provider = find_provider(FIRST if named == RECORDED else named)
        is_set = "judge_model" in settings.model_fields_set
        limits = {
            Limit.REQUESTS: settings.judge_requests_per_minute,
            Limit.INPUT_TOKENS: settings.judge_input_tokens_per_minute,
            Limit.OUTPUT_TOKENS: settings.judge_output_tokens_per_minute,
        }
        same = ("width", "deadline", "max_tokens", "grouping", "canaries", "prices")
        return cls(
            provider=provider,
            model=settings.judge_model if is_set else provider.default_model or "",
            effort=settings.judge_effort or None,
            run_deadline=settings.run_deadline,
            per_minute={kind: most for kind, most in limits.items() if most is not None},
            **{name: getattr(settings, f"judge_{name}") for name in same},
        )

    @property
    def name(self) -> str:
        """The name in provenance, such as ``anthropic:claude-haiku-5-5``."""
        return f"{self.provider.name}:{self.model}"

    @property
    def endpoint(self) -> str:
        """The server's base URL, no credentials in it, no slash at its end; ``ConfigError``: it depends on a setting not there."""
        return self.provider.endpoint(self.base_url)

    @property
    def is_anthropic(self) -> bool:
        """Whether the server is Anthropic's own."""
        return self.provider.is_anthropic(self.endpoint)

    @property
    def key(self) -> str | None:
        """The key that was given; None: none was."""
        return self.api_key.get_secret_value() if self.api_key else None

    def has_credentials(self) -> bool:
        """Whether a key was given or is set in the environment; local servers need none."""
        return self.provider.has_credentials(self)

    def require_usable(self) -> None:
        """Raise ``ConfigError`` with the remedy when a key, a package or a setting is missing."""
        self.provider.require_usable(self)


@dataclass
class UnderWay:
    """A call with a server, over one request or several.

    Attributes:
        ends: the monotonic time at which the call is given up. Waiting for the server's leave does not count: it moves on.
        latest: beyond which it does not move.
        cost: of each request, for the server's limits.
        turn: for the next request, where it has one.
        timeout: ends the call when its time is over.
        sent, statuses: of the current attempt: number of requests, and statuses of their answers.
        asked_to_wait: seconds that the server wants to wait for the next request, where the call has less time left.
    """

    ends: float
    latest: float = float("inf")
    cost: Cost = field(default_factory=dict)
    turn: Admission | None = None
    timeout: asyncio.Timeout | None = None
    sent: int = 0
    statuses: list[int] = field(default_factory=list)
    timing: Timing = field(default_factory=Timing)
    asked_to_wait: float | None = None

    @property
    def left(self) -> float:
        """Seconds until the call is given up."""
        return self.ends - time.monotonic()

    async def wait(self, pacer: Pacer) -> None:
        """Wait until the server's limits allow the next request."""
        started = time.monotonic()
        self.turn = await pacer.turn(self.cost)
        self.ends = min(self.ends + time.monotonic() - started, self.latest)

    def begin(self) -> asyncio.Timeout:
        """Begin an attempt, and return the timeout that ends it."""
        self.timeout, self.sent, self.statuses, self.asked_to_wait = asyncio.timeout(self.left), 0, [], None
        return self.timeout

    @property
    def may_be_billed(self) -> bool:
        """Whether the server has a request that it has not refused."""
        return self.sent > len(self.statuses) or any(status < 400 for status in self.statuses)


# The call under way in this task.
UNDER_WAY: ContextVar[UnderWay] = ContextVar("under_way")


def connect(options: ModelOptions, pacer: Pacer | None = None) -> Any:
    """Return a client, to be closed; ``ConfigError``: the key is missing.

    With a ``pacer`` every request waits for its turn, the SDK's retries included, and the SDK does not retry a 429. Without one
    the SDK retries, unless the server wants a longer pause than the call has time.
    """

    async def leave(request: Any) -> None:
        call = UNDER_WAY.get(None)
        if call is None:
            return
        if pacer and call.turn is None and call.timeout:
            await call.wait(pacer)
            call.timeout.reschedule(asyncio.get_running_loop().time() + call.left)
        if pacer is None:
            request.extensions = {**request.extensions, "trace": call.timing.follow}
        call.sent += 1

    async def hear(response: Any) -> None:
        call = UNDER_WAY.get(None)
        if call is not None:
            call.statuses.append(response.status_code)
            if pacer and call.turn:
                pacer.heard(call.turn, response.status_code, dict(response.headers))
            call.turn = None
            pause = seconds_to_wait(response.headers) if response.status_code >= 400 else None
            if pacer is None and pause is not None and pause > call.left:
                call.asked_to_wait = pause
                response.headers["x-should-retry"] = "false"
        if pacer and response.status_code == 429:
            # The SDK would sleep and ask again with all others that were refused.
            response.headers["x-should-retry"] = "false"

    return options.provider.connect(options, {"request": [leave], "response": [hear]})


# Every later call would fail too: wrong key, no money, not allowed, unknown model.
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
        status: HTTP status, None without a response.
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

    @property
    def answer(self) -> Answer:
        return Answer(unscored=self.reason, detail=self.detail, usage=self.usage, blame=self.blame)


async def send(
    provider: Provider, client: Any, body: Mapping[str, Any], call: UnderWay, *, conversation: bool = False
) -> Any:
    """Return the response as a message, that to a ``conversation`` in its server's words; ``CallError``: there is none."""
    sdk: Any = provider.sdk()
    UNDER_WAY.set(call)
    try:
        async with call.begin():
            content = await (provider.converse if conversation else provider.create)(client, body)
    except TimeoutError:
        said = ", ".join(map(str, call.statuses))
        detail = f"no answer within the deadline{f' (the server said {said})' if said else ''}"
        # Refusals are not billed.
        usage = UNKNOWN_USAGE if call.may_be_billed else Usage(calls=1)
        raise CallError(detail, "timeout", Unscored.TIMEOUT, usage=usage) from None
    except CallError:
        raise
    except sdk.APITimeoutError:
        raise CallError("the server went silent", "silence", Unscored.TIMEOUT, usage=UNKNOWN_USAGE) from None
    except sdk.APIConnectionError as error:
        raise _connection_error(error) from error
    except sdk.APIStatusError as error:
        found = refused(error.status_code, error.body, error.response.headers.get("x-amzn-errortype", ""))
        if call.asked_to_wait is not None:
            said = f"; it asks to wait {call.asked_to_wait:g} s, which is longer than the time that is left"
            found = replace(found, detail=found.detail + said)
        raise found from error
    except Exception as error:
        detail = f"{type(error).__name__}: {_line(str(error))}"
        if call.sent:
            raise CallError(detail, type(error).__name__, usage=UNKNOWN_USAGE) from error
        # Credentials that cannot be had are missing for the next call too; what a value of this request breaks is not.
        fatal = not isinstance(error, ValueError)
        raise CallError(f"nothing could be sent: {detail}", type(error).__name__, fatal=fatal) from error
    try:
        told = strict_json(content.decode("utf-8"))
        return told if conversation else provider.read(told)
    except ValueError:
        said = call.statuses[-1] if call.statuses else 200
        raise CallError(f"HTTP {said} with a body that is not JSON", "not json", usage=UNKNOWN_USAGE) from None


def _connection_error(error: Exception) -> CallError:
    cause = error.__cause__ or error
    name = type(cause).__name__
    # Refused before anything was sent; any other break may have come after the work.
    usage = Usage(calls=1) if name in ("ConnectError", "ConnectTimeout") else UNKNOWN_USAGE
    return CallError(f"connection failed: {name}: {_line(str(cause)) or 'no reason given'}", name, usage=usage)


def refused(status: int, body: Any, kind: str = "") -> CallError:
    """Return the failure that a server's error is, wherever in ``body`` its server puts kind, code and words.

    ``status`` is the error's own where the response's is 200; ``kind`` is what Amazon names in a header, with more behind a colon.
    """
    kinds, code, message = _what_it_says(body)
    words = [part for part in (*kinds, _line(kind.partition(":")[0]), code) if part]
    said = _line(message) or ("" if words else "no JSON in the response")
    # Google answers 400 to a wrong key. OpenRouter answers 404 where a model's servers do not take the parameters.
    meant = 401 if code == "API_KEY_INVALID" else 400 if message.startswith("No endpoints found that") else status
    return CallError(
        f"HTTP {status}" + (f" {' '.join(words)}" if words else "") + (f": {said}" if said else ""),
        f"{status} {code}",
        # What the prompt's filter of a cloud will not let through.
        Unscored.REFUSAL if code == "content_filter" else Unscored.API_ERROR,
        status=meant,
        fatal=meant in _FATAL_STATUS or bool(_FATAL_CODES.search(code)),
    )


def _what_it_says(body: Any) -> tuple[list[str], str, str]:
    """Return the kind, the code and the words of an error."""
    body = body[0] if isinstance(body, list) and body else body
    if isinstance(body, str) and not body.lstrip().startswith("<"):
        return [], "", body
    outer = body if isinstance(body, Mapping) else {}
    inner = outer.get("error")
    inner = inner if isinstance(inner, Mapping) else outer
    details = inner.get("details")
    # Google lists them, Anthropic has one.
    found = [each for each in (details if isinstance(details, list) else [details]) if isinstance(each, Mapping)]
    codes = [each.get(name) for each in found for name in ("error_code", "reason")]
    return (
        [_line(kind) for kind in (inner.get("type"), inner.get("status")) if isinstance(kind, str) and kind],
        next((_line(code) for code in (*codes, inner.get("code")) if isinstance(code, str)), ""),
        str(inner.get("message") or inner.get("Message") or ""),
    )


def _line(text: str) -> str:
    """A server's words on one short line, without what looks like a key."""
    return _KEY.sub("sk-...", visible(text))[:200]
