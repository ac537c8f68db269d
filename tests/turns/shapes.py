"""One answer as each SDK writes it: a refund of order 7 was called, and the words are "Done."."""

import json
from typing import Any

GIVEN = {"order": 7}
TEXT = json.dumps(GIVEN)
_FUNCTION = {"id": "c", "type": "function", "function": {"name": "refund", "arguments": TEXT}}
_TOOL_USE = {"type": "tool_use", "id": "c", "name": "refund", "input": GIVEN}
_SAID = {"type": "text", "text": "Done."}
_INVOCATION = {"state": "result", "toolCallId": "c", "toolName": "refund", "args": GIVEN, "result": "ok"}
_LANGCHAIN = {"content": "Done.", "tool_calls": [{"name": "refund", "args": GIVEN, "id": "c", "type": "tool_call"}]}
_REFUND = {"name": "refund", "args": GIVEN}


def said(content: Any = "Done.", **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


def parts(*parts: Any, role: str = "assistant") -> dict[str, Any]:
    return {"role": role, "parts": [*parts]}


# By name: the answer, and whether it says what the tool gave back.
SHAPES: dict[str, tuple[Any, bool]] = {
    "Anthropic messages": (
        [said([_SAID, _TOOL_USE]), {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "ok"}]}],
        True,
    ),
    "Anthropic response": (
        said(
            [{"type": "thinking", "thinking": "No refund!"}, _SAID, _TOOL_USE], type="message", stop_reason="tool_use",
            usage={"input_tokens": 1, "server_tool_use": {"web_search_requests": 1}},
        ),
        False,
    ),
    "Anthropic blocks alone": ([_SAID, _TOOL_USE], False),
    "OpenAI chat completion": (
        {"choices": [{"message": said(tool_calls=[_FUNCTION])}], "usage": {"prompt_tokens": 1}}, False,
    ),
    "OpenAI chat messages": (
        [said(None, tool_calls=[_FUNCTION]), {"role": "tool", "tool_call_id": "c", "content": "ok"}, said()], True,
    ),
    "OpenAI function_call": ([said(function_call={"name": "refund", "arguments": TEXT})], False),
    "OpenAI Responses": (
        {
            "status": "completed",
            "output": [
                {"type": "reasoning", "summary": []},
                {"type": "function_call", "id": "fc", "call_id": "c", "name": "refund", "arguments": TEXT},
                {"type": "function_call_output", "call_id": "c", "output": "ok"},
                said([{"type": "output_text", "text": "Done."}], type="message"),
            ],
            "tools": [{"type": "function", "name": "refund", "parameters": {}}],
            "parallel_tool_calls": True,
        },
        True,
    ),
    "Vercel parts": ([said(parts=[_SAID, {"type": "tool-invocation", "toolInvocation": _INVOCATION}])], True),
    "Vercel parts named by the tool": (
        [parts(
            {"type": "step-start"},
            {"type": "tool-refund", "toolCallId": "c", "state": "output-available", "input": GIVEN, "output": "ok"},
            _SAID,
        )],
        True,
    ),
    "Vercel content": (
        [
            said([_SAID, {"type": "tool-call", "toolCallId": "c", "toolName": "refund", "args": GIVEN}]),
            {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "c", "toolName": "refund", "result": "ok"}]},
        ],
        True,
    ),
    "Vercel toolInvocations": ([said(toolInvocations=[_INVOCATION])], True),
    "Vercel generateText": (
        {
            "text": "Done.", "toolCalls": [],
            "steps": [
                {"text": "", "toolCalls": [{"toolCallId": "c", "toolName": "refund", "args": GIVEN}],
                 "toolResults": [{"toolCallId": "c", "result": "ok"}], "finishReason": "tool-calls"},
                {"text": "Done.", "toolCalls": [], "finishReason": "stop"},
            ],
        },
        True,
    ),
    "Gemini response": (
        {"candidates": [{"content": parts({"text": "Done."}, {"functionCall": _REFUND}, role="model")}],
         "usageMetadata": {"toolUsePromptTokenCount": 5}},
        False,
    ),
    "Gemini of Python": ([parts({"text": "Done."}, {"text": None, "function_call": _REFUND}, role="model")], False),
    "Bedrock": (
        {"output": {"message": said([{"text": "Done."}, {"toolUse": {"toolUseId": "c", "name": "refund", "input": GIVEN}}])},
         "stopReason": "tool_use"},
        False,
    ),
    "LangChain": (
        {"messages": [
            {"type": "human", "content": "hi"},
            {"type": "ai", **_LANGCHAIN, "additional_kwargs": {"tool_calls": [_FUNCTION]}, "invalid_tool_calls": []},
            {"type": "tool", "content": "ok", "tool_call_id": "c"},
        ]},
        True,
    ),
    "LangChain additional_kwargs": (
        {"type": "ai", "content": "Done.", "additional_kwargs": {"tool_calls": [_FUNCTION]}}, False,
    ),
    "LangChain constructor": (
        {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "AIMessage"], "kwargs": _LANGCHAIN}, False,
    ),
    "pydantic-ai": (
        [
            {"kind": "request", "parts": [
                {"part_kind": "system-prompt", "content": "s"}, {"part_kind": "user-prompt", "content": "hi"},
            ]},
            {"kind": "response", "parts": [
                {"part_kind": "text", "content": "Done."},
                {"part_kind": "tool-call", "tool_name": "refund", "args": TEXT, "tool_call_id": "c"},
            ]},
            {"kind": "request", "parts": [
                {"part_kind": "tool-return", "tool_name": "refund", "content": "ok", "tool_call_id": "c"},
            ]},
        ],
        True,
    ),
    "OpenTelemetry": (
        [parts({"type": "text", "content": "Done."}, {"type": "tool_call", "id": "c", "name": "refund", "arguments": GIVEN})],
        False,
    ),
    "Ollama": (
        {"message": said(tool_calls=[{"function": {"name": "refund", "arguments": GIVEN}}]), "done_reason": "stop"}, False,
    ),
    "text and tool_calls": ({"text": "Done.", "tool_calls": [{"tool": "refund", "input": GIVEN, "output": "ok"}]}, True),
    "text and named calls": ({"text": "Done.", "tool_calls": [{"name": "refund", "arguments": TEXT}]}, False),
}  # fmt: skip
# By name: an answer that hides the call in a form of its own, and the place that the refusal names.
UNKNOWN: dict[str, tuple[Any, str]] = {
    "actions": ({"text": "Done.", "actions": [{"tool": "refund", "args": GIVEN}]}, "actions[0]"),
    "a step of ReAct": ({"text": "Done.", "step": {"action": "refund", "action_input": "7"}}, "step"),
    "intermediate steps": ({"output": "Done.", "intermediate_steps": [[{"tool": "refund"}, "ok"]]}, "intermediate_steps"),
    "a part of another kind": (
        [said([_SAID, {"type": "ToolCallRequest", "tool": "refund", "arguments": GIVEN}])], "messages[0].content[1]",
    ),
    "tool uses": ({"text": "Done.", "tool_uses": [{"recipient": "refund"}]}, "tool_uses"),
    "used tools": ({"text": "Done.", "tools_used": ["refund"]}, "tools_used"),
    "calls below": ({"answer": "Done.", "meta": {"calls": [{"name": "refund", "arguments": TEXT}]}}, "meta.calls[0]"),
    "beside a message": ([said(acts=[_REFUND])], "[0].acts[0]"),
    "data instead of words": ([said({"tool": "refund", "args": GIVEN})], "[0].content"),
    "a call without a name": ({"text": "Done.", "tool_calls": [{"id": "c"}]}, "tool_calls[0]"),
    "calls that are no list": ({"text": "Done.", "tool_calls": "refund"}, "tool_calls"),
    "items of Semantic Kernel": ([said(items=[{"FunctionName": "refund", "Arguments": GIVEN}])], "[0].items[0]"),
    "only the reason of the stop": (
        {"choices": [{"message": said(), "finish_reason": "tool_calls"}]}, "stopped with 'tool_calls'",
    ),
}  # fmt: skip
# Calls as models write them into their text, where no server took them out.
IN_TEXT = {
    "tags": f'<tool_call>{{"name": "refund", "arguments": {TEXT}}}</tool_call> Done.',
    "invocations": '<function_calls><invoke name="refund"></invoke></function_calls> Done.',
    "a sign": f'[TOOL_CALLS][{{"name": "refund", "arguments": {TEXT}}}]',
    "ReAct": f"Thought: I must.\nAction: refund\nAction Input: {TEXT}",
    "an object": f'{{"name": "refund", "parameters": {TEXT}}}',
}
