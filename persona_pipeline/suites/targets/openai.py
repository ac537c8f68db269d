"""``openai``: a model answers through the chat completions API, at OpenAI or at any server that speaks it."""

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from persona_pipeline.suites.answering.base import TargetError
from persona_pipeline.suites.answering.model import ModelTarget
from persona_pipeline.suites.answering.output import Output


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
        stopped = choice.get("finish_reason")
        refused, truncated = bool(refusal) or stopped == "content_filter", stopped == "length"
        output = self.said(response, text, calls, refused=refused, truncated=truncated, duration_ms=duration_ms)
        # A server that counts no tokens does not say what they cost.
        return output if output.token_usage else replace(output, cost_usd=None)


def _call(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool call as outputs hold it; arguments that are no JSON stay text."""
    arguments = item["function"].get("arguments")
    with contextlib.suppress(TypeError, ValueError):
        arguments = json.loads(arguments)
    return {"tool": str(item["function"]["name"]), "input": arguments, "id": item.get("id")}
