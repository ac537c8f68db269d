"""Messages of files (JSON lines, CSV; line by line from anywhere in them) and of frames: good ones are kept, bad ones named."""

import codecs
import csv
import hashlib
import io
import json
import math
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal, get_args

from persona_pipeline.base.documents.json import JsonError, content_hash, is_shallow, rfc3339, strict_json, visible
from persona_pipeline.base.errors import ConfigError, Problem, did_you_mean
from persona_pipeline.base.files import open_regular
from persona_pipeline.base.options import parse_time as parse_time
from persona_pipeline.base.text import clean, shortened, split_thinking, storable_data
from persona_pipeline.world.models import Message
from persona_pipeline.world.personas import is_name

MessageField = Literal["id", "agent_id", "channel", "recipient", "text", "created_at", "run_id"]
FIELDS: tuple[str, ...] = get_args(MessageField)
# What else of a message another program's column may say: who wrote it, an agent or a customer.
ROLE = "role"
# Where a column's dates are such as 03/04/2026, which number is the day.
ORDERS = ("created_at:day-first", "created_at:month-first")
REQUIRED = ("id", "agent_id", "text", "created_at")
ENDINGS = (".jsonl", ".csv")
# Where an import writes messages that a checkout shall have.
IMPORTED = "messages/imported.jsonl"
_BLOCK = 1 << 20
# The longest text that is taken, each character of it escaped, and some more.
_LONGEST_LINE = 16_000_000
# Characters of a wrong header that are shown.
_LONGEST_HEADER = 300


@dataclass(frozen=True)
class Row:
    """A message of a file, or the error in a line. ``line``: where it begins, from 1."""

    line: int
    found: Message | ValueError


class MessageFile:
    """A message file that is read from its start, or on from a known place. Use it as a context manager.

    Raises:
        ConfigError: the file cannot be read, or its ending is neither .jsonl nor .csv.

    Attributes:
        end, lines: numbers of bytes and lines read so far, up to the last line feed: more may be written behind it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._csv = path.suffix.lower() == ".csv"
        if path.suffix.lower() not in ENDINGS:
            raise ConfigError(Problem("is neither .jsonl nor .csv; rename or convert it", str(path)))
        self._hash = hashlib.sha256()
        self.end = self.lines = 0
        self._stream: BinaryIO | None = None

    def __enter__(self) -> "MessageFile":
        with self._errors():
            self._stream = open_regular(self.path)
        return self

    def __exit__(self, *_: object) -> None:
        if self._stream:
            self._stream.close()

    @property
    def digest(self) -> str:
        """SHA-256 of the first ``end`` bytes."""
        return self._hash.hexdigest()

    def skip(self, size: int, lines: int, digest: str) -> bool:
        """Go to a place of an earlier reading; return False and stay for a table, or where the file no longer begins the same."""
        known, last, remaining = hashlib.sha256(), b"", size
        with self._errors():
            self._opened.seek(0)
            while remaining and (block := self._opened.read(min(_BLOCK, remaining))):
                known.update(block)
                remaining, last = remaining - len(block), block[-1:]
        if self._csv or remaining or last != b"\n" or known.hexdigest() != digest:
            return False
        self._hash, self.end, self.lines = known, size, lines
        return True

    def restart(self) -> None:
        """Go to the start."""
        self._hash, self.end, self.lines = hashlib.sha256(), 0, 0

    def require_text(self) -> None:
        """Check the following bytes; ConfigError: they are not UTF-8."""
        decoder, at = codecs.getincrementaldecoder("utf-8")(), self.end
        with self._errors():
            self._opened.seek(at)
            while True:
                block, pending = self._opened.read(_BLOCK), len(decoder.getstate()[0])
                try:
                    decoder.decode(block, final=not block)
                except UnicodeDecodeError as error:
                    wrong = f"is not UTF-8 (byte {at - pending + error.start}); save it as UTF-8"
                    raise ConfigError(Problem(wrong, str(self.path))) from error
                if not block:
                    return
                at += len(block)

    def rows(self, parse: Callable[[Any], Message]) -> Iterator[Row]:
        """Yield the following lines, and ``end``, ``lines`` and ``digest`` advance; of CSV all records, and they stay.

        ``parse``: returns the message of a decoded line, or raises a ``ValueError``. Raises ``ConfigError``: the file cannot be
        read, or CSV lacks a header with the required columns.
        """
        with self._errors():
            yield from self._csv_rows(parse) if self._csv else self._jsonl_rows(parse)

    @property
    def _opened(self) -> BinaryIO:
        assert self._stream is not None
        return self._stream

    def _jsonl_rows(self, parse: Callable[[Any], Message]) -> Iterator[Row]:
        stream = self._opened
        stream.seek(self.end)
        # Only "\n" ends a line: str.splitlines would cut at U+2028 and others, which JSON strings may hold.
        while raw := stream.readline(_LONGEST_LINE):
            line, is_short = self.lines + 1, len(raw) < _LONGEST_LINE or raw.endswith(b"\n")
            while not raw.endswith(b"\n") and (more := stream.readline(_LONGEST_LINE)):
                self._take(raw, self.lines)
                raw = more
            # A last line without its end may still be written.
            if raw.endswith(b"\n"):
                self._take(raw, line)
            if not is_short:
                yield Row(line, ValueError("is too long; split the message"))
            elif raw.strip():
                try:
                    yield Row(line, parse(_json_value(raw.removeprefix(codecs.BOM_UTF8) if line == 1 else raw)))
                except ValueError as error:
                    yield Row(line, error)

    def _csv_rows(self, parse: Callable[[Any], Message]) -> Iterator[Row]:
        """Yield all records: a table is always read from its start."""
        self._opened.seek(0)
        text = io.TextIOWrapper(self._opened, encoding="utf-8-sig", errors="surrogateescape", newline="")
        reader = csv.reader(iter(partial(text.readline, _LONGEST_LINE), ""), strict=True)
        try:
            try:
                names = next(reader, [])
            except csv.Error as error:
                raise ConfigError(Problem(f"is not CSV ({error}); check the quotes", str(self.path), 1)) from None
            if wrong := _wrong_header(names):
                here = shortened(", ".join(map(visible, names)), _LONGEST_HEADER)
                known = f"a message's are {', '.join(FIELDS)}: rename them, or --map 'KEY=FIELD' on import"
                wrong = f"{wrong}; here the columns are {here}, {known}"
                raise ConfigError(Problem(wrong, str(self.path), 1))
            while True:
                line = reader.line_num + 1
                try:
                    if cells := next(reader):
                        yield Row(line, parse(_csv_value(cells, names)))
                except StopIteration:
                    return
                except csv.Error as error:
                    yield Row(line, ValueError(f"is not CSV ({error}); check the quotes"))
                except ValueError as error:
                    yield Row(line, error)
        finally:
            text.detach()

    def _take(self, raw: bytes, lines: int) -> None:
        self._hash.update(raw)
        self.end += len(raw)
        self.lines = lines

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ConfigError(Problem(f"cannot be read ({error.strerror}); check the path", str(self.path))) from error


def _wrong_header(names: Sequence[str]) -> str:
    """Return the problem of column names; unknown names are extras."""
    missing = next((name for name in REQUIRED if name not in names), None)
    twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if not set(names) & set(FIELDS):
        return "has no header"
    if missing:
        return f"column {missing!r} is missing{did_you_mean(missing, names)}"
    return f"column {twice!r} stands twice" if twice is not None else ""


def _json_value(raw: bytes) -> Any:
    try:
        return strict_json(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(f"is not UTF-8 (byte {error.start} of the line); save it as UTF-8") from None
    except JsonError as error:
        raise ValueError(f"is not JSON ({error.msg}); write one object a line") from None


def _csv_value(cells: Sequence[str], names: Sequence[str]) -> Any:
    if len(cells) > len(names):
        return ValueError("has more cells than the header; quote cells that hold commas")
    # An empty cell means absent, except for a text, which may be empty.
    return {name: cell for name, cell in zip(names, cells, strict=False) if cell or name == "text"}


# Characters of JSON that a message keeps, and how deeply it nests.
MOST_EXTRAS, DEEPEST = 16_000, 20
# Key of the list of names that were cut, with limits of its length and of each name.
CUT = "_cut"
_MOST_NAMED, _LONGEST_NAME = 20, 64


def bounded_extras(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return JSON values by key as a message keeps them: in their order, as many keys whole as fit in 16,000 characters.

    A key that does not fit, or nests deeper than 20, is named in the list under ``_cut``. Texts are as in ``clean``.
    """
    kept: dict[str, Any] = {}
    cut: list[str] = []
    room = MOST_EXTRAS
    for key, value in found.items():
        one = _cleaned(key, value, room)
        if one is None:
            cut.append(clean(key[:_LONGEST_NAME]))
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
        text = json.dumps({key: value}, ensure_ascii=False, allow_nan=False)
    except (ValueError, TypeError, RecursionError):
        return None
    # Cleaning never makes it longer.
    found = json.loads(text) if len(text) <= room else None
    return storable_data(found, clean) if found and is_shallow(found, DEEPEST + 2) else None


MAX_TEXT = 1_000_000
# The key of a model's thinking among a message's extras.
THINKING = "thinking"
_NAMES = ("id", "agent_id", "channel", "recipient")


@dataclass
class ParsedMessages:
    """The valid lines of a file in order, and the problems of others. ``lines``: line numbers by message id."""

    messages: list[Message] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    lines: dict[str, int] = field(default_factory=dict)


def parse_messages(path: Path) -> ParsedMessages:
    """Read a message file.

    A line that is invalid, or repeats an id with other content, is a problem. Raises ``ConfigError``: the file cannot be
    read, or its ending is neither .jsonl nor .csv.
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
    """Return the problem of an id that an earlier line of its file has (None: unknown line)."""
    return f"id {message_id!r} is taken by {f'line {line}' if line else 'a line before'}; give this message its own"


def parse_message(row: Any) -> Message:
    """Return the message of a decoded line. Unknown keys are extras, and so is thinking before the text of an agent.

    ValueError: the problem and its remedy; one that is passed in as the row is raised again.
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
    thinking, text = split_thinking(values["text"]) if extras.get("role") != "user" else ("", values["text"])
    if thinking.strip():
        extras[THINKING] = "\n".join(part for part in (extras.get(THINKING), thinking.strip()) if isinstance(part, str))
    return Message(
        id=values["id"],
        agent_id=values["agent_id"],
        text=clean(text),
        created_at=parse_time(values["created_at"], name="created_at"),
        channel=values.get("channel"),
        recipient=values.get("recipient"),
        run_id=_run_id(values.get("run_id")),
        extras=bounded_extras(extras) if extras else extras,
    )


def message_lines(messages: Iterable[Message]) -> str:
    """Return messages as lines of a file from which they are read again, as their program had them."""
    lines = []
    for message in messages:
        recipient = message.addressee or message.recipient
        to = {"recipient": recipient} if message.channel is None else {"channel": message.channel}
        values: dict[str, object] = {
            "id": message.id, "agent_id": message.speaker or message.agent_id, **to, "text": message.text,
            "created_at": rfc3339(message.created_at, exact=True), **({"run_id": message.run_id} if message.run_id else {}),
            **message.extras,
        }  # fmt: skip
        lines.append(f"{json.dumps(values, ensure_ascii=False)}\n")
    return "".join(lines)


def _run_id(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        return str(uuid.UUID(text))
    except ValueError:
        raise ValueError(f"run_id {text[:40]!r} is not a UUID; correct or remove it") from None


_ID_CHARACTERS = 32


def records_of(rows: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the records of a frame of pandas, polars or Arrow, of records, or of a mapping with such for values."""
    if rows is None:
        return
    if isinstance(rows, Mapping):
        for part in rows.values():
            yield from records_of(part)
    elif hasattr(rows, "to_pylist"):
        yield from rows.to_pylist()
    elif hasattr(rows, "to_dicts"):
        yield from rows.to_dicts()
    elif hasattr(rows, "to_dict"):
        yield from rows.to_dict("records")
    elif isinstance(rows, Iterable) and not isinstance(rows, str | bytes):
        yield from rows
    else:
        raise ConfigError(f"messages cannot be read from {type(rows).__name__}; give a frame or a list of records")


def rows_of_records(rows: Any, source: str, columns: Mapping[str, str]) -> Iterator[Row]:
    """Yield the messages of a frame or of records by line, or their problems.

    ``columns``: names of columns by message field, where they differ.
    """
    for line, record in enumerate(records_of(rows), 1):
        if not isinstance(record, Mapping):
            yield Row(line, ValueError(f"is no record but {type(record).__name__}"))
            continue
        if missing := [column for column in columns.values() if column not in record]:
            known = [str(name) for name in record]
            hint = did_you_mean(missing[0], known) or f"; it has {', '.join(known)}"
            raise ConfigError(f"row {line} of {source} has no column {missing[0]!r}{hint}")
        values = {name: _plain(record.get(columns.get(name, name))) for name in FIELDS}
        found = {name: value for name, value in values.items() if value is not None}
        if "channel" not in found and "recipient" not in found:
            found["channel"] = source
        if "id" not in found:
            found["id"] = content_hash(sorted((name, str(value)) for name, value in found.items()))[:_ID_CHARACTERS]
        try:
            yield Row(line, parse_message(found))
        except ValueError as error:
            yield Row(line, error)


def _plain(value: Any) -> Any:
    """Return a value as a message file would have it: text; None for what frames write where nothing is."""
    if value is None or value != value or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).isoformat()
    return str(value) if isinstance(value, int) else value
