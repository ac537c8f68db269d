"""Targets over agent SDKs.

The modules that stand in have the classes and fields of claude-agent-sdk 0.2.189, openai-agents 0.24.0 and mcp 2.3.0.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from persona_pipeline.suites.answering.base import Grants
from tests.suites.support import write
from tests.suites.targets.test_providers import failure, request, target


def named(kind: str, **fields: Any) -> Any:
    return type(kind, (SimpleNamespace,), {})(**fields)


AssistantMessage, UserMessage, ResultMessage = (
    type(name, (SimpleNamespace,), {}) for name in ("AssistantMessage", "UserMessage", "ResultMessage")
)


def said(*content: Any, **fields: Any) -> Any:
    """A message of the assistant."""
    usual = {"model": "m", "parent_tool_use_id": None, "error": None, "message_id": None, "stop_reason": None}
    return AssistantMessage(content=list(content), **{**usual, **fields})


def ended(**fields: Any) -> Any:
    """The result of a session."""
    usual = {"subtype": "success", "is_error": False, "duration_ms": 130, "stop_reason": "end_turn", "usage": None}
    return ResultMessage(**{**usual, "total_cost_usd": 0.25, "result": None, "errors": None, **fields})


@dataclass
class ClaudeAgentOptions:
    model: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    cwd: Any = None
    setting_sources: list[str] | None = None
    verbatim_prompts: bool = False
    extra_args: dict[str, Any] = field(default_factory=dict)
    stderr: Any = None


THOUGHT = named("ThinkingBlock", thinking="I must look.", signature="s")
CALL = named("ToolUseBlock", id="t1", name="Read", input={"file_path": "a.txt"})
RESULT = named("ToolResultBlock", tool_use_id="t1", content="9 lines", is_error=None)
SESSION = [
    SimpleNamespace(subtype="init", data={}),
    said(THOUGHT, message_id="m1"),
    said(named("TextBlock", text="Let me look."), CALL, message_id="m1"),
    UserMessage(content=[RESULT], parent_tool_use_id=None),
    said(named("TextBlock", text="A sub-agent's words."), parent_tool_use_id="t1"),
    said(named("TextBlock", text="It has 9 lines."), message_id="m2"),
    ended(usage={"input_tokens": 40, "output_tokens": 10, "cache_read_input_tokens": 6}),
]


def claude(monkeypatch: pytest.MonkeyPatch, *events: Any) -> list[ClaudeAgentOptions]:
    """Put a session where the SDK would be, and return what it is asked with."""
    asked: list[ClaudeAgentOptions] = []

    async def query(*, prompt: str, options: ClaudeAgentOptions) -> AsyncIterator[Any]:
        asked.append(options)
        for event in events:
            await asyncio.sleep(3600 if event == "hangs" else 0)
            yield event

    shown = (AssistantMessage, UserMessage, ResultMessage, ClaudeAgentOptions, query)
    fake = SimpleNamespace(**{item.__name__: item for item in shown})
    monkeypatch.setitem(sys.modules, "claude_agent_sdk", fake)  # type: ignore[arg-type]
    return asked


def test_a_session_of_claude_is_read_as_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "the judge's")
    monkeypatch.setenv("GITHUB_TOKEN", "secret")
    asked = claude(monkeypatch, *SESSION)
    own = {"ANTHROPIC_API_KEY": "${{ AGENT_KEY }}"}
    monkeypatch.setenv("AGENT_KEY", "the agent's")
    found = target(tmp_path, provider="claude-agent-sdk", options={"model": "m"}, environment=own)
    output = found.respond(request(tmp_path))
    assert (output.text, output.llm_call_count, output.messages[0]["thinking"]) == (
        "It has 9 lines.",
        2,
        "I must look.",
    )
    assert [(call["tool"], call["output"]) for call in output.tool_calls] == [("Read", "9 lines")]
    assert output.token_usage is not None and output.token_usage.to_dict() == {"input": 40, "output": 10, "cached": 6}
    assert (output.cost_usd, output.duration_ms) == (0.25, 130)
    (options,) = asked
    assert (options.cwd, options.setting_sources, options.verbatim_prompts) == (tmp_path, [], True)
    # What stays is what programs need; the SDK adds all of this process's environment to what it is given.
    reached = {name: text for name, text in {**os.environ, **options.env}.items() if text}
    assert reached["ANTHROPIC_API_KEY"] == "the agent's" and reached["PATH"]
    assert not {"GITHUB_TOKEN", "AGENT_KEY"} & reached.keys()


@pytest.mark.parametrize(
    ("events", "reason", "why"),
    [
        ([said(named("TextBlock", text="Invalid API key"), error="authentication_failed")],
         "api_error", "authentication_failed: Invalid API key"),
        ([said(error="invalid_request", stop_reason="refusal")], "refusal", "invalid_request"),
        ([ended(subtype="error_max_turns", is_error=True, errors=["too many"])], "error_max_turns", "too many"),
        ([], "crashed", "ended without a result"),
        (["hangs"], "timeout", "longer than 0.1 s"),
    ],
)  # fmt: skip
def test_what_is_no_answer_of_claude(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, events: list[Any], reason: str, why: str
) -> None:
    claude(monkeypatch, *events)
    found = target(tmp_path, provider="claude-agent-sdk")
    error = failure(found, request(tmp_path, timeout=0.1 if reason == "timeout" else 60))
    assert (error.reason, why in error.message) == (reason, True)
    error = failure(target(tmp_path, provider="claude-agent-sdk", options={"modell": "m"}), request(tmp_path))
    assert (error.reason, "'modell'" in error.message) == ("invalid_options", True)


ITEMS = [
    {"type": "reasoning", "id": "r1", "summary": [{"type": "summary_text", "text": "hm"}]},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me look."}]},
    {"type": "function_call", "call_id": "c1", "name": "stock", "arguments": '{"sku": "A4"}', "status": "completed"},
    {"type": "function_call_output", "call_id": "c1", "output": "12 of A4"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "There are 12."}]},
]
AGENTS = """
class Agent:
    pass
class ModelRefusalError(Exception):
    pass
class OutputGuardrailTripwireTriggered(Exception):
    pass
class RunConfig:
    def __init__(self, *, tracing_disabled):
        assert tracing_disabled
class Runner:
    pass
"""


def openai(monkeypatch: pytest.MonkeyPatch, folder: Path, result: Any, **fields: Any) -> Any:
    """Return a target over an agent whose run gives a result, or raises it by its name."""
    write(folder, {"agents_like_openai.py": AGENTS, "agents_of_mine.py": "from agents import Agent\nagent = Agent()\n"})
    monkeypatch.syspath_prepend(str(folder))
    for name in ("agents_like_openai", "agents_of_mine"):
        sys.modules.pop(name, None)
    sdk = __import__("agents_like_openai")
    monkeypatch.setitem(sys.modules, "agents", sdk)

    async def run(agent: Any, messages: Any, *, max_turns: int, run_config: Any) -> Any:
        assert messages == [{"role": "user", "content": "hi"}] and max_turns == 10
        if isinstance(result, str):
            raise getattr(sdk, result, RuntimeError)("boom")
        return result

    sdk.Runner.run = staticmethod(run)
    return target(folder, **{"provider": "openai-agents", "agent": "agents_of_mine:agent", **fields})


def run_result(**fields: Any) -> Any:
    usage = SimpleNamespace(input_tokens=50, output_tokens=12, input_tokens_details=SimpleNamespace(cached_tokens=20))
    items = [SimpleNamespace(to_input_item=lambda item=item: item) for item in ITEMS]
    known = {"new_items": items, "interruptions": [], "context_wrapper": SimpleNamespace(usage=usage)}
    return SimpleNamespace(**{**known, **fields})


def test_a_run_of_openai_agents_is_read_as_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = openai(monkeypatch, tmp_path, run_result())
    output = found.respond(request(tmp_path))
    assert (output.text, output.calls_reported, output.messages[0]["thinking"]) == ("There are 12.", True, "hm")
    assert output.tool_calls == [{"tool": "stock", "input": {"sku": "A4"}, "id": "c1", "output": "12 of A4"}]
    assert output.token_usage is not None and output.token_usage.to_dict() == {"input": 30, "output": 12, "cached": 20}
    before = found.fingerprint()["source"]
    write(tmp_path, {"agents_of_mine.py": "from agents import Agent\nagent = Agent()  # another\n"})
    assert found.fingerprint()["source"] != before


@pytest.mark.parametrize(
    ("result", "fields", "reason"),
    [
        ("ModelRefusalError", {}, "refusal"),
        ("OutputGuardrailTripwireTriggered", {}, "refusal"),
        ("AuthenticationError", {}, "crashed"),
        (run_result(interruptions=["approve"]), {}, "interrupted"),
        (run_result(), {"agent": "agents_of_mine:__name__"}, "no_function"),
    ],
)
def test_what_is_no_answer_of_openai_agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, result: Any, fields: dict[str, Any], reason: str
) -> None:
    assert failure(openai(monkeypatch, tmp_path, result, **fields), request(tmp_path)).reason == reason


def mcp(monkeypatch: pytest.MonkeyPatch, result: Any) -> list[Any]:
    """Put a server that gives a result where the package would be, and return what it gets."""
    got: list[Any] = []

    class Client:
        def __init__(self, transport: Any) -> None:
            got.append(transport)

        async def __aenter__(self) -> "Client":
            return self

        async def __aexit__(self, *_: object) -> None: ...

        async def call_tool(self, name: str, arguments: dict[str, Any]) -> Any:
            got.append((name, arguments))
            if isinstance(result, Exception):
                raise ExceptionGroup("unhandled errors in a TaskGroup", [result])
            return result

    fake = SimpleNamespace(
        Client=Client, StdioServerParameters=lambda **fields: fields, stdio_client=lambda server, errlog: server
    )
    streamable = SimpleNamespace(streamable_http_client=lambda url, http_client: (url, http_client.headers["x-key"]))
    monkeypatch.setitem(sys.modules, "mcp", fake)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "mcp.client.streamable_http", streamable)  # type: ignore[arg-type]
    return got


def tool_result(*texts: str, is_error: bool = False, structured: Any = None) -> Any:
    content = [SimpleNamespace(type="text", text=text) for text in texts]
    return SimpleNamespace(content=content, is_error=is_error, structured_content=structured)


COMMAND = {"provider": "mcp", "command": ["server", "--stdio"], "environment": {"SHOP": "1"}}
SERVER = {"provider": "mcp-http", "url": "http://127.0.0.1:1/mcp", "headers": {"x-key": "k"}}
ASKED = '{"tool": "add", "arguments": {"a": 1}}'
NAMED = {"tool": "add", "arguments": {"a": "{{ prompt }}"}}


@pytest.mark.parametrize("fields", [COMMAND, SERVER])
@pytest.mark.parametrize(
    ("text", "fixed", "result", "answer"),
    [
        (ASKED, {}, tool_result("one", "two"), "one\ntwo"),
        ("1", NAMED, tool_result("3", structured={"sum": 3}), "3"),
        (ASKED, {"errors_are_answers": True}, tool_result("no such order", is_error=True), "no such order"),
    ],
)
def test_a_tools_result_is_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fields: Any, text: str, fixed: Any, result: Any, answer: str
) -> None:
    got = mcp(monkeypatch, result)
    output = target(tmp_path, **fields, **fixed).respond(request(tmp_path, text))
    assert (output.text, output.duration_ms is not None) == (answer, True)
    ((tool, arguments),) = [(call["tool"], call["input"]) for call in output.tool_calls]
    assert got[1] == (tool, arguments) and (tool, arguments["a"]) == ("add", "1" if fixed is NAMED else 1)
    if fields is COMMAND:
        assert (got[0]["command"], got[0]["args"], got[0]["cwd"]) == ("server", ["--stdio"], tmp_path)
        assert got[0]["env"].items() >= {"SHOP": "1", "PATH": os.environ["PATH"]}.items()
        assert len(got[0]["env"]) < 15
    else:
        assert got[0] == ("http://127.0.0.1:1/mcp", "k")


@pytest.mark.parametrize(
    ("text", "result", "reason", "why"),
    [
        ("hello", tool_result(), "invalid_request", "calls no tool"),
        (ASKED, tool_result("no such order", is_error=True), "tool_error", "add reports an error: no such order"),
        (ASKED, ConnectionError("closed"), "crashed", "ConnectionError: closed"),
    ],
)
def test_what_is_no_answer_of_a_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, result: Any, reason: str, why: str
) -> None:
    mcp(monkeypatch, result)
    for fields in (COMMAND, SERVER):
        error = failure(target(tmp_path, **fields), request(tmp_path, text))
        assert (error.reason, why in error.message) == (reason, True)


@pytest.mark.parametrize(
    ("fields", "package"),
    [
        ({"provider": "claude-agent-sdk"}, "claude_agent_sdk"),
        ({"provider": "openai-agents", "agent": "a:b"}, "agents"),
        (COMMAND, "mcp"),
        (SERVER, "mcp"),
    ],
)
def test_a_missing_package_and_a_missing_leave_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    found = target(tmp_path, **fields)
    error = failure(found, request(tmp_path))
    assert error.reason == "not_installed" and f"pip install 'persona-pipeline[{found.extra}]'" in error.message
    found._grants = Grants()
    assert found.runs_code is not (fields is SERVER)
    if found.asks_network:
        assert failure(found, request(tmp_path)).reason == "target_not_allowed"
