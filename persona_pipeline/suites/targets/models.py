"""Targets that are models: ``anthropic`` speaks the Messages API, ``openai`` chat completions, and ``persona`` plays an agent of
the world. They have one connection for a run, and failures in words.
"""

import contextlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

from pydantic import Field, PrivateAttr, SecretStr

from persona_pipeline.base.calls import BackgroundLoop
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.settings import DEFAULT_JUDGE_MODEL
from persona_pipeline.suites.answering.base import Request, TargetError, TargetFields, persona_prompt
from persona_pipeline.suites.answering.output import Output, TokenUsage
from persona_pipeline.suites.format.models import Text

# What one request may take at most, whatever a run asks for: that ends sooner, by its own deadline.
_LONGEST_SECONDS = 3600.0


class ModelTarget(TargetFields):
    """Sends the test's messages to a model, over a provider's SDK. Subclasses say in which words."""

    asks_network: ClassVar[bool] = True
    is_model: ClassVar[bool] = True
    # Whose SDK is used.
    _provider: ClassVar[str]

    model: Text = Field(description="The model's id.")
    max_tokens: int = Field(2048, ge=1, description="For the answer and the thinking before it.")
    system: str | None = Field(None, description="Put before the test's own system messages.")
    api_key: SecretStr | None = Field(None, description="By default that of the environment.")
    max_retries: int = Field(2, ge=0, le=10, description="How often the SDK tries again what can pass.")
    base_url: Text | None = Field(None, description="By default what the environment says, else the provider's own.")

    _loop: BackgroundLoop = PrivateAttr(default_factory=lambda: BackgroundLoop("suite-target"))
    _client: Any = PrivateAttr(None)

    def body(self, messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the request that continues a conversation; without a turn to answer, one without messages."""
        raise NotImplementedError

    def read(self, response: Any, duration_ms: float) -> Output:
        raise NotImplementedError

    def system_prompt(self) -> str:
        return self.system or ""

    def respond(self, request: Request) -> Output:
        self.require_network()
        if not any(message["role"] == "user" and message["content"].strip() for message in request.messages):
            raise TargetError("invalid_request", "the test's input has no user message to answer")
        started = time.monotonic()
        response = self._loop.wait(self._send(self.body(request.messages), request.timeout))
        return self.read(response, round((time.monotonic() - started) * 1000, 3))

    async def _send(self, body: dict[str, Any], timeout: float) -> Any:
        from persona_pipeline.judging.providers.base import (
            CallError,
            Leave,
            ModelOptions,
            connect,
            find_provider,
            send,
        )

        provider = find_provider(self._provider).conversing()
        options = ModelOptions(
            provider=provider,
            model=self.model,
            deadline=_LONGEST_SECONDS,
            max_retries=self.max_retries,
            base_url=self.base_url,
            api_key=self.api_key,
            # Whoever names the server gets no key but the one he names.
            ambient_key=self.base_url is None or self._grants.own,
        )
        try:
            if self._client is None:
                self._client = connect(options)
            return await send(provider, self._client, body, Leave(time.monotonic() + timeout))
        except CallError as error:
            # The SDK has retried what can pass; a test's own deadline is all that another try could change.
            reason = str(error.reason)
            raise TargetError(reason, f"target {self.name!r}: {error.detail}", transient=reason == "timeout") from error
        except ConfigError as error:
            raise TargetError("no_credentials", f"target {self.name!r}: {error}") from error

    def said(
        self, response: Mapping[str, Any], text: str, calls: Sequence[Mapping[str, Any]], why: Any, duration_ms: float
    ) -> Output:
        """Return the output of a response that says this, with its tokens, cached ones apart, and its price where that is known.

        ``why``: it stopped, in the provider's word.

        Raises:
            TargetError: the model refused, or said nothing.
        """
        from persona_pipeline.base.settings import Settings, from_environment
        from persona_pipeline.judging.money import read_usage
        from persona_pipeline.judging.providers.base import find_provider

        if why in ("refusal", "content_filter"):
            raise TargetError("refusal", f"target {self.name!r} refused to answer")
        if not text and not calls:
            raise TargetError(
                "truncated" if why in ("max_tokens", "length") else "empty", f"target {self.name!r} said nothing"
            )
        used, served = find_provider(self._provider).usage_in(response), str(response.get("model") or self.model)
        given = self._grants.prices
        prices = from_environment(Settings).judge_prices if given is None else given
        usage = read_usage(used, served, self.model, prices=prices)
        cached = usage.cache_read_tokens + usage.cache_creation_tokens
        tokens = TokenUsage(usage.input_tokens, usage.output_tokens, cached or None)
        message = {"role": "assistant", "content": text} | ({"tool_calls": calls} if calls else {})
        return Output([message], tokens if tokens.input or tokens.output else None, usage.usd, duration_ms)

    def close(self) -> None:
        if self._client is not None:
            self._loop.wait(self._client.close())
            self._client = None
        self._loop.close()

    def fingerprint(self) -> Mapping[str, Any]:
        return self.model_dump(mode="json", exclude={"api_key"}) | {"system_prompt": self.system_prompt()}


class AnthropicTarget(ModelTarget):
    """Sends the test's messages to a model. System messages become the system prompt."""

    model: Text = Field(DEFAULT_JUDGE_MODEL, description="The model's id.")

    _provider: ClassVar[str] = "anthropic"

    def body(self, messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        system, turns = conversation(messages, self.system_prompt())
        body: dict[str, Any] = {"model": self.model, "max_tokens": self.max_tokens, "messages": turns}
        return body | ({"system": system} if system else {})

    def read(self, response: Any, duration_ms: float) -> Output:
        blocks = response.get("content") if isinstance(response, Mapping) else None
        if not isinstance(blocks, list) or not all(isinstance(block, Mapping) for block in blocks):
            raise TargetError("invalid_response", f"target {self.name!r} did not send a message")
        text = "".join(str(block.get("text", "")) for block in blocks if block.get("type") == "text")
        calls = [
            {"tool": str(block.get("name")), "input": block.get("input"), "id": block.get("id")}
            for block in blocks
            if block.get("type") == "tool_use"
        ]
        return self.said(response, text, calls, response.get("stop_reason"), duration_ms)


def conversation(messages: Sequence[Mapping[str, Any]], system: str) -> tuple[str, list[Any]]:
    """Return the system prompt and the turns of a conversation; neighbours of one role become one turn."""
    systems = [system] if system else []
    turns: list[dict[str, Any]] = []
    for message in messages:
        text = message["content"]
        if message["role"] == "system":
            systems.append(text)
            continue
        role = "assistant" if message["role"] == "assistant" else "user"
        if not text.strip():
            continue
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"].append({"type": "text", "text": text})
        else:
            turns.append({"role": role, "content": [{"type": "text", "text": text}]})
    return "\n\n".join(systems), turns


class OpenAITarget(ModelTarget):
    """Sends the test's messages to a model behind chat completions. Needs the extra ``openai``."""

    _provider: ClassVar[str] = "openai"

    def body(self, messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        system = [{"role": "system", "content": self.system_prompt()}] if self.system_prompt() else []
        said = [
            # A tool's message stands alone here: the call that it answers is not known.
            {
                "role": role if (role := message["role"]) in ("system", "assistant") else "user",
                "content": message["content"],
            }
            for message in messages
            if message["content"].strip()
        ]
        return {"model": self.model, "max_tokens": self.max_tokens, "messages": [*system, *said]}

    def read(self, response: Any, duration_ms: float) -> Output:
        try:
            choice = response["choices"][0]
            said = choice["message"]
            text, refusal = said.get("content") or "", said.get("refusal")
            calls = [_call(item) for item in said.get("tool_calls") or ()]
        except (TypeError, KeyError, IndexError, AttributeError):
            raise TargetError("invalid_response", f"target {self.name!r} did not send a chat completion") from None
        why = "refusal" if refusal else choice.get("finish_reason")
        output = self.said(response, text, calls, why, duration_ms)
        # A server that counts no tokens does not say what they cost.
        return output if output.token_usage else replace(output, cost_usd=None)


def _call(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool call as outputs hold it; arguments that are no JSON stay text."""
    arguments = item["function"].get("arguments")
    with contextlib.suppress(TypeError, ValueError):
        arguments = json.loads(arguments)
    return {"tool": str(item["function"]["name"]), "input": arguments, "id": item.get("id")}


class PersonaTarget(AnthropicTarget):
    """Sends the test's messages to a model that plays an agent: its persona is the system prompt."""

    plays_agent: ClassVar[bool] = True

    agent: Text = Field(description="The agent's id; its persona file is personas/<agent>.yaml.")
    root: Text | None = Field(
        None, description="The world's folder, relative to the targets file; by default PERSONA_ROOT."
    )

    @cached_property
    def _persona_text(self) -> str:
        from persona_pipeline.world.personas import load_persona

        root = self.allowed(self.root) if self.root else self._grants.world
        if root is None:
            raise ConfigError("there is no world; name its folder as root")
        return persona_prompt(load_persona(root, self.agent, self._grants.within))

    def open(self) -> None:
        try:
            _ = self._persona_text
        except ConfigError as error:
            raise ConfigError(f"target {self.name!r}: {error}") from error

    def system_prompt(self) -> str:
        return "\n\n".join(filter(None, (self._persona_text, self.system)))
