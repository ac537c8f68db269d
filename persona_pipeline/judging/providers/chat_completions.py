"""Requests and answers of the Messages API, said in the words of the chat completions API."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

# Some servers take nothing but nine letters and digits.
_CALL_ID = "read00001"
_STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "content_filter": "refusal",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
}


def as_chat(body: Mapping[str, Any], *, limit: str) -> dict[str, Any]:
    """Return the body of ``POST /chat/completions``.

    With a schema the transcript is a tool's result, as in the Messages API. Without, for servers that took no schema, nothing is
    sent that a plain server may not know: no tool either, and the transcript is a turn of the user.

    Args:
        limit: the field for the most tokens of the answer.
    """
    output = body.get("output_config")
    chat: dict[str, Any] = {
        "model": body["model"],
        limit: body["max_tokens"],
        "messages": [
            {"role": "system", "content": _joined(body["system"])},
            *(_turns(body["messages"]) if output else _plain_turns(body["messages"])),
        ],
    }
    if output:
        schema = {"name": "answer", "strict": True, "schema": output["format"]["schema"]}
        chat["response_format"] = {"type": "json_schema", "json_schema": schema}
        chat["tools"] = [_tool(tool) for tool in body["tools"]]
        chat["tool_choice"] = "none"
        if "effort" in output:
            chat["reasoning_effort"] = output["effort"]
    return chat


def as_message(response: Any) -> Any:
    """Return a chat completion as a message; anything else as it is."""
    try:
        choice = response["choices"][0]
        said = choice["message"]
        refusal, text = said.get("refusal"), _text(said.get("content"))
    except (TypeError, KeyError, IndexError, AttributeError):
        return response
    reason = choice.get("finish_reason")
    return {
        "model": response.get("model"),
        "content": [{"type": "text", "text": text}] if text else [],
        "stop_reason": "refusal" if refusal else _STOP_REASONS.get(reason, reason) if isinstance(reason, str) else None,
        "stop_details": {"category": "content_filter"} if reason == "content_filter" else None,
        "usage": read_chat_usage(response.get("usage")),
    }


def _turns(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    turns: list[dict[str, Any]] = []
    for message in messages:
        first = message["content"][0]
        if first["type"] == "tool_use":
            function = {"name": first["name"], "arguments": json.dumps(first["input"])}
            call = {"id": _CALL_ID, "type": "function", "function": function}
            turns.append({"role": "assistant", "content": None, "tool_calls": [call]})
        elif first["type"] == "tool_result":
            turns.append({"role": "tool", "tool_call_id": _CALL_ID, "content": first["content"]})
        else:
            turns.append({"role": message["role"], "content": _joined(message["content"])})
    return turns


def _plain_turns(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    context, _, result, ready, ask = messages
    evidence = result["content"][0]["content"]
    shown = [block["text"] for block in context["content"][:-1]]
    return [
        {"role": "user", "content": "\n\n".join([*shown, f"The transcript to be judged, as JSON:\n{evidence}"])},
        {"role": "assistant", "content": _joined(ready["content"])},
        {"role": "user", "content": _joined(ask["content"])},
    ]


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": tool["name"], "description": tool["description"], "parameters": tool["input_schema"]}
    return {"type": "function", "function": function}


def _joined(blocks: Sequence[Mapping[str, Any]]) -> str:
    return "\n\n".join(block["text"] for block in blocks)


def _text(content: Any) -> str:
    """Return the text of an answer; some servers send it in parts."""
    if isinstance(content, list):
        return "".join(part["text"] for part in content if part.get("type") == "text")
    return content if isinstance(content, str) else ""


def read_chat_usage(usage: Any) -> Any:
    """Return usage in which cached tokens are no part of the input; None where it does not say."""
    if not isinstance(usage, Mapping) or not isinstance(usage.get("prompt_tokens"), int):
        return None
    details = usage.get("prompt_tokens_details")
    cached = (details.get("cached_tokens") if isinstance(details, Mapping) else None) or 0
    if not isinstance(cached, int):
        return None
    return {
        "input_tokens": usage["prompt_tokens"] - cached,
        "output_tokens": usage.get("completion_tokens"),
        "cache_read_input_tokens": cached,
    }
