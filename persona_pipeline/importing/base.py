"""What an importer is: it looks whether a source is of its format, and makes messages of its lines and turns."""

import hashlib
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from persona_pipeline.base.documents.json import decoded_text, rfc3339
from persona_pipeline.base.errors import ConfigError, Problem
from persona_pipeline.world.messages.files import Row, parse_message
from persona_pipeline.world.names import Aliases

TEXTS = ("text", "input_text", "output_text")
_ROLES = {"human": "user", "ai": "assistant", "bot": "assistant", "model": "assistant", "chat": "assistant"}
# LangChain writes a message by its class: HumanMessage, AIMessageChunk.
_CLASS_ENDINGS = ("Message", "MessageChunk")
_SILENT = {"system": "system prompt", "developer": "system prompt", "tool": "tool result", "function": "tool result"}
_DIGITS = 24


@dataclass(frozen=True)
class ChatTurn:
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


def turn_of(value: Any) -> ChatTurn:
    """Return the turn of a message with a role and content; ValueError says what it has not."""
    if not isinstance(value, Mapping):
        raise ValueError('is not a message; write {"role": ..., "content": ...}')
    value = _plain(value)
    # Some call the list of parts by its name.
    role, content = value.get("role"), value.get("content", value.get("parts"))
    if not isinstance(role, str):
        raise ValueError("a message has no role")
    role = _ROLES.get(role.lower(), role.lower())
    if not (content is None or isinstance(content, (str, list))):
        raise ValueError("a message's content must be a text or a list of parts")
    name = value.get("name")
    if name is not None and not isinstance(name, str):
        raise ValueError("a message's name must be a string")
    known = {"role", "content", "parts", "name"}
    extras = {key: item for key, item in value.items() if key not in known and item not in (None, [], {})}
    if isinstance(content, list) and any(not _is_text(part) for part in content):
        extras["content"] = content
    text = text_of(content)
    called = value.get("tool_calls") or value.get("function_call")
    silent = "" if text.strip() else "tool call without words" if called else "turn without text"
    skipped = _SILENT.get(role, silent)
    return ChatTurn(role, text, name or None, skipped, extras)


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
    return isinstance(part, str) or (isinstance(part, Mapping) and part.get("type", "text") in TEXTS)


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


# Endings of files of rows. Excel's "Unicode text" is tab-separated and ends in .txt.
TABLES = (".csv", ".tsv", ".tab", ".txt")
_BEGINNING = 65_536
_LARGEST = 500_000_000
# A number of seconds beyond this is one of milliseconds: it would be the year 5138.
_MILLISECONDS = 1e11
# Seconds or milliseconds as a text; digits in any other number may be a date.
_SECONDS = re.compile(r"\d{10}(\.\d+)?|\d{13}")


@dataclass(frozen=True)
class Skipped:
    """A line that is no message and should be none, such as a system prompt; ``reason`` is one of a few."""

    line: int
    reason: str


# What a line of a source is: a message, a named problem (a row with a ``ValueError``), or nothing that anybody said.
Found = Row | Skipped


@dataclass(frozen=True)
class Source:
    """A file or folder that is imported; ``name`` is what it is called where its problems are named."""

    path: Path
    name: str

    @property
    def is_folder(self) -> bool:
        return self.path.is_dir()

    @property
    def is_table(self) -> bool:
        """Whether its name is one of CSV."""
        return self.path.suffix.lower() in TABLES

    @property
    def is_plain(self) -> bool:
        """Whether its beginning is UTF-8."""
        return self.beginning.encode("utf-8", "replace")[:-4] in self._first_bytes

    @property
    def is_longer(self) -> bool:
        """Whether there is more of it than its beginning."""
        return self.path.stat().st_size > _BEGINNING

    @cached_property
    def beginning(self) -> str:
        """The first 64 KB of a file; empty for a folder.

        Raises:
            ConfigError: it cannot be read.
        """
        if self.is_folder:
            return ""
        try:
            return decoded_text(self._first_bytes, table=self.is_table, whole=not self.is_longer)
        except UnicodeDecodeError:
            return self._first_bytes.decode("utf-8-sig", "replace")

    @cached_property
    def _first_bytes(self) -> bytes:
        try:
            with self.path.open("rb") as stream:
                return stream.read(_BEGINNING)
        except OSError as error:
            raise self.unreadable(error) from error

    def content(self, remedy: str = "export it in parts") -> bytes:
        """Return all of a file; ``remedy``: what to do with one that is too large.

        Raises:
            ConfigError: it cannot be read, or is larger than 500 MB.
        """
        try:
            if self.path.stat().st_size > _LARGEST:
                raise ConfigError(Problem(f"is larger than 500 MB; {remedy}", self.name))
            return self.path.read_bytes()
        except OSError as error:
            raise self.unreadable(error) from error

    def text(self) -> str:
        """Return all of a file.

        Raises:
            ConfigError: it cannot be read, is larger than 500 MB, or in an encoding that is not known.
        """
        try:
            return decoded_text(self.content("export it as JSON lines, or in parts"), table=self.is_table)
        except UnicodeDecodeError as error:
            encoding = error.encoding.upper().removesuffix("-LE").removesuffix("-BE")
            wrong = f"is not {encoding} (byte {error.start}); save it as UTF-8"
            raise ConfigError(Problem(wrong, self.name)) from error

    def unreadable(self, error: OSError) -> ConfigError:
        """Return what is said of a file that cannot be read."""
        return ConfigError(Problem(f"cannot be read ({error.strerror}); check the path", self.name))


@dataclass(frozen=True)
class ReadOptions:
    """How a source is read.

    Attributes:
        fields: message fields by the dotted key their value stands under (``--map KEY=FIELD``).
        starting: when the first conversation began, for formats that say no times.
        aliases: what agents are called, for formats in which several names may be theirs.
        remembered: as ``fields``, for files that have these keys. ``roles``: what the words of a column of roles stand for.
    """

    fields: Mapping[str, str] = field(default_factory=dict)
    starting: datetime | None = None
    aliases: Aliases = field(default_factory=Aliases)
    remembered: Mapping[str, str] = field(default_factory=dict)
    roles: Mapping[str, str] = field(default_factory=dict)

    def given(self, record: Any) -> dict[str, str]:
        """Return the fields a record has under the keys that were mapped."""
        values = {name: value_at(record, key) for key, name in self.fields.items()}
        return {name: as_text(name, value) for name, value in values.items() if value is not None}


class Importer(ABC):
    """A format. An object is made for each source; it may keep what it learns of it."""

    # What ``--format`` calls it, and one line about it for people who look for theirs.
    name: ClassVar[str]
    about: ClassVar[str]
    # Whether it is read from a folder; a folder of files is read file by file.
    of_folders: ClassVar[bool] = False

    @abstractmethod
    def recognises(self, source: Source) -> bool:
        """Return whether a source is surely of this format, by a look at its beginning or at the names in a folder."""

    def files(self, source: Source) -> Sequence[Source]:
        """Return the files of a source in the order they are read.

        Raises:
            ConfigError: the format is one of files and this is a folder, or the other way round.
        """
        if source.is_folder:
            raise ConfigError(Problem(f"is a folder; {self.name} is read from files, name them", source.name))
        return [source]

    def require_no_fields(self, options: ReadOptions) -> None:
        """Raise ``ConfigError`` where keys are mapped of a format that has its own."""
        if options.fields:
            raise ConfigError(f"--map KEY=FIELD is not for {self.name}, whose keys are known; --map SPEAKER=AGENT is")

    @abstractmethod
    def rows(self, file: Source, options: ReadOptions) -> Iterator[Found]:
        """Yield what each line of a file is. No line goes unsaid.

        Raises:
            ConfigError: the file cannot be read at all.
        """


def message_row(line: int, values: Mapping[str, Any]) -> Row:
    """Return the row of a message line's keys, with what is wrong with them where something is; other keys are extras."""
    try:
        return Row(line, parse_message({key: value for key, value in values.items() if value is not None}))
    except ValueError as error:
        return Row(line, error)


def value_at(record: Any, key: str) -> Any:
    """Return the value under a dotted key such as ``body.parts.0.text``, None where there is none.

    A key that has dots itself comes first.
    """
    if isinstance(record, Mapping) and key in record:
        return record[key]
    first, _, rest = key.partition(".")
    if isinstance(record, Mapping):
        inner = record.get(first)
    elif isinstance(record, list) and first.isdigit():
        inner = record[int(first)] if int(first) < len(record) else None
    else:
        return None
    return value_at(inner, rest) if rest else inner


def as_text(name: str, value: Any) -> Any:
    """Return a mapped value as the message field wants it: a number as text or as a time, the texts of content parts.

    A time without an offset is taken for UTC.
    """
    if isinstance(value, list) and name == "text":
        return text_of(value)
    if name == "created_at" and isinstance(value, str):
        if _SECONDS.fullmatch(value):
            return timestamp(float(value))
        with suppress(ValueError):
            moment = datetime.fromisoformat(value.upper().removesuffix("UTC").strip())
            return value if moment.tzinfo else rfc3339(moment.replace(tzinfo=UTC), exact=True)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return timestamp(value) if name == "created_at" else str(value)
    return value


def timestamp(seconds: float) -> str:
    """Return the RFC 3339 time of seconds, or of milliseconds, since 1970; what is out of range stays a number."""
    try:
        moment = datetime.fromtimestamp(seconds / 1000 if abs(seconds) > _MILLISECONDS else seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return str(seconds)
    return rfc3339(moment, exact=True)
