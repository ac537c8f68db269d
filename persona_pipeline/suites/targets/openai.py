"""``openai``: a model answers through the chat completions API, at OpenAI or at any server that speaks it."""

import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from persona_pipeline.suites.answering.base import TargetError
from persona_pipeline.suites.answering.model import ModelTarget, check_said
from persona_pipeline.suites.answering.output import Output, TokenUsage


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
        reason = choice.get("finish_reason")
        refused = bool(refusal) or reason == "content_filter"
        check_said(text, calls, refused=refused, truncated=reason == "length", name=self.name)
        message: dict[str, Any] = {"role": "assistant", "content": text} | ({"tool_calls": calls} if calls else {})
        return Output([message], *self._tokens(response), duration_ms)

    def _tokens(self, response: Mapping[str, Any]) -> tuple[TokenUsage | None, float | None]:
        """Return tokens, cached ones apart, and dollars where the model's price is known."""
        usage = self.took(response)
        if not (usage.input_tokens or usage.output_tokens):
            return None, None
        return TokenUsage(usage.input_tokens, usage.output_tokens, usage.cache_read_tokens or None), usage.usd


def _call(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool call as outputs hold it; arguments that are no JSON stay text."""
    arguments = item["function"].get("arguments")
    with contextlib.suppress(TypeError, ValueError):
        arguments = json.loads(arguments)
    return {"tool": str(item["function"]["name"]), "input": arguments, "id": item.get("id")}
