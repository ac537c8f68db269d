"""What a provider of a judge's model has to say (server, needs, how its SDK is called), and providers by name."""

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import lru_cache
from importlib.util import find_spec
from types import ModuleType
from typing import Any, ClassVar, Protocol
from urllib.parse import urlsplit

from pydantic import SecretStr

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.registry import Registry

FIRST = "anthropic"
Hooks = Mapping[str, list[Any]]


class Calling(Protocol):
    """How a model is called, as far as a provider looks at it; see ``judging.model.options.ModelOptions``."""

    @property
    def model(self) -> str: ...
    @property
    def api_key(self) -> SecretStr | None: ...
    @property
    def base_url(self) -> str | None: ...
    @property
    def endpoint(self) -> str: ...
    @property
    def is_anthropic(self) -> bool: ...
    @property
    def ambient_key(self) -> bool: ...
    @property
    def deadline(self) -> float: ...
    @property
    def max_retries(self) -> int: ...
    def require_usable(self) -> None: ...


class Provider(ABC):
    """A provider. It has no state: one instance serves every judge.

    A question goes out as the body of ``POST /v1/messages`` and an answer comes back as such a message; a provider whose server
    speaks otherwise translates both. Limits, retries, deadlines, budgets, caching and recordings are the backend's.

    Attributes:
        name: what ``--judge`` takes; stands in provenance and in the key of cached judgments.
        default_model: asked where no model is set; None: a model must be set.
        extra: of this package, where the provider needs more than is always installed.
        url_variable: the environment variable that says where the server is.
        key_help: how to give it a key, for people.
        counts_tokens: whether its server counts the tokens of a request without answering it.
        describes_models: whether its client can be asked about a model.
    """

    name: ClassVar[str]
    default_model: ClassVar[str | None] = None
    extra: ClassVar[str] = ""
    modules: ClassVar[tuple[str, ...]] = ()
    url_variable: ClassVar[str] = ""
    key_help: ClassVar[str] = ""
    counts_tokens: ClassVar[bool] = False
    describes_models: ClassVar[bool] = False

    @property
    @abstractmethod
    def default_url(self) -> str:
        """Where the server is when neither an option nor the environment says so.

        Raises:
            ConfigError: that needs a setting that is not there, such as a region.
        """

    @property
    @abstractmethod
    def api_version(self) -> str:
        """What the meaning of a request depends on beside its body: part of the key of cached judgments."""

    @abstractmethod
    def sdk(self) -> ModuleType:
        """Return the SDK, imported: the home of ``APIStatusError``, ``APIConnectionError`` and ``APITimeoutError``."""

    @abstractmethod
    def connect(self, options: Calling, hooks: Hooks) -> Any:
        """Return a client, to be closed.

        Args:
            hooks: of the SDK's HTTP client: every request and response has to pass them.
        """

    @abstractmethod
    async def create(self, client: Any, body: Mapping[str, Any]) -> bytes:
        """Return what the server answers to the body of ``POST /v1/messages``, as it came."""

    def read(self, response: Any) -> Any:
        """Return a server's answer, parsed, as a message of the Messages API; what is no answer may stay as it is."""
        return response

    def has_credentials(self, options: Calling) -> bool:
        """Whether there is a key as far as can be told without asking; servers of one's own need none."""
        return True

    def require_usable(self, options: Calling) -> None:
        """Check what can be checked without asking anybody.

        Raises:
            ConfigError: a package, key or setting is missing.
        """
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
    },
    what="judge",
)


@lru_cache
def find_provider(name: str) -> Provider:
    """Return the provider of a live judge.

    Raises:
        ConfigError: nobody offers one of that name, or it cannot be loaded.
    """
    found = PROVIDERS.find(name)
    if found is None:
        raise ConfigError(f"unknown judge {name!r}{PROVIDERS.hint(name, [RECORDED])}")
    return found()
