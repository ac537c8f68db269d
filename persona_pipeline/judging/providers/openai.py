"""Models behind the chat completions API, at OpenAI or at any server that speaks it, through the openai SDK."""

import os
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

from persona_pipeline.judging.providers.base import Hooks, Provider
from persona_pipeline.judging.providers.chat_completions import as_chat, as_message

if TYPE_CHECKING:
    from persona_pipeline.judging.options import AnthropicOptions

_KEY = "OPENAI_API_KEY"
# They reject ``max_tokens``, which all others know.
_COUNTS_COMPLETION_TOKENS = ("openai.com", "azure.com")


class OpenAIProvider(Provider):
    """The chat completions API; its translation has a version of its own, since cached answers depend on it."""

    name: ClassVar[str] = "openai"
    extra: ClassVar[str] = "openai"
    modules: ClassVar[tuple[str, ...]] = ("openai",)
    url_variable: ClassVar[str] = "OPENAI_BASE_URL"
    key_help: ClassVar[str] = f"set {_KEY}"
    describes_models: ClassVar[bool] = True

    @property
    def default_url(self) -> str:
        return "https://api.openai.com/v1"

    @property
    def api_version(self) -> str:
        return "chat completions, 1"

    def sdk(self) -> ModuleType:
        import openai

        return openai

    def has_credentials(self, options: "AnthropicOptions") -> bool:
        return bool(options.api_key or os.environ.get(_KEY)) or not _is_at(options.endpoint, "openai.com")

    def connect(self, options: "AnthropicOptions", hooks: Hooks) -> Any:
        self.require_usable(options)
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient, Timeout

        key = options.api_key.get_secret_value() if options.api_key else os.environ.get(_KEY)
        return AsyncOpenAI(
            api_key=key or "none",
            base_url=options.endpoint,
            timeout=Timeout(options.deadline, connect=min(5.0, options.deadline)),
            max_retries=options.max_retries,
            http_client=DefaultAsyncHttpxClient(event_hooks=dict(hooks)),
        )

    async def create(self, client: Any, body: Mapping[str, Any]) -> bytes:
        chat = as_chat(body, limit=self.limit_of(str(client.base_url)))
        response = await client.chat.completions.with_raw_response.create(**chat)
        return response.content

    def limit_of(self, url: str) -> str:
        """Return the field for the most tokens of an answer, as the server at this address calls it."""
        is_new = any(_is_at(url, domain) for domain in _COUNTS_COMPLETION_TOKENS)
        return "max_completion_tokens" if is_new else "max_tokens"

    def read(self, response: Any) -> Any:
        return as_message(response)


def _is_at(url: str, domain: str) -> bool:
    host = urlsplit(url).hostname or ""
    return host == domain or host.endswith(f".{domain}")
