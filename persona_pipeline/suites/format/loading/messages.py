"""Messages and their shorthands, and the texts derived from them."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from persona_pipeline.base.documents.yaml import braces_hint
from persona_pipeline.suites.format.files import Files
from persona_pipeline.suites.format.problems import ConfigEntry, Reader
from persona_pipeline.suites.format.text import stringify

ROLES = ("system", "user", "assistant", "tool")
_ROLES_TEXT = ", ".join(ROLES)


def input_messages(reader: Reader, entry: ConfigEntry, key: str, label: str) -> tuple[dict[str, Any], ...]:
    """Read ``input``, a turn's ``user`` or ``input_messages``: text stands for one user message, else a list of messages.

    The files that they name must be there.
    """
    value = entry.data[key]
    if isinstance(value, str) and key != "input_messages":
        return ({"role": "user", "content": value},)
    if not isinstance(value, list):
        wanted = "a list of messages" if key == "input_messages" else "a string or a list of messages"
        reader.fail(entry, f"{label}: {key} must be {wanted}{braces_hint(value)}", key)
        return ()
    if not value:
        reader.fail(entry, f"{label}: {key} must hold at least one message", key)
    before = len(reader.problems)
    messages = _messages(reader, entry, key, label)
    if len(reader.problems) == before:
        _check_file_parts(reader, entry, key, messages, label)
    return messages


def expected_messages(reader: Reader, entry: ConfigEntry, key: str | None, label: str) -> tuple[dict[str, Any], ...]:
    """Read ``expected_output`` or ``expected_messages`` (None: neither is there); the format says what its shorthands stand for."""
    if key is None:
        return ()
    value = entry.data[key]
    if key == "expected_messages":
        if isinstance(value, list):
            return _messages(reader, entry, key, label)
        reader.fail(entry, f"{label}: {key} must be a list of messages", key)
        return ()
    if isinstance(value, str):
        return ({"role": "assistant", "content": value},)
    if isinstance(value, dict):
        if "role" not in value:
            return ({"role": "assistant", "content": value},)
        message = _message(reader, entry.child(key), f"{label}: {key}")
        return () if message is None else (message,)
    if isinstance(value, list):
        if value and isinstance(value[0], dict) and "role" in value[0]:
            return _messages(reader, entry, key, label)
        return ({"role": "assistant", "content": value},) if value else ()
    reader.fail(entry, f"{label}: {key} must be a string, a mapping or a list; quote it to compare it as text", key)
    return ()


def _messages(reader: Reader, entry: ConfigEntry, key: str, label: str) -> tuple[dict[str, Any], ...]:
    found = []
    for index in range(len(entry.data[key])):
        message = _message(reader, entry.child(key, index), f"{label}: {key}[{index}]")
        if message is not None:
            found.append(message)
    return tuple(found)


def _message(reader: Reader, entry: ConfigEntry, label: str) -> dict[str, Any] | None:
    message = entry.data
    if not isinstance(message, dict):
        reader.fail(entry, f"{label} must be a message (a mapping with role and content)")
        return None
    role = message.get("role")
    before = len(reader.problems)
    if role not in ROLES:
        if role is None:
            reader.fail(entry, f"{label}: role is required, one of {_ROLES_TEXT}")
        else:
            hint = "" if "content" in message else "; to compare with data that has a role, put it under content"
            reader.fail(entry, f"{label}: role must be one of {_ROLES_TEXT}, not {role!r}{hint}", "role")
    calls = message.get("tool_calls")
    if calls is not None:
        _tool_calls(reader, entry, label)
    content = message.get("content")
    if content is None:
        if not (role == "assistant" and calls):
            needed = "content or tool_calls" if role == "assistant" else "content"
            reader.fail(entry, f"{label}: {needed} is required")
    elif not isinstance(content, str | dict) and not (
        isinstance(content, list) and all(isinstance(part, dict) for part in content)
    ):
        reader.fail(entry, f"{label}: content must be a string, a mapping or a list of parts (mappings)", "content")
    if not isinstance(message.get("name", ""), str):
        reader.fail(entry, f"{label}: name must be a string", "name")
    return message if len(reader.problems) == before else None


def _tool_calls(reader: Reader, entry: ConfigEntry, label: str) -> None:
    calls = entry.data["tool_calls"]
    if not isinstance(calls, list):
        reader.fail(entry, f"{label}: tool_calls must be a list", "tool_calls")
        return
    for index, call in enumerate(calls):
        if not isinstance(call, dict):
            reader.fail(entry, f"{label}: tool_calls[{index}] must be a mapping with tool", "tool_calls", index)
        elif not isinstance(call.get("tool"), str) or not call["tool"]:
            reader.fail(entry, f"{label}: tool_calls[{index}]: tool is required, a string", "tool_calls", index)


def _check_file_parts(
    reader: Reader, entry: ConfigEntry, key: str, messages: Sequence[dict[str, Any]], label: str
) -> None:
    """Check that every ``{type: file, value: path}`` part names a file that is there."""
    for index, message in enumerate(messages):
        parts = message.get("content")
        for number, part in enumerate(parts if isinstance(parts, list) else ()):
            if part.get("type") != "file":
                continue
            place = (key, index, "content", number)
            if not isinstance(part.get("value"), str):
                reader.fail(entry, f"{label}: a file part needs value, a path", *place)
                continue
            with reader.placing(entry, f"{label}: {key}", *place):
                find_file_part(reader.files, part["value"], reader.folders(entry), reader.top)


def find_file_part(files: Files, reference: str, folders: Sequence[Path], top: Path) -> Path:
    """Return the file of a file part: beside the file that names it, else in a folder above, up to the repository's top."""
    return files.find(reference, [*folders, *(above for above in folders[-1].parents if above.is_relative_to(top))])


def question_text(messages: Sequence[dict[str, Any]]) -> str:
    """Return the text of all messages, each trimmed, blank ones dropped, joined by one space."""
    texts = (text.strip() for message in messages for text in content_texts(message.get("content")))
    return " ".join(text for text in texts if text)


def content_texts(content: Any) -> list[str]:
    """Return the texts of a message's content: a string, a mapping as JSON, or the text parts of a list."""
    if isinstance(content, str):
        return [content]
    if isinstance(content, dict):
        return [stringify(content, indent=2)]
    if not isinstance(content, list):
        return []
    texts = [
        part.get("value", part.get("text")) for part in content if isinstance(part, dict) and part.get("type") == "text"
    ]
    return [text for text in texts if isinstance(text, str)]


def under_roles(said: Iterable[tuple[str, str]]) -> str:
    """Return texts under the roles of who said them, blank ones left out; one alone is as it is."""
    texts = [(role, text) for role, text in said if text.strip()]
    if len(texts) == 1:
        return texts[0][1]
    return "\n\n".join(f"@[{role.capitalize()}]:\n{text}" for role, text in texts)


def reference_answer(messages: Sequence[dict[str, Any]]) -> str:
    """Return the last message as text: its content, else its tool calls, as indented JSON where they are no text."""
    if not messages:
        return ""
    content = messages[-1].get("content")
    if isinstance(content, str):
        return content
    value = content if content is not None else messages[-1].get("tool_calls")
    return "" if value is None else stringify(value, indent=2)
