"""Targets with agent SDKs: ``claude-agent-sdk`` and ``openai-agents`` run an agent, ``mcp`` and ``mcp-http`` call a tool.

Their packages are optional dependencies.
"""

import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field

from persona_pipeline.suites.answering.base import Request, TargetError, chat_messages
from persona_pipeline.suites.format.models import Text, over_texts
from persona_pipeline.suites.format.text import parse_object
from persona_pipeline.suites.sandbox.processes import little_environment
from persona_pipeline.suites.targets.cli import Argv
from persona_pipeline.suites.targets.http import filled, is_url
from persona_pipeline.suites.targets.python import PLACE, AwaitedTarget, PythonTarget, said_by

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
    package: ClassVar[str] = "claude_agent_sdk"
    extra: ClassVar[str] = "claude-agent-sdk"

    options: dict[str, Any] = Field(
        default_factory=dict,
        description="Fields of ClaudeAgentOptions: model, system_prompt, allowed_tools, max_turns, ...",
    )
    environment: dict[str, str] = Field(
        default_factory=dict, description="Added to the little environment it gets, such as ANTHROPIC_API_KEY."
    )

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


class OpenAIAgentTarget(PythonTarget):
    """Runs an agent of the OpenAI Agents SDK from a module. It sends no traces.

    Needs permission to run code and the extra ``openai-agents``.
    """

    package: ClassVar[str] = "agents"
    extra: ClassVar[str] = "openai-agents"

    function: str = Field(
        alias="agent", pattern=PLACE, description="package.module:name of an Agent, or of a function that makes one."
    )
    max_turns: int = Field(10, ge=1, description="How often the model may be asked for one answer.")

    def callable_of(self, found: Any) -> Callable[..., Any]:
        sdk = self.sdk()
        agent = found() if callable(found) else found
        if not isinstance(agent, sdk.Agent):
            raise self.failure("no_function", f"{self.function} is not an Agent")

        async def run(messages: list[Mapping[str, Any]]) -> dict[str, Any]:
            config = sdk.RunConfig(tracing_disabled=True)
            try:
                result = await sdk.Runner.run(
                    agent, chat_messages(messages), max_turns=self.max_turns, run_config=config
                )
            except (sdk.ModelRefusalError, sdk.OutputGuardrailTripwireTriggered) as error:
                raise self.failure("refusal", f"it refused to answer: {error}") from error
            if result.interruptions:
                raise self.failure("interrupted", "it waits for leave to call a tool")
            used = result.context_wrapper.usage
            cached = used.input_tokens_details.cached_tokens
            tokens = {"input": used.input_tokens - cached, "output": used.output_tokens, "cached": cached or None}
            items = [item.to_input_item() for item in result.new_items]
            # Thinking is in the summary of a reasoning item.
            parts = [item["summary"] if item.get("type") == "reasoning" else [item] for item in items]
            return {"messages": [part for several in parts for part in several], "token_usage": tokens}

        return run

    def source(self) -> Any:
        super().source()
        return sys.modules[self.function.partition(":")[0]]


class McpTarget(AwaitedTarget):
    """Calls a tool of an MCP server; its result is the answer. Needs the extra ``mcp``.

    Without ``tool`` the test's last message names it: ``{tool: name, arguments: {...}}``. ``arguments`` may have the
    variables of ``http``. Each call has its own session.
    """

    package: ClassVar[str] = "mcp"
    extra: ClassVar[str] = "mcp"

    tool: Text | None = Field(None, description="Its name; by default the test's last message says it.")
    arguments: dict[str, Any] = Field(default_factory=dict, description="What the tool gets.")
    errors_are_answers: bool = Field(False, description="Grade an error that the tool reports, as text.")

    def prepare(self) -> None:
        super().prepare()
        # The package would import it during the first call, which takes seconds.
        import jsonschema as jsonschema

    async def call(self, request: Request, transport: Any) -> dict[str, Any]:
        """Return the tool's answer. ``transport``: of the package, for the session."""
        tool, arguments = self._asked(request)
        async with self.sdk().Client(transport) as client:
            began = time.monotonic()
            result = await client.call_tool(tool, arguments)
            seconds = time.monotonic() - began
        blocks = [getattr(block, "resource", block) for block in result.content]
        text = "\n".join(block.text for block in blocks if isinstance(getattr(block, "text", None), str))
        if result.is_error and not self.errors_are_answers:
            raise self.failure("tool_error", f"{tool} reports an error: {text[:_SHOWN]}")
        structured = result.structured_content
        call = {"tool": tool, "input": arguments, "output": text if structured is None else structured}
        message = {"role": "assistant", "content": text or structured, "tool_calls": [call]}
        return {"messages": [message], "duration_ms": round(seconds * 1000, 3)}

    def _asked(self, request: Request) -> tuple[str, dict[str, Any]]:
        """Return the tool's name and its arguments."""
        if self.tool is not None:
            return self.tool, over_texts(self.arguments, lambda text: filled(text, request))
        asked = parse_object(request.last_message) or {}
        tool, arguments = asked.get("tool"), asked.get("arguments", {})
        if not isinstance(tool, str) or not isinstance(arguments, dict):
            said = "it calls no tool; name its tool, or write the message {tool: name, arguments: {...}}"
            raise self.failure("invalid_request", said)
        return tool, arguments


class McpCommandTarget(McpTarget):
    """Starts an MCP server on standard input and output. Needs permission to run code."""

    runs_code: ClassVar[bool] = True

    command: Argv = Field(description="The server's program and its arguments.")
    cwd: Text | None = Field(None, description="Where it runs; the workspace or the targets file's folder by default.")
    environment: dict[str, str] = Field(default_factory=dict, description="Added to the little environment it gets.")

    async def ask(self, request: Request) -> dict[str, Any]:
        sdk, folder = self.sdk(), request.workspace or self.folder
        server = sdk.StdioServerParameters(
            command=self.command[0],
            args=self.command[1:],
            env={**little_environment(), **self.environment},
            cwd=folder if self.cwd is None else self.folder / self.cwd,
        )
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
            try:
                return await self.call(request, sdk.stdio_client(server, errlog=log))
            except TargetError:
                raise
            except Exception as error:
                log.seek(0)
                end = log.read()[-_SHOWN:].strip() or "nothing"
                raise self.failure("crashed", f"{said_by(error)}; its log ends: {end}") from error


class McpServerTarget(McpTarget):
    """Asks an MCP server over streamable HTTP. Needs permission to ask a server."""

    asks_network: ClassVar[bool] = True

    url: Annotated[Text, AfterValidator(is_url)] = Field(
        description="Where the server listens, such as http://localhost:8000/mcp."
    )
    headers: dict[str, str] = Field(default_factory=dict, description="Sent with each request, such as Authorization.")

    async def ask(self, request: Request) -> dict[str, Any]:
        import httpx2

        streamable = self.sdk("mcp.client.streamable_http").streamable_http_client
        async with httpx2.AsyncClient(headers=self.headers, timeout=None) as client:
            return await self.call(request, streamable(self.url, http_client=client))
