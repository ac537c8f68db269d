"""``claude-agent-sdk``: an agent of the Claude Agent SDK, whose package is an optional dependency."""

import importlib
import os
import re
from contextlib import aclosing
from typing import Any, ClassVar

from pydantic import Field

from persona_pipeline.suites.answering.base import Request
from persona_pipeline.suites.sandbox.processes import little_environment
from persona_pipeline.suites.targets.python import AwaitedTarget

_SHOWN = 500
# No telemetry, no request for a title, and as many retries as other targets.
_QUIET = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "CLAUDE_CODE_MAX_RETRIES": "2"}


class ClaudeAgentTarget(AwaitedTarget):
    """Asks an agent of the Claude Agent SDK, a program that gets the prompt as ``cli`` does.

    Needs permission to run code and to ask a server, and the extra ``claude-agent-sdk``. By default it loads no settings
    files, expands nothing in the prompt and keeps no session.
    """

    runs_code: ClassVar[bool] = True
    asks_network: ClassVar[bool] = True

    options: dict[str, Any] = Field(
        default_factory=dict,
        description="Fields of ClaudeAgentOptions: model, system_prompt, allowed_tools, max_turns, ...",
    )
    environment: dict[str, str] = Field(
        default_factory=dict, description="Added to the little environment it gets, such as ANTHROPIC_API_KEY."
    )

    def sdk(self) -> Any:
        """Return the package. Raises ``TargetError``: it is not installed."""
        try:
            return importlib.import_module("claude_agent_sdk")
        except ImportError as error:
            said = f"it needs claude_agent_sdk ({error}); install it: pip install 'persona-pipeline[claude-agent-sdk]'"
            raise self.failure("not_installed", said) from error

    def prepare(self) -> None:
        super().prepare()
        self.sdk()

    async def ask(self, request: Request) -> dict[str, Any]:
        sdk, log = self.sdk(), list[str]()
        messages: list[dict[str, Any]] = []
        async with aclosing(sdk.query(prompt=request.prompt, options=self._options(sdk, request, log))) as events:
            async for event in events:
                if isinstance(event, sdk.ResultMessage):
                    return self._finished(event, messages)
                # Messages of a sub-agent are not the agent's.
                if isinstance(event, sdk.AssistantMessage | sdk.UserMessage) and not event.parent_tool_use_id:
                    self._add(event, messages)
        raise self.failure("crashed", f"it ended without a result: {' '.join(log)[-_SHOWN:]}")

    def _add(self, event: Any, messages: list[dict[str, Any]]) -> None:
        """Add a message of the SDK; one response of the model comes in several, with one id."""
        blocks = [_typed(block) for block in event.content] if isinstance(event.content, list) else event.content
        if error := getattr(event, "error", None):
            said = " ".join(block.get("text", "") for block in blocks)
            reason = "refusal" if event.stop_reason == "refusal" else "api_error"
            raise self.failure(reason, f"{error}: {said[:_SHOWN]}")
        identity = getattr(event, "message_id", None)
        if identity and messages and messages[-1]["id"] == identity:
            messages[-1]["content"] += blocks
        else:
            role = "assistant" if hasattr(event, "model") else "user"
            messages.append({"role": role, "content": blocks, "id": identity})

    def _options(self, sdk: Any, request: Request, log: list[str]) -> Any:
        # The SDK passes this process's environment on; other variables are emptied.
        inherited = {**dict.fromkeys(os.environ, ""), **little_environment()}
        environment = {**inherited, **_QUIET, **self.environment}
        given = {
            "setting_sources": [],
            "verbatim_prompts": True,
            "cwd": request.workspace or self.folder,
            **self.options,
        }
        given["extra_args"] = {"no-session-persistence": None, **given.get("extra_args", {})}
        try:
            return sdk.ClaudeAgentOptions(**given, env=environment, stderr=log.append)
        except TypeError as error:
            raise self.failure("invalid_options", f"options do not fit the SDK: {error}") from error

    def _finished(self, result: Any, messages: list[dict[str, Any]]) -> dict[str, Any]:
        if result.is_error:
            why = " ".join(result.errors or ()) or result.result or "it gave no reason"
            raise self.failure(result.subtype, f"{result.subtype}: {why[:_SHOWN]}")
        answers = [message for message in messages if message["role"] == "assistant"]
        if answers and result.stop_reason:
            answers[-1]["stop_reason"] = result.stop_reason
        used = result.usage or {}
        cached = sum(used.get(f"cache_{kind}_input_tokens") or 0 for kind in ("read", "creation"))
        tokens = {"input": used.get("input_tokens"), "output": used.get("output_tokens"), "cached": cached or None}
        took = {"duration_ms": result.duration_ms, "cost_usd": result.total_cost_usd}
        said = [{key: value for key, value in message.items() if key != "id"} for message in messages]
        return {"messages": said, "token_usage": tokens, **took}


def _typed(block: Any) -> dict[str, Any]:
    """Return a block of the Claude Agent SDK, a dataclass, in the form of the Messages API."""
    kind = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(block).__name__.removesuffix("Block")).lower()
    return {"type": kind, **vars(block)}
