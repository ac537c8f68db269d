"""Turns of a conversation as chat programs write them: a role, and content as a text, as parts, or as a message of LangChain's."""

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_TEXTS = ("text", "input_text", "output_text")
_ROLES = {"human": "user", "ai": "assistant", "bot": "assistant", "model": "assistant", "chat": "assistant"}
# LangChain writes a message by its class: HumanMessage, AIMessageChunk.
_CLASS_ENDINGS = ("Message", "MessageChunk")
_SILENT = {
    "system": "system prompt",
    "developer": "system prompt",
    "tool": "tool result",
    "function": "tool result",
}
_DIGITS = 24


@dataclass(frozen=True)
class Turn:
    """What somebody said in a conversation.

    Attributes:
        role: ``user``, ``assistant`` or another; ``name``: who it was, where that is said.
        skipped: why it is no message; empty: it is one.
        extras: what else is said of it.
    """

    role: str
    text: str
    name: str | None = None
    skipped: str = ""
    extras: Mapping[str, Any] = field(default_factory=dict)


def turn_of(value: Any) -> Turn:
    """Return the turn of a message with a role and content.

    Raises:
        ValueError: it is none, and what is wrong with it.
    """
    if not isinstance(value, Mapping):
        raise ValueError('is not a message; write {"role": ..., "content": ...}')
    value = _plain(value)
    role, content = value.get("role"), value.get("content")
    if not isinstance(role, str):
        raise ValueError("a message has no role")
    role = _ROLES.get(role.lower(), role.lower())
    if not (content is None or isinstance(content, (str, list))):
        raise ValueError("a message's content must be a text or a list of parts")
    name = value.get("name")
    if name is not None and not isinstance(name, str):
        raise ValueError("a message's name must be a string")
    known = {"role", "content", "name"}
    extras = {key: item for key, item in value.items() if key not in known and item not in (None, [], {})}
    if isinstance(content, list) and any(not _is_text(part) for part in content):
        extras["content"] = content
    text = text_of(content)
    skipped = _SILENT.get(role, "") or ("" if text.strip() else _without_text(value, content))
    return Turn(role, text, name or None, skipped, extras)


def text_of(content: Any) -> str:
    """Return the text of content: the texts of its parts, a line each; parts that are no text are left out."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(text for part in parts if (text := _part_text(part)))


def _part_text(part: Any) -> str:
    if isinstance(part, str):
        return part
    if not _is_text(part):
        return ""
    text = part.get("text", part.get("content"))
    return text if isinstance(text, str) else ""


def _is_text(part: Any) -> bool:
    return isinstance(part, str) or (isinstance(part, Mapping) and part.get("type", "text") in _TEXTS)


def _without_text(value: Mapping[str, Any], content: Any) -> str:
    return "tool call without words" if value.get("tool_calls") or value.get("function_call") else "turn without text"


def _plain(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a message of LangChain's as one with a role and content."""
    inner = value.get("kwargs") if "lc" in value else value.get("data")
    if isinstance(inner, Mapping) and "content" in inner:
        path = value.get("id")
        value = {
            "type": value.get("type") if "lc" not in value else path[-1] if isinstance(path, list) and path else "",
            **inner,
        }
    if "role" in value or not isinstance(value.get("type"), str):
        return value
    role = value["type"]
    for ending in _CLASS_ENDINGS:
        role = role.removesuffix(ending)
    return {"role": role, **{key: item for key, item in value.items() if key not in ("type", "id", "example")}}


@dataclass
class TurnIds:
    """Ids of turns that have none: made of what was said in which conversation, so that they are the same in every export.

    Whoever says the same twice in a conversation says it the first and the second time.
    """

    _said: Counter[str] = field(default_factory=Counter)

    def next(self, conversation: str, speaker: str, text: str) -> str:
        """Return the id of the next turn."""
        said = "\x1f".join((conversation, speaker, text))
        self._said[said] += 1
        return digest(said, str(self._said[said]))


def digest(*parts: str) -> str:
    """Return a short digest of texts, the same on every machine."""
    return hashlib.sha256("\x1e".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
