"""Chat completions: translation of the Messages API, and the providers that use them."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any, ClassVar
from urllib.parse import urlsplit

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.judging.providers.base import (
    CallError,
    Hooks,
    ModelOptions,
    Provider,
    refused,
)
from persona_pipeline.judging.verdict import UNKNOWN_USAGE

# Some servers take nothing but nine letters and digits.
_CALL_ID = "read00001"
_STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "content_filter": "refusal",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
}


def as_chat(body: Mapping[str, Any], *, limit: str, tools: bool = True) -> dict[str, Any]:
    """Return the body of ``POST /chat/completions``, whose field for the most tokens of the answer is ``limit``.

    With a schema the transcript is a tool's result, as in the Messages API, where the server takes tools whatever its model.
    Without, for servers that took no schema, nothing is sent that a plain server may not know: no tool either, and the transcript
    is a turn of the user.
    """
    output = body.get("output_config")
    chat: dict[str, Any] = {
        "model": body["model"],
        limit: body["max_tokens"],
        "messages": [
            {"role": "system", "content": _joined(body["system"])},
            *(_turns(body["messages"]) if output and tools else _plain_turns(body["messages"])),
        ],
    }
    if output:
        schema = {"name": "answer", "strict": True, "schema": output["format"]["schema"]}
        chat["response_format"] = {"type": "json_schema", "json_schema": schema}
        if tools:
            chat["tools"] = [_tool(tool) for tool in body["tools"]]
            chat["tool_choice"] = "none"
        if "effort" in output:
            chat["reasoning_effort"] = output["effort"]
    return chat


def as_message(response: Any) -> Any:
    """Return a chat completion as a message; anything else as it is."""
    try:
        choice = response["choices"][0]
        said = choice["message"]
        refusal, text = said.get("refusal"), _text(said.get("content"))
    except (TypeError, KeyError, IndexError, AttributeError):
        return response
    reason = choice.get("finish_reason")
    return {
        "model": response.get("model"),
        "content": [{"type": "text", "text": text}] if text else [],
        "stop_reason": "refusal" if refusal else _STOP_REASONS.get(reason, reason) if isinstance(reason, str) else None,
        "stop_details": {"category": "content_filter"} if reason == "content_filter" else None,
        "usage": read_chat_usage(response.get("usage")),
    }


def _turns(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    turns: list[dict[str, Any]] = []
    for message in messages:
        first = message["content"][0]
        if first["type"] == "tool_use":
            function = {"name": first["name"], "arguments": json.dumps(first["input"])}
            call = {"id": _CALL_ID, "type": "function", "function": function}
            turns.append({"role": "assistant", "content": None, "tool_calls": [call]})
        elif first["type"] == "tool_result":
            turns.append({"role": "tool", "tool_call_id": _CALL_ID, "content": first["content"]})
        else:
            turns.append({"role": message["role"], "content": _joined(message["content"])})
    return turns


def _plain_turns(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    context, _, result, ready, ask = messages
    evidence = result["content"][0]["content"]
    shown = [block["text"] for block in context["content"][:-1]]
    return [
        {"role": "user", "content": "\n\n".join([*shown, f"The transcript to be judged, as JSON:\n{evidence}"])},
        {"role": "assistant", "content": _joined(ready["content"])},
        {"role": "user", "content": _joined(ask["content"])},
    ]


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": tool["name"], "description": tool["description"], "parameters": tool["input_schema"]}
    return {"type": "function", "function": function}


def _joined(blocks: Sequence[Mapping[str, Any]]) -> str:
    return "\n\n".join(block["text"] for block in blocks)


def _text(content: Any) -> str:
    """Return the text of an answer; some servers send it in parts."""
    if isinstance(content, list):
        return "".join(part["text"] for part in content if part.get("type") == "text")
    return content if isinstance(content, str) else ""


def read_chat_usage(usage: Any) -> Any:
    """Return usage with cached tokens apart from the input and thinking as output; None where it is not reported."""
    if not isinstance(usage, Mapping):
        return None
    # The Responses API has other names for the same.
    read, written = ("input", "output") if "input_tokens" in usage else ("prompt", "completion")
    prompt = usage.get(f"{read}_tokens")
    if not isinstance(prompt, int):
        return None
    output, total = usage.get(f"{written}_tokens"), usage.get("total_tokens")
    if isinstance(output, int) and isinstance(total, int):
        # Gemini counts what it thought in the total alone.
        output = max(output, total - prompt)
    details = usage.get(f"{read}_tokens_details")
    cached = (details.get("cached_tokens") if isinstance(details, Mapping) else None) or 0
    if not isinstance(cached, int):
        return None
    return {
        "input_tokens": prompt - cached,
        "output_tokens": output,
        "cache_read_input_tokens": cached,
        "cost": usage.get("cost"),
    }


# They reject ``max_tokens``, which all others know.
_COUNTS_COMPLETION_TOKENS = ("openai.com", "azure.com")


class OpenAIProvider(Provider):
    """The chat completions API. Its translation has a version, since cached answers depend on it.

    Attributes:
        key_variable: the environment variable with the key.
        server: where it is when nothing else is said.
        domain: of servers that require a key.
        takes_tools: all models take tools together with a schema: then the transcript is a tool's result.
    """

    name: ClassVar[str] = "openai"
    extra: ClassVar[str] = "openai"
    modules: ClassVar[tuple[str, ...]] = ("openai",)
    url_variable: ClassVar[str] = "OPENAI_BASE_URL"
    key_variable: ClassVar[str] = "OPENAI_API_KEY"
    key_help: ClassVar[str] = "set OPENAI_API_KEY"
    server: ClassVar[str] = "https://api.openai.com/v1"
    domain: ClassVar[str] = "openai.com"
    takes_tools: ClassVar[bool] = True
    describes_models: ClassVar[bool] = True

    @property
    def default_url(self) -> str:
        return self.server

    @property
    def api_version(self) -> str:
        return "chat completions, 1"

    def sdk(self) -> ModuleType:
        import openai

        return openai

    def has_credentials(self, options: ModelOptions) -> bool:
        return not _is_at(options.endpoint, self.domain) or bool(options.api_key or os.environ.get(self.key_variable))

    def connect(self, options: ModelOptions, hooks: Hooks) -> Any:
        self.require_usable(options)
        key = os.environ.get(self.key_variable) if options.ambient_key else None
        client = self.client(
            options.endpoint,
            api_key=options.key or key or "none",
            **self.how_to_call(options, hooks),
        )
        if not options.ambient_key:
            # What OPENAI_CUSTOM_HEADERS holds may be a key too.
            client._custom_headers, client.organization, client.project = {}, None, None
        return client

    def client(self, url: str, **how: Any) -> Any:
        """Return the SDK's client for a server."""
        from openai import AsyncOpenAI

        return AsyncOpenAI(base_url=url, **how)

    async def create(self, client: Any, body: Mapping[str, Any]) -> bytes:
        chat = as_chat(body, limit=self.limit_of(str(client.base_url)), tools=self.takes_tools)
        response = await client.chat.completions.with_raw_response.create(**chat)
        return response.content

    def limit_of(self, url: str) -> str:
        """Return the field for the most tokens of an answer, as the server at this address calls it."""
        is_new = any(_is_at(url, domain) for domain in _COUNTS_COMPLETION_TOKENS)
        return "max_completion_tokens" if is_new else "max_tokens"

    def read(self, response: Any) -> Any:
        if error := _error_in(response):
            raise error
        return as_message(response)

    def usage_in(self, response: Any) -> Any:
        return read_chat_usage(response.get("usage"))

    async def converse(self, client: Any, body: Mapping[str, Any]) -> bytes:
        # The Responses API takes an input where chat completions take messages.
        responses = "input" in body
        limit = "max_output_tokens" if responses else self.limit_of(str(client.base_url))
        sent = {limit if key == "max_tokens" else key: value for key, value in body.items()}
        calls = client.responses if responses else client.chat.completions
        return (await calls.with_raw_response.create(**sent)).content


def _error_in(response: Any) -> CallError | None:
    """Return the failure in an answer with status 200: a router's whose provider failed at work; None: there is none."""
    choices = response.get("choices") if isinstance(response, Mapping) else None
    for place in (response, *(choices if isinstance(choices, list) else ())):
        error = place.get("error") if isinstance(place, Mapping) else None
        if isinstance(error, Mapping):
            code = error.get("code")
            found = refused(code if isinstance(code, int) else 200, error)
            # Without a header the time to wait is not known.
            return replace(found, usage=UNKNOWN_USAGE, status=None if code == 429 else found.status)
    return None


def _is_at(url: str, domain: str) -> bool:
    host = urlsplit(url).hostname or ""
    return host == domain or host.endswith(f".{domain}")


class AzureProvider(OpenAIProvider):
    """Azure OpenAI: the model is a deployment's name. The v1 API, or a dated one where OPENAI_API_VERSION names its version."""

    name: ClassVar[str] = "azure"
    url_variable: ClassVar[str] = "AZURE_OPENAI_ENDPOINT"
    key_variable: ClassVar[str] = "AZURE_OPENAI_API_KEY"
    key_help: ClassVar[str] = "set AZURE_OPENAI_API_KEY"
    domain: ClassVar[str] = "azure.com"
    # It lists models and not their deployments.
    describes_models: ClassVar[bool] = False

    @property
    def default_url(self) -> str:
        raise ConfigError(
            f"azure has no server; set {self.url_variable} to the resource's address, https://NAME.openai.azure.com"
        )

    def endpoint(self, base_url: str | None) -> str:
        url = super().endpoint(base_url)
        return url if _version_for(url) or urlsplit(url).path else f"{url}/openai/v1"

    def client(self, url: str, **how: Any) -> Any:
        from openai import AsyncAzureOpenAI

        version = _version_for(url)
        return (
            AsyncAzureOpenAI(azure_endpoint=url, api_version=version, **how) if version else super().client(url, **how)
        )

    def limit_of(self, url: str) -> str:
        return "max_completion_tokens"


def _version_for(url: str) -> str | None:
    """Return the version of the API that an address without a path is asked in; None: the v1 API, which has none."""
    return None if urlsplit(url).path else os.environ.get("OPENAI_API_VERSION")


class _Server(OpenAIProvider):
    """A server whose variables are called by its name, and whose models do not all take tools, or calls they have not made."""

    takes_tools: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        cls.url_variable, cls.key_variable = f"{cls.name.upper()}_BASE_URL", f"{cls.name.upper()}_API_KEY"
        cls.key_help = f"set {cls.key_variable}"

    def endpoint(self, base_url: str | None) -> str:
        url = super().endpoint(base_url)
        return url if urlsplit(url).path else url + urlsplit(self.server).path


class GeminiProvider(_Server):
    """Gemini, by Google's own chat completions: of the Gemini API, or of Vertex AI with an access token as the key."""

    name: ClassVar[str] = "gemini"
    server: ClassVar[str] = "https://generativelanguage.googleapis.com/v1beta/openai"
    domain: ClassVar[str] = "googleapis.com"


class OllamaProvider(_Server):
    """Ollama on this machine, or wherever OLLAMA_BASE_URL says."""

    name: ClassVar[str] = "ollama"
    server: ClassVar[str] = "http://localhost:11434/v1"
    domain: ClassVar[str] = "ollama.com"


class VllmProvider(_Server):
    """vLLM on this machine, or wherever VLLM_BASE_URL says."""

    name: ClassVar[str] = "vllm"
    server: ClassVar[str] = "http://localhost:8000/v1"
    domain: ClassVar[str] = ""


class OpenRouterProvider(_Server):
    """OpenRouter, which asks others and says what that cost."""

    name: ClassVar[str] = "openrouter"
    server: ClassVar[str] = "https://openrouter.ai/api/v1"
    domain: ClassVar[str] = "openrouter.ai"
