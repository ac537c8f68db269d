"""What was said to a model and what it answered, as each convention writes it on spans and in events."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from persona_pipeline.world.ingest import storable

ASSISTANT, USER = "assistant", "user"
_TEXTS = ("text", "input_text", "output_text")
_BLOCKS = frozenset(
    {
        *_TEXTS,
        "tool_use",
        "tool_result",
        "tool_call",
        "tool_call_response",
        "image",
        "image_url",
        "input_image",
        "document",
    }
    | {"thinking", "redacted_thinking", "reasoning", "server_tool_use", "web_search_tool_result", "file", "input_audio"}
)
_ROLES = {"human": USER, "ai": ASSISTANT, "model": ASSISTANT, "chatbot": ASSISTANT}
_INDEXED = re.compile(
    r"(gen_ai\.prompt|gen_ai\.completion|llm\.prompts|llm\.completions)\.(\d{1,6})\.(role|content|user|name)"
)
_OPENINFERENCE = re.compile(
    r"llm\.(input|output)_messages\.(\d{1,6})\.message\.(role|name|content|contents\.(\d{1,6})\.message_content\.(type|text))"
)

Event = tuple[str, Mapping[str, Any]]
Heard = tuple[Sequence["Said"], Sequence["Said"]]


class Said(NamedTuple):
    """One message to or from a model: its role, its words and, where it has one, the name of who speaks."""

    role: str
    text: str
    name: str | None = None


def contents(found: Mapping[str, Any], events: Iterable[Event]) -> Heard:
    """Return inputs and outputs of a span.

    The first convention that wrote any is believed: GenAI's attributes, OpenInference, events on the span, then the numbered
    attributes of OpenLLMetry. System instructions, tools' results and thinking are nobody's messages.

    Args:
        found: the span's attributes; ``events``: the names and attributes of its events.
    """
    listed = list(events)
    for read in (_current, _openinference, lambda given: _from_events(given, listed), _numbered):
        inputs, outputs = read(found)
        if inputs or outputs:
            return inputs, outputs
    return (), ()


def is_said(name: str) -> bool:
    """Whether an event of this name holds one message."""
    return name == "gen_ai.choice" or bool(re.fullmatch(r"gen_ai\.\w+\.message", name))


def said_by_event(name: str, body: Any, found: Mapping[str, Any]) -> Heard:
    """Return what an event of the older convention says, as an input or an output."""
    given = (
        {**found, **body} if isinstance(body, dict) else {**found, "content": body} if body is not None else dict(found)
    )
    if name == "gen_ai.choice":
        message = decoded(given.get("message", given))
        if not isinstance(message, dict):
            message = {"content": message}
        # Choices after the first are alternatives that nobody is known to have read.
        return ((), (_said(message, ASSISTANT),)) if str(given.get("index", 0)) == "0" else ((), ())
    return (_said(given, name.split(".")[1]),), ()


def decoded(value: Any) -> Any:
    """Return the JSON value of a text that is one, else the value itself."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def text_of(content: Any) -> str:
    """Return the words of a message's content: a text, or blocks and parts of which those that are text are joined."""
    if isinstance(content, str):
        blocks = decoded(content) if content.startswith("[{") else None
        # What only looks like blocks is what was said.
        if not isinstance(blocks, list) or not all(isinstance(it, dict) and it.get("type") in _BLOCKS for it in blocks):
            return storable(content)
        content = blocks
    if isinstance(content, dict):
        content = [content]
    if not isinstance(content, list):
        return ""
    return storable("\n".join(filter(None, map(_part, content))))


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict) or part.get("type", "text") not in _TEXTS:
        return ""
    words = part.get("content", part.get("text"))
    return words if isinstance(words, str) else ""


def _said(message: Mapping[str, Any], role: str) -> Said:
    given = message.get("role")
    role = given.lower() if isinstance(given, str) and given else role
    name = message.get("name")
    known = isinstance(name, str) and name.isprintable() and 0 < len(name) <= 256
    text = text_of(message.get("parts") if "parts" in message else message.get("content"))
    return Said(_ROLES.get(role, role), text, name if known else None)


def _current(found: Mapping[str, Any]) -> Heard:
    inputs = decoded(found.get("gen_ai.input.messages"))
    outputs = decoded(found.get("gen_ai.output.messages"))
    return _messages(inputs, USER), _messages(outputs, ASSISTANT)


def _messages(listed: Any, role: str) -> list[Said]:
    if isinstance(listed, dict):
        listed = [listed]
    return [_said(item, role) for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []


def _openinference(found: Mapping[str, Any]) -> Heard:
    if found.get("openinference.span.kind") != "LLM":
        return (), ()
    sides: dict[str, dict[int, dict[str, Any]]] = {"input": {}, "output": {}}
    for key, value in found.items():
        match = _OPENINFERENCE.fullmatch(key)
        if match is None:
            continue
        message = sides[match[1]].setdefault(int(match[2]), {})
        if match[4] is None:
            message[match[3]] = value
        else:
            message.setdefault("blocks", {}).setdefault(int(match[4]), {})[match[5]] = value
    return _ordered(sides["input"], USER), _ordered(sides["output"], ASSISTANT)


def _numbered(found: Mapping[str, Any]) -> Heard:
    sides: dict[str, dict[int, dict[str, Any]]] = {"prompt": {}, "completion": {}}
    for key, value in found.items():
        match = _INDEXED.fullmatch(key)
        if match is not None:
            side = "prompt" if "prompt" in match[1] else "completion"
            sides[side].setdefault(int(match[2]), {})[match[3]] = value
    return _ordered(sides["prompt"], USER), _ordered(sides["completion"], ASSISTANT)


def _ordered(messages: Mapping[int, dict[str, Any]], role: str) -> list[Said]:
    found = []
    for _, message in sorted(messages.items()):
        blocks = message.pop("blocks", {})
        if blocks and not message.get("content"):
            message["content"] = [block for _, block in sorted(blocks.items())]
        found.append(_said(message, role))
    return found


def _from_events(found: Mapping[str, Any], events: Sequence[Event]) -> Heard:
    inputs: list[Said] = []
    outputs: list[Said] = []
    for name, given in events:
        if name == "gen_ai.client.inference.operation.details":
            heard = _current(given)
        elif name == "gen_ai.content.prompt":
            heard = _messages(decoded(given.get("gen_ai.prompt")), USER), ()
        elif name == "gen_ai.content.completion":
            heard = (), _messages(decoded(given.get("gen_ai.completion")), ASSISTANT)
        elif is_said(name):
            heard = said_by_event(name, None, given)
        else:
            continue
        inputs += heard[0]
        outputs += heard[1]
    return inputs, outputs
