"""What a JSON value of a chat or an SDK is, by its shape: a message, a part, a wrapper, or a call of a tool in a known form."""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from persona_pipeline.base.documents.json import storable_json

USER, ASSISTANT, SYSTEM, TOOL = "user", "assistant", "system", "tool"
_TABLE = tomllib.loads((Path(__file__).parent / "data" / "turns.toml").read_text(encoding="utf-8"))
ROLES: dict[str, str] = _TABLE["roles"]
KEYS: dict[str, list[str]] = _TABLE["keys"]
_FORMS = {name: re.compile(pattern) for name, pattern in _TABLE["forms"].items()}
_WORD_ENDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[-\s]")

# Keys under which programs list calls or their results.
_LIKE_CALLS = re.compile(
    r"(?:\w+_)?(?:tool|function)s?_(?:call|use|invocation|request|execution|result|return|response|output)s?(?:_list|_chunks)?"
    r"|(?:called|used|invoked)_(?:tool|function)s?|(?:tool|function)s?_(?:called|used|invoked)|intermediate_steps"
)
# How models write calls into their text, for a server to take them out.
_CALL_IN_TEXT = re.compile(
    r"<\|?(?:tool_calls?|function_calls?|python_tag|function=|invoke name=)|<｜tool|\[TOOL_CALLS\]|^Action Input:",
    re.MULTILINE | re.IGNORECASE,
)


class TurnError(ValueError):
    """A value is not a turn in a known form."""


def unpacked(value: Any, times: int = 2) -> Any:
    """Return what a text says that is JSON, also where it was encoded twice; else the value itself."""
    if times and isinstance(value, str) and value.lstrip()[:1] in ("{", "[", '"'):
        with suppress(ValueError, RecursionError):
            return unpacked(json.loads(storable_json(value)), times - 1)
    return value


def object_in(text: Any) -> dict[str, Any] | None:
    """Return the JSON object that a text is, None where it is none."""
    value = unpacked(text) if isinstance(text, str) and text.lstrip()[:1] == "{" else None
    return value if isinstance(value, dict) else None


def form_of(part: Any) -> tuple[str, Mapping[str, Any], str]:
    """Return the form of a part, the mapping that holds it, and the tool that its kind names.

    The form is ``text``, ``thinking``, ``refusal``, ``call`` or ``result``, ``other`` for an unknown kind, and ``""`` for a value
    without a kind.
    """
    if not isinstance(part, Mapping):
        return "", {}, ""
    wrapper = next((key for key in KEYS["wrappers"] if isinstance(part.get(key), Mapping)), None)
    body = part[wrapper] if wrapper else part
    worded = any(isinstance(part.get(key), str) for key in ("text", "content"))
    kind = wrapper or word(part, "kinds") or ("text" if worded else "")
    form = form_of_kind(kind)
    if form == "other" and kind.startswith("tool-") and "toolCallId" in body and body.keys() & {"input", "state"}:
        # The Vercel SDK names the tool in the type of its part.
        return "call", body, kind.removeprefix("tool-")
    if form == "text" and body.get("thought") is True:
        form = "thinking"
    return form, body, snake(kind).removesuffix("_call")


def form_of_kind(kind: str) -> str:
    """Return the form of parts of a kind such as ``tool_use``."""
    name = snake(kind)
    return next((form for form, pattern in _FORMS.items() if pattern.fullmatch(name)), "other" if name else "")


def is_part(value: Any) -> bool:
    """Whether a value is a part of an answer in a known form, on its own."""
    form = form_of(value)[0]
    return form in _FORMS and (form != "text" or bool(value.keys() & {"type", "part_kind"}))


def holds_words(item: Any) -> bool:
    """Whether a value in a list is a part of an answer, on its own."""
    return form_of(item)[0] in _FORMS and not is_message(item) and "message" not in item


def is_block(item: Any) -> bool:
    """Whether a value is surely a part, not data that only looks like one."""
    if not isinstance(item, Mapping):
        return False
    return is_part(item) or word(item, "kinds") in KEYS["files"] or (len(item) == 1 and holds_words(item))


def is_message(value: Any) -> bool:
    """Whether a value has the form of a message."""
    if not isinstance(value, Mapping):
        return False
    if any(key in value for key in ("role", "_role", "parts", "lc")):
        return True
    if "type" not in value:
        return isinstance(value.get("content"), list)
    return named_role(value["type"]) is not None and any(key in value for key in ("content", "data"))


def is_one_answer(listed: Sequence[Any]) -> bool:
    """Return whether a list holds the messages or parts of a single answer, not several answers."""
    return bool(listed) and all(is_message(item) or is_part(item) for item in listed)


def holds_messages(value: Any, depth: int) -> bool:
    """Whether a value is a list of messages that say their roles, or an object around one."""
    value = unpacked(value)
    if isinstance(value, list):
        return bool(value) and all(
            is_message(item) and ("role" in item or named_role(plain(item).get("type"))) for item in value
        )
    return isinstance(value, Mapping) and depth > 0 and any(holds_messages(item, depth - 1) for item in value.values())


def named_role(kind: Any) -> str | None:
    """Return the role of a message that LangChain writes by its class (AIMessageChunk) or a word (ai); None: it is none."""
    return ROLES.get(kind.removesuffix("Chunk").removesuffix("Message").lower()) if isinstance(kind, str) else None


def plain(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a message that LangChain wraps into its class, or keeps next to its type, as one with content."""
    if "_role" in value:
        return {key.removeprefix("_"): item for key, item in value.items()}
    inner = value.get("kwargs") if "lc" in value else value.get("data") if "role" not in value else None
    if not isinstance(inner, Mapping):
        return value
    path = value.get("id")
    return {**inner, "type": path[-1] if "lc" in value and isinstance(path, list) and path else value.get("type")}


def word(value: Mapping[str, Any], row: str, *, empty: bool = False) -> str | None:
    """Return the first text under one of a row's keys; ``empty``: an empty one counts."""
    found = (value.get(key) for key in KEYS[row])
    return next((item for item in found if isinstance(item, str) and (item or empty)), None)


def first(value: Mapping[str, Any], keys: Sequence[str]) -> Any:
    """Return the first value that is there under one of some keys, None where there is none."""
    return next((value[key] for key in keys if value.get(key) is not None), None)


def place(around: str, key: str) -> str:
    """Return the place of a value by its key and the place of the object around it."""
    return f"{around}.{key}" if around else key


def snake(key: str) -> str:
    """Return a key in snake case."""
    return _WORD_ENDS.sub("_", key).lower()


class UnknownCallError(TurnError):
    """Something looks like a tool call and has no known form; the message names its place."""

    def __init__(self, place: str, said: str = "looks like a tool call and has no known form") -> None:
        super().__init__(f"{place or 'the answer'} {said}; write it as tool_calls: [{{tool, input}}]")


@dataclass
class ToolCall:
    """A call of a tool. ``given``: ``input`` (an object where a text is one), ``output`` and ``id``, as far as they were written,
    and what else was written of it, such as ``duration_ms``.
    """

    name: str
    given: dict[str, Any] = field(default_factory=dict)


def call_in(value: Any, at: str, fallback: str = "") -> ToolCall:
    """Return a call; ``fallback``: its tool, where only the kind of the part says it.

    Raises:
        UnknownCallError: it is in no known form, or names no tool.
    """
    value = form_of(value)[1] if isinstance(value, Mapping) and "function" not in value else value
    if not isinstance(value, Mapping):
        raise UnknownCallError(at, "is not a mapping with tool")
    inner = value.get("function")
    body = {**value, **inner} if isinstance(inner, Mapping) else value
    name = word(body, "tools") or (body["name"] if isinstance(body.get("name"), str) else "") or fallback
    if not name or name in KEYS["no_tools"]:
        raise UnknownCallError(at, "names no tool")
    arguments: Any = next((body[key] for key in KEYS["arguments"] if key in body), None)
    read = {"name", "type", *(key for row in ("tools", "arguments", "ids", "results") for key in KEYS[row])}
    given = {
        "input": arguments if (parsed := object_in(arguments)) is None else parsed,
        "output": first(body, KEYS["results"]),
        "id": first(body, KEYS["ids"]),
    }
    kept = [key for key in value if (key not in read if "tool" in value else key in KEYS["of_a_call"])]
    given |= {key: value[key] for key in kept}
    return ToolCall(name, {key: item for key, item in given.items() if item is not None})


def is_written_call(text: str) -> bool:
    """Whether a text holds a call as models write it, or is one: a name and its arguments, and nothing else."""
    found = object_in(text) or {}
    named = "name" in found and bool(found.keys() & {"arguments", "parameters"})
    return bool(_CALL_IN_TEXT.search(text)) or (
        named and found.keys() <= {"name", "arguments", "parameters", "type", "id"}
    )


def refuse_calls(value: Any, at: str = "") -> None:
    """Raise ``UnknownCallError`` where a JSON value holds what looks like a tool call; ``at`` names the value's place."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            refuse_calls(item, f"{at}[{index}]")
    elif isinstance(value, Mapping):
        if _is_like_a_call(value):
            raise UnknownCallError(at)
        refuse_keys(value, at)


def refuse_keys(value: Mapping[str, Any], at: str, *read: str) -> None:
    """Raise ``UnknownCallError`` for a value that looks like a tool call under a key that no rule read."""
    for key, item in value.items():
        if key in read or key in KEYS["quiet"]:
            continue
        listed = isinstance(item, list | Mapping) or (isinstance(item, str) and item.lstrip()[:1] in ("{", "["))
        if item and listed and _LIKE_CALLS.fullmatch(snake(str(key))):
            raise UnknownCallError(place(at, str(key)))
        refuse_calls(item, place(at, str(key)))


def _is_like_a_call(value: Mapping[str, Any]) -> bool:
    """Whether a mapping is a call by its kind, or names something and gives it arguments.

    The description of a tool that could be called is not a call.
    """
    if form_of_kind(word(value, "kinds") or "") in ("call", "result"):
        return True
    value = {snake(str(key)): item for key, item in value.items()}
    given = [value[key] for key in KEYS["arguments"] if key in value]
    if not given or "description" in value:
        return False
    named = isinstance(value.get("name"), str) or isinstance(value.get("action"), str)
    has_data = any(isinstance(item, Mapping) or object_in(item) is not None for item in given)
    return bool(word(value, "tools")) or "action_input" in value or (named and has_data)
