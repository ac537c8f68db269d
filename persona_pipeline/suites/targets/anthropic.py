"""``anthropic``: a model answers through the Messages API, at Anthropic or at any server that speaks it."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic import Field

from persona_pipeline.base.settings import DEFAULT_JUDGE_MODEL
from persona_pipeline.suites.answering.base import TargetError
from persona_pipeline.suites.answering.model import ModelTarget
from persona_pipeline.suites.answering.output import Output
from persona_pipeline.suites.format.models import Text


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
        stopped = response.get("stop_reason")
        refused, truncated = stopped == "refusal", stopped == "max_tokens"
        return self.said(response, text, calls, refused=refused, truncated=truncated, duration_ms=duration_ms)


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
