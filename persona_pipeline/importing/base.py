"""What an importer is: it looks whether a source is of its format, and makes messages of it, line by line."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from persona_pipeline.errors import ConfigError, Problem
from persona_pipeline.world.canonical import rfc3339
from persona_pipeline.world.ingest import parse_message
from persona_pipeline.world.reading import Row

_BEGINNING = 65_536
_LARGEST = 500_000_000
# A number of seconds beyond this is one of milliseconds: it would be the year 5138.
_MILLISECONDS = 1e11


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

    @cached_property
    def beginning(self) -> str:
        """The first 64 KB of a file; empty for a folder.

        Raises:
            ConfigError: it cannot be read.
        """
        if self.is_folder:
            return ""
        try:
            with self.path.open("rb") as stream:
                return stream.read(_BEGINNING).decode("utf-8-sig", "replace")
        except OSError as error:
            raise self.unreadable(error) from error

    def text(self) -> str:
        """Return all of a file.

        Raises:
            ConfigError: it cannot be read, is larger than 500 MB or not UTF-8.
        """
        try:
            if self.path.stat().st_size > _LARGEST:
                raise ConfigError(Problem("is larger than 500 MB; export it as JSON lines, or in parts", self.name))
            return self.path.read_bytes().decode("utf-8-sig")
        except OSError as error:
            raise self.unreadable(error) from error
        except UnicodeDecodeError as error:
            raise ConfigError(Problem(f"is not UTF-8 (byte {error.start}); save it as UTF-8", self.name)) from error

    def unreadable(self, error: OSError) -> ConfigError:
        """Return what is said of a file that cannot be read."""
        return ConfigError(Problem(f"cannot be read ({error.strerror}); check the path", self.name))


@dataclass(frozen=True)
class ReadOptions:
    """How a source is read.

    Attributes:
        fields: message fields by the dotted key their value stands under (``--map KEY=FIELD``).
        starting: when the first conversation began, for formats that say no times.
    """

    fields: Mapping[str, str] = field(default_factory=dict)
    starting: datetime | None = None

    def given(self, record: Any) -> dict[str, str]:
        """Return the fields a record has under the keys that were mapped."""
        values = {name: value_at(record, key) for key, name in self.fields.items()}
        return {name: as_text(name, value) for name, value in values.items() if value is not None}


class Importer(ABC):
    """A format. An object is made for each source; it may keep what it learns of it."""

    # What ``--format`` calls it, and one line about it for people who look for theirs.
    name: ClassVar[str]
    about: ClassVar[str]

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
    """Return a mapped value as the message field wants it: a number as text or as a time, the texts of content parts."""
    if isinstance(value, list) and name == "text":
        from persona_pipeline.importing.turns import text_of

        return text_of(value)
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
