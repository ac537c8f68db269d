"""The target over the Claude Agent SDK. The module that stands in has the classes and fields of its version 0.2.189."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

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


def test_a_missing_package_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "claude_agent_sdk", None)
    found = target(tmp_path, provider="claude-agent-sdk")
    error = failure(found, request(tmp_path))
    assert error.reason == "not_installed" and "pip install 'persona-pipeline[claude-agent-sdk]'" in error.message
