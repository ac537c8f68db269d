"""Reading messages from JSONL and CSV: good lines are kept, bad ones are named with their place and reason."""

import csv
import io
import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from persona_pipeline.documents import JsonError, strict_json
from persona_pipeline.errors import ConfigError, Problem, did_you_mean
from persona_pipeline.world.files import is_name
from persona_pipeline.world.models import Message

FIELDS = ("id", "agent_id", "channel", "recipient", "text", "created_at", "run_id")
ENDINGS = (".jsonl", ".csv")
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
    if path.suffix.lower() not in ENDINGS:
        raise ConfigError(Problem("is neither .jsonl nor .csv; rename or convert it", str(path)))
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(Problem(f"cannot be read ({error.strerror}); check the path", str(path))) from error
    except UnicodeDecodeError as error:
        raise ConfigError(Problem(f"is not UTF-8 (byte {error.start}); save it as UTF-8", str(path))) from error
    rows = _jsonl_rows(text) if path.suffix.lower() == ".jsonl" else _csv_rows(text, path)
    parsed = ParsedMessages()
    seen: dict[str, tuple[int, Message]] = {}
    for line, row in rows:
        try:
            message = parse_message(row)
        except ValueError as error:
            parsed.problems.append(Problem(str(error), str(path), line))
            continue
        first = seen.setdefault(message.id, (line, message))
        if first[0] == line:
            parsed.messages.append(message)
            parsed.lines[message.id] = line
        elif first[1] != message:
            parsed.problems.append(
                Problem(
                    f"id {message.id!r} is taken by line {first[0]}; give this message its own",
                    str(path),
                    line,
                )
            )
    return parsed


def parse_message(row: Any) -> Message:
    """Return the message of one decoded line.

    Raises:
        ValueError: what is wrong and how to mend it; a ``ValueError`` passed in as the row is raised again.
    """
    if isinstance(row, ValueError):
        raise row
    if not isinstance(row, dict):
        raise ValueError('is not an object; write {"id": ..., "agent_id": ..., ...}')
    unknown = next((key for key in row if key not in FIELDS), None)
    if unknown is not None:
        raise ValueError(f"unknown key {unknown!r}{did_you_mean(str(unknown), FIELDS)}")
    values = {key: value for key, value in row.items() if value is not None}
    for name in ("id", "agent_id", "text", "created_at"):
        if name not in values:
            raise ValueError(f"{name} is missing")
    for name, value in values.items():
        if not isinstance(value, str):
            raise ValueError(f"{name} must be a string, not {json.dumps(value)[:40]}")
    for name in _NAMES:
        if name in values and not is_name(values[name]):
            raise ValueError(f"{name} {values[name][:40]!r} must be 1 to 256 printable characters")
    if ("channel" in values) == ("recipient" in values):
        raise ValueError("must have either a channel or a recipient (a direct message)")
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
    )


def storable(text: str) -> str:
    """Return the text with NUL and lone surrogates, which no database takes, as U+FFFD."""
    return text.replace("\x00", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def parse_time(text: str, *, name: str = "time") -> datetime:
    """Return an RFC 3339 time in UTC.

    Raises:
        ValueError: it is not one, or has no offset.
    """
    try:
        moment = datetime.fromisoformat(text.upper())
        if len(text) < 19 or text[10:11] not in "Tt ":
            raise ValueError(text)
    except ValueError:
        raise ValueError(f"{name} {text[:40]!r} is not an RFC 3339 time such as 2026-06-01T09:30:00Z") from None
    if moment.tzinfo is None:
        raise ValueError(f"{name} {text!r} has no offset; add Z or +02:00")
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"{name} {text!r} is out of range") from None


def _run_id(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        return str(uuid.UUID(text))
    except ValueError:
        raise ValueError(f"run_id {text[:40]!r} is not a UUID; correct or remove it") from None


def _jsonl_rows(text: str) -> Iterator[tuple[int, Any]]:
    # Only "\n" ends a line: str.splitlines would cut at U+2028 and others, which JSON strings may hold.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            yield number, strict_json(line)
        except JsonError as error:
            yield number, ValueError(f"is not JSON ({error.msg}); write one object a line")


def _csv_rows(text: str, path: Path) -> Iterator[tuple[int, Any]]:
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    unknown = [name for name in reader.fieldnames or [] if name not in FIELDS]
    if not reader.fieldnames or unknown:
        found = f"unknown column {unknown[0]!r}{did_you_mean(str(unknown[0]), FIELDS)}" if unknown else "has no header"
        raise ConfigError(Problem(f"{found}; the columns are {', '.join(FIELDS)}", str(path), 1))
    line = 2
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield line, ValueError(f"is not CSV ({error}); check the quotes")
            line = reader.line_num + 1
            continue
        if None in row:
            yield line, ValueError("has more cells than the header; quote cells that hold commas")
        else:
            # An empty cell means absent, except for a text, which may be empty.
            yield line, {k: v for k, v in row.items() if v or (k == "text" and v is not None)}
        line = reader.line_num + 1
