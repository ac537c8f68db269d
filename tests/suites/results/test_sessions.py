"""Sessions of agents as recorded answers: what Claude Code, Codex and SDKs of agents write, with their tool calls."""

import json
from pathlib import Path
from typing import Any

import pytest

from persona_pipeline.suites import load_suite, run_suite
from persona_pipeline.suites.answering.base import load_responses
from persona_pipeline.suites.answering.output import is_session, messages_of
from tests.suites.support import write

CALL = {"type": "function_call", "name": "get_weather", "arguments": '{"city": "Rome"}', "call_id": "c1"}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "sunny"}
SAID = {"type": "message", "id": "m1", "role": "assistant", "status": "completed"} | {
    "content": [{"type": "output_text", "text": "Sunny.", "annotations": []}]
}
ASKED = {"role": "user", "content": "How is Rome?"}
TOOL_USE = {"type": "tool_use", "id": "c1", "name": "get_weather", "input": {"city": "Rome"}}
TOOL_RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": "sunny"}
CLAUDE = [
    {"role": "assistant", "content": [{"type": "thinking", "thinking": "Rome?", "signature": "x"}]},
    {"role": "assistant", "content": [TOOL_USE], "stop_reason": "tool_use"},
    {"role": "user", "content": [TOOL_RESULT]},
    {"role": "assistant", "content": [{"type": "text", "text": "Sunny."}], "stop_reason": "end_turn"},
]
LANGCHAIN = [
    {"type": "human", "content": "How is Rome?", "id": "1", "additional_kwargs": {}},
    {
        "type": "ai",
        "content": "",
        "id": "2",
        "tool_calls": [{"name": "get_weather", "args": {"city": "Rome"}, "id": "c1", "type": "tool_call"}],
        "additional_kwargs": {
            "tool_calls": [
                {"id": "c1", "type": "function"}
                | {"function": {"name": "get_weather", "arguments": '{"city": "Rome"}'}}
            ]
        },
    },
    {"type": "tool", "content": "sunny", "name": "get_weather", "tool_call_id": "c1", "id": "3", "status": "success"},
    {"type": "ai", "content": "Sunny.", "id": "4", "tool_calls": [], "invalid_tool_calls": []},
]
VERCEL_CALL = {"type": "tool-call", "toolCallId": "c1", "toolName": "get_weather", "input": {"city": "Rome"}}
VERCEL_RESULT = VERCEL_CALL | {"type": "tool-result", "output": "sunny"}


def event(message: dict[str, Any], **more: Any) -> dict[str, Any]:
    """An event of Claude Code and of the Claude Agent SDK."""
    return {"type": message["role"], "sessionId": "s", "uuid": "u", "message": message, **more}


def item(payload: dict[str, Any], kind: str = "response_item") -> dict[str, Any]:
    """A line of a rollout of Codex."""
    return {"timestamp": "2026-01-02T10:00:00Z", "type": kind, "payload": payload}


SESSIONS: dict[str, Any] = {
    "claude code": [
        {"type": "summary", "summary": "Weather", "leafUuid": "u"},
        event(ASKED, isSidechain=False, toolUseResult=None),
        event({"role": "assistant", "content": "A sub-agent speaks."}, isSidechain=True),
        event({"role": "user", "content": "<command-name>/clear</command-name>"}, isMeta=True),
        *map(event, CLAUDE),
    ],
    "claude agent sdk": [
        {"type": "system", "subtype": "init", "tools": ["Bash"], "session_id": "s"},
        *map(event, CLAUDE),
        {"type": "result", "subtype": "success", "result": "Sunny.", "total_cost_usd": 0.01, "num_turns": 2},
    ],
    "codex": [
        item({"id": "1", "cwd": "/w", "instructions": None}, "session_meta"),
        item({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "How is Rome?"}]}),
        item({"type": "user_message", "message": "How is Rome?"}, "event_msg"),
        item({"cwd": "/w", "model": "m"}, "turn_context"),
        item({"type": "reasoning", "summary": [{"type": "summary_text", "text": "Rome?"}], "encrypted_content": "x"}),
        item(CALL),
        item(RESULT),
        item({"type": "agent_message", "message": "Sunny."}, "event_msg"),
        item(SAID),
    ],
    "items of the openai agents sdk": [ASKED, {"type": "reasoning", "id": "r", "summary": []}, CALL, RESULT, SAID],
    "result of the openai agents sdk": {
        "input": "How is Rome?",
        "new_items": [
            {"type": "tool_call_item", "raw_item": CALL},
            {"type": "tool_call_output_item", "raw_item": RESULT, "output": "sunny"},
            {"type": "message_output_item", "raw_item": SAID},
        ],
        "final_output": "Sunny.",
    },
    "state of langgraph": {"messages": LANGCHAIN},
    "snapshot of langgraph": {"values": {"messages": LANGCHAIN}, "next": [], "metadata": {"step": 3}, "tasks": []},
    "checkpoint of langgraph": {"v": 4, "id": "1f0", "channel_values": {"messages": LANGCHAIN}, "versions_seen": {}},
    "updates of langgraph": [
        {"agent": {"messages": LANGCHAIN[1:2]}},
        {"tools": {"messages": LANGCHAIN[2:3]}},
        {"agent": {"messages": LANGCHAIN[3:]}},
    ],
    "messages of the vercel sdk": [
        {"id": "1", "role": "user", "parts": [{"type": "text", "text": "How is Rome?"}]},
        {
            "id": "2",
            "role": "assistant",
            "parts": [
                {"type": "step-start"},
                {"type": "reasoning", "text": "Rome?", "state": "done"},
                {"type": "tool-get_weather", "toolCallId": "c1", "state": "output-available"}
                | {"input": {"city": "Rome"}, "output": "sunny"},
                {"type": "text", "text": "Sunny.", "state": "done"},
            ],
        },
    ],
    "steps of the vercel sdk": {
        "text": "Sunny.",
        "finishReason": "stop",
        "toolCalls": [],
        "steps": [
            {
                "content": [VERCEL_CALL, VERCEL_RESULT],
                "text": "",
                "toolCalls": [VERCEL_CALL],
                "toolResults": [VERCEL_RESULT],
            },
            {"content": [{"type": "text", "text": "Sunny."}], "text": "Sunny.", "toolCalls": [], "toolResults": []},
        ],
    },
}
SUITE = """
tests:
  - id: a
    input: How is Rome?
    assert:
      - {type: equals, value: Sunny.}
      - {type: tool_trajectory, mode: exact, expected: [{tool: get_weather, args: {city: Rome}}]}
"""


@pytest.mark.parametrize("by_test", [False, True], ids=["alone", "by test"])
@pytest.mark.parametrize("name", SESSIONS)
def test_a_session_is_graded_with_its_tool_calls(tmp_path: Path, name: str, by_test: bool) -> None:
    session = SESSIONS[name]
    lines = isinstance(session, list) and not by_test
    path = tmp_path / ("session.jsonl" if lines else "session.json")
    rows = (
        "".join(json.dumps(row) + "\n" for row in session)
        if lines
        else json.dumps({"a": session} if by_test else session)
    )
    write(tmp_path, {"s.eval.yaml": SUITE, path.name: rows})
    result = run_suite(load_suite(tmp_path / "s.eval.yaml"), responses=load_responses(path))
    assert [test.verdict.value for test in result.tests] == ["pass"], result.tests[0].error
    output = result.tests[0].best.output
    assert output is not None and [call["output"] for call in output.tool_calls] == ["sunny"]


@pytest.mark.parametrize(
    "value",
    [
        {"a": "x"},
        {"a": [ASKED]},
        [{"id": "a", "text": "x"}],
        [{"id": "a", "role": "assistant", "content": "x"}],
        [{"model": "m", "message": {"role": "assistant", "content": "x"}}] * 2,
        {"text": "x", "values": [1, 2]},
    ],
)
def test_answers_by_test_are_no_session(value: Any) -> None:
    assert not is_session(value) and messages_of(value) == value
