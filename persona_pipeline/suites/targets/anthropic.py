"""``anthropic``: a model answers through the Messages API, at Anthropic or at any server that speaks it."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic import Field, SecretStr

from persona_pipeline.errors import ConfigError
from persona_pipeline.settings import DEFAULT_JUDGE_MODEL
from persona_pipeline.suites.format.field_types import Text
from persona_pipeline.suites.targets.base import Request, TargetError
from persona_pipeline.suites.targets.fields import TargetFields
from persona_pipeline.suites.targets.output import Output, TokenUsage


class AnthropicTarget(TargetFields):
    """Sends the test's messages to a model. System messages become the system prompt."""

    asks_network: ClassVar[bool] = True

    model: Text = Field(DEFAULT_JUDGE_MODEL, description="The model's id.")
    max_tokens: int = Field(2048, ge=1, description="For the answer and the thinking before it.")
    system: str | None = Field(None, description="Put before the test's own system messages.")
    api_key: SecretStr | None = Field(None, description="By default ANTHROPIC_API_KEY.")
    max_retries: int = Field(2, ge=0, le=10, description="How often the SDK tries again what can pass.")
    base_url: Text | None = Field(None, description="By default ANTHROPIC_BASE_URL.")

    def system_prompt(self) -> str:
        """Return what stands before the test's own system messages."""
        return self.system or ""

    def respond(self, request: Request) -> Output:
        if not self._grants.reaches:
            raise TargetError(
                "target_not_allowed",
                f"target {self.name!r} asks a server; pass --allow-targets if you trust it, or give a targets file of your own",
            )
        system, turns = conversation(request.messages, self.system_prompt())
        if not turns:
            raise TargetError("invalid_request", "the test's input has no user message to answer")
        body: dict[str, Any] = {"model": self.model, "max_tokens": self.max_tokens, "messages": turns}
        started = time.monotonic()
        message = asyncio.run(self._send(body | ({"system": system} if system else {}), request.timeout))
        return read_message(message, round((time.monotonic() - started) * 1000, 3), self.name, self.model)

    async def _send(self, body: dict[str, Any], timeout: float) -> Any:
        from persona_pipeline.judging.client import CallError, send
        from persona_pipeline.judging.connection import Leave, connect
        from persona_pipeline.judging.options import AnthropicOptions

        options = AnthropicOptions(
            model=self.model,
            deadline=timeout,
            max_retries=self.max_retries,
            base_url=self.base_url,
            api_key=self.api_key,
            # Whoever names the server gets no key but the one he names.
            ambient_key=self.base_url is None or self._grants.own,
        )
        try:
            async with connect(options) as client:
                return await send(options.provider, client, body, Leave(time.monotonic() + timeout))
        except CallError as error:
            # The SDK has retried what can pass; a test's own deadline is all that another try could change.
            reason = str(error.reason)
            raise TargetError(reason, f"target {self.name!r}: {error.detail}", transient=reason == "timeout") from error
        except ConfigError as error:
            raise TargetError("no_credentials", f"target {self.name!r}: {error}") from error

    def fingerprint(self) -> Mapping[str, Any]:
        return self.model_dump(mode="json", exclude={"api_key"}) | {"system_prompt": self.system_prompt()}


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


def read_message(message: Any, duration_ms: float, name: str, model: str) -> Output:
    """Return the output of a Messages API response, given as JSON.

    Raises:
        TargetError: it is no such response, or the model refused or said nothing.
    """
    from persona_pipeline.judging.response import read_usage

    blocks = message.get("content") if isinstance(message, Mapping) else None
    if not isinstance(blocks, list) or not all(isinstance(block, Mapping) for block in blocks):
        raise TargetError("invalid_response", f"target {name!r} did not send a message")
    text = "".join(str(block.get("text", "")) for block in blocks if block.get("type") == "text")
    calls = [
        {"tool": str(block.get("name")), "input": block.get("input"), "id": block.get("id")}
        for block in blocks
        if block.get("type") == "tool_use"
    ]
    stopped = message.get("stop_reason")
    if stopped == "refusal":
        raise TargetError("refusal", f"target {name!r} refused to answer")
    if not text and not calls:
        raise TargetError("truncated" if stopped == "max_tokens" else "empty", f"target {name!r} said nothing")
    usage = read_usage(message.get("usage"), str(message.get("model") or model), model)
    known = usage.input_tokens or usage.output_tokens
    tokens = TokenUsage(
        usage.input_tokens, usage.output_tokens, usage.cache_read_tokens + usage.cache_creation_tokens or None
    )
    said: dict[str, Any] = {"role": "assistant", "content": text} | ({"tool_calls": calls} if calls else {})
    return Output([said], tokens if known else None, usage.usd, duration_ms)
