"""Reading messages from JSONL and CSV: good lines are kept, bad ones are named with their place and reason."""

import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from persona_pipeline.errors import Problem, did_you_mean
from persona_pipeline.options import parse_time as parse_time
from persona_pipeline.world.canonical import storable
from persona_pipeline.world.files import is_name
from persona_pipeline.world.models import Message
from persona_pipeline.world.reading import FIELDS, REQUIRED, MessageFile

# Characters of JSON that a message keeps, and how deeply it nests.
MOST_EXTRAS, DEEPEST = 16_000, 20
# Under this key stand the names of the keys that were cut, the first so many of them and of each so many characters.
CUT = "_cut"
_MOST_NAMED, _LONGEST_NAME = 20, 64


def bounded_extras(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return JSON values by key as a message keeps them: in their order, as many keys whole as fit in 16,000 characters.

    A key that does not fit, or nests deeper than 20, is named in the list under ``_cut``. NUL and lone surrogates become U+FFFD.
    """
    kept: dict[str, Any] = {}
    cut: list[str] = []
    room = MOST_EXTRAS
    for key, value in found.items():
        one = _cleaned(key, value, room)
        if one is None:
            cut.append(storable(key[:_LONGEST_NAME]))
            continue
        kept |= one
        room -= len(json.dumps(one, ensure_ascii=False))
    return {**kept, CUT: cut[:_MOST_NAMED]} if cut else kept


def cut_keys(extras: Mapping[str, Any]) -> Iterable[str]:
    """Return the names of the keys that a message did not keep."""
    cut = extras.get(CUT)
    return [str(name) for name in cut] if isinstance(cut, list) else []


def _cleaned(key: str, value: Any, room: int) -> dict[str, Any] | None:
    """Return a key and its value as they are stored, None where they are too much."""
    try:
        # Cheap, and so comes first: what is cleaned is no longer than it was.
        if len(json.dumps({key: value}, ensure_ascii=False, allow_nan=False)) > room:
            return None
        return {storable(key): _clean(value, DEEPEST)}
    except (ValueError, TypeError, RecursionError):
        return None


def _clean(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return storable(value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if not depth:
        raise ValueError("nested too deeply")
    if isinstance(value, Mapping):
        return {storable(str(key)): _clean(item, depth - 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean(item, depth - 1) for item in value]
    raise ValueError(f"{type(value).__name__} is not JSON")


MAX_TEXT = 1_000_000
_NAMES = ("id", "agent_id", "channel", "recipient")


@dataclass
class ParsedMessages:
    """The good lines of a file in order, and what was wrong with the others. ``lines``: where a message stands, by id."""

    messages: list[Message] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    lines: dict[str, int] = field(default_factory=dict)


def parse_messages(path: Path) -> ParsedMessages:
    """Read a message file.

    Returns:
        Its messages; a line that is not a valid message, or repeats an id with other content, is a problem instead.

    Raises:
        ConfigError: the file cannot be read at all, or its ending is neither .jsonl nor .csv.
    """
    parsed = ParsedMessages()
    seen: dict[str, tuple[int, Message]] = {}
    with MessageFile(path) as file:
        file.require_text()
        for row in file.rows(parse_message):
            if isinstance(row.found, ValueError):
                parsed.problems.append(Problem(str(row.found), str(path), row.line))
                continue
            first = seen.setdefault(row.found.id, (row.line, row.found))
            if first[0] == row.line:
                parsed.messages.append(row.found)
                parsed.lines[row.found.id] = row.line
            elif first[1] != row.found:
                parsed.problems.append(Problem(taken(row.found.id, first[0]), str(path), row.line))
    return parsed


def taken(message_id: str, line: int | None) -> str:
    """Return what is wrong with a message whose id stands in its file before, in a line (None: it is not known in which)."""
    return f"id {message_id!r} is taken by {f'line {line}' if line else 'a line before'}; give this message its own"


def parse_message(row: Any) -> Message:
    """Return the message of one decoded line; keys that are not known are kept among its extras.

    Raises:
        ValueError: what is wrong and how to mend it; a ``ValueError`` passed in as the row is raised again.
    """
    if isinstance(row, ValueError):
        raise row
    if not isinstance(row, dict):
        raise ValueError('is not an object; write {"id": ..., "agent_id": ..., ...}')
    values = {key: value for key, value in row.items() if key in FIELDS and value is not None}
    extras = {str(key): value for key, value in row.items() if key not in FIELDS}
    for name in REQUIRED:
        if name not in values:
            raise ValueError(f"{name} is missing{did_you_mean(name, extras)}")
    for name, value in values.items():
        if not isinstance(value, str):
            raise ValueError(f"{name} must be a string, not {json.dumps(value)[:40]}")
    for name in _NAMES:
        if name in values and not is_name(values[name]):
            raise ValueError(f"{name} {values[name][:40]!r} must be 1 to 256 printable characters")
    if ("channel" in values) == ("recipient" in values):
        near = "" if "channel" in values else did_you_mean("channel", extras) or did_you_mean("recipient", extras)
        raise ValueError(f"must have either a channel or a recipient (a direct message){near}")
    if len(values["text"]) > MAX_TEXT:
        raise ValueError(f"text is longer than {MAX_TEXT:,} characters; split the message")
    return Message(
        id=values["id"],
        agent_id=values["agent_id"],
        text=storable(values["text"]),
        created_at=parse_time(values["created_at"], name="created_at"),
        channel=values.get("channel"),
        recipient=values.get("recipient"),
        run_id=_run_id(values.get("run_id")),
        extras=bounded_extras(extras) if extras else extras,
    )


def _run_id(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        return str(uuid.UUID(text))
    except ValueError:
        raise ValueError(f"run_id {text[:40]!r} is not a UUID; correct or remove it") from None
