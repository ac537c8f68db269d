"""Where a piece of configuration stands: in a YAML document, on a line of JSONL or in a row of CSV."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from persona_pipeline.documents import Location, parse_document
from persona_pipeline.errors import ConfigError, Problem


class Source(Protocol):
    """A file that knows where its values stand."""

    @property
    def path(self) -> str: ...

    def problem(self, location: Sequence[str | int], message: str, *, key: bool = False) -> Problem: ...


@dataclass(frozen=True)
class LineSource:
    """One line of a JSONL file. The column is found by parsing the line as YAML, whose flow style JSON is, when it is needed."""

    path: str
    line: int
    text: str

    def problem(self, location: Sequence[str | int], message: str, *, key: bool = False) -> Problem:
        try:
            column = parse_document(self.text, self.path).where(location, key=key)[1]
        except ConfigError:
            column = 1
        return Problem(message, self.path, self.line, column)


@dataclass(frozen=True)
class RowSource:
    """One row of a CSV file; ``columns`` maps a test's field to the column (1-based, counted in cells) it came from."""

    path: str
    line: int
    columns: dict[str, int] = field(default_factory=dict)

    def problem(self, location: Sequence[str | int], message: str, *, key: bool = False) -> Problem:
        column = self.columns.get(str(location[0])) if location else None
        return Problem(message, self.path, self.line, column or 1)


@dataclass(frozen=True)
class Entry:
    """A value and where it stands."""

    data: Any
    source: Source
    location: Location = ()

    def child(self, *keys: str | int) -> "Entry":
        """Return the entry of a value inside this one; the value must be there."""
        data = self.data
        for key in keys:
            data = data[key]
        return Entry(data, self.source, (*self.location, *keys))

    def problem(self, message: str, *keys: str | int, key: bool = False) -> Problem:
        """Return a problem placed at this value, or at a key path inside it."""
        return self.source.problem((*self.location, *keys), message, key=key)
