"""All problems of a suite, each with its place, in one wording."""

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from persona_pipeline.base.documents.yaml import EXPECTED, Document, Location, names_at, parse_document, quotes_hint
from persona_pipeline.base.errors import ConfigError, Problem, did_you_mean, nearest
from persona_pipeline.base.files import repository_of
from persona_pipeline.suites.format.files import FileError, Files, missing_file


@dataclass(frozen=True)
class LineSource:
    """One line of a JSONL file, one row of a CSV file, or a place in a program.

    ``text``: that of a JSON line; YAML's parser finds columns, because JSON is YAML's flow style. ``columns``: for a field of
    the test, the number of its cell in a row, from 1.
    """

    path: str
    line: int
    text: str = ""
    columns: dict[str, int] = field(default_factory=dict)

    def problem(self, location: Sequence[str | int], message: str, *, key: bool = False) -> Problem:
        # The column of an item, such as assert[1], comes before the column of the list.
        names = (_dotted(tuple(location[:2])), str(location[0])) if location else ()
        column = next((self.columns[name] for name in names if name in self.columns), 1)
        if self.text:
            with contextlib.suppress(ConfigError):
                column = parse_document(self.text, self.path).where(location, key=key)[1]
        return Problem(message, self.path, self.line, column)


Fields = TypeVar("Fields", bound=BaseModel)
ConfigSource = Document | LineSource


@dataclass(frozen=True)
class ConfigEntry:
    """A value of a file with its place. ``label``: its name in messages, such as "test 'late'"."""

    data: Any
    source: ConfigSource
    location: Location = ()
    label: str = ""

    def child(self, *keys: str | int, label: str = "") -> "ConfigEntry":
        """Return the entry of a value inside this one. ``label``: its name, added to the name of this entry."""
        data = self.data
        for key in keys:
            data = data[key]
        return ConfigEntry(data, self.source, (*self.location, *keys), self.said(label) if label else self.label)

    def named(self, label: str) -> "ConfigEntry":
        """Return this entry with a part added to its name."""
        return replace(self, label=self.said(label))

    def said(self, message: str) -> str:
        """Return a message with the name of the entry in front."""
        return f"{self.label}: {message}" if self.label else message

    @property
    def place(self) -> str:
        """Its file and line."""
        return f"{self.source.path}:{self.problem('').line}"

    def problem(self, message: str, *keys: str | int, key: bool = False) -> Problem:
        """Return a problem placed at this value, or at a key path inside it."""
        return self.source.problem((*self.location, *keys), message, key=key)


@dataclass
class Reader:
    """State of a loading: the files, the suite's folder, and the problems and warnings so far.

    Attributes:
        missing: files of programs that do not exist; a run reports them when it needs them.
        depth: number of composites around the current assert.
        broken: ids of invalid values, so that a YAML alias of an invalid value is not reported twice.
    """

    files: Files
    suite_folder: Path
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    missing: list[Problem] = field(default_factory=list)
    depth: int = 0
    broken: set[int] = field(default_factory=set)

    def fail(self, entry: ConfigEntry, message: str, *keys: str | int, key: bool = False) -> None:
        self.problems.append(entry.problem(entry.said(message), *keys, key=key))

    def warn(self, entry: ConfigEntry, message: str, *keys: str | int, key: bool = False) -> None:
        self.warnings.append(entry.problem(entry.said(message), *keys, key=key))

    def deprecated(self, entry: ConfigEntry, old: str, new: str, *keys: str | int) -> None:
        self.warn(entry, f"{old} is deprecated; {new}", *keys, key=True)

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Add the problems of a ``ConfigError`` to the problems of this suite."""
        try:
            yield
        except ConfigError as error:
            self.problems += error.problems

    @contextmanager
    def placing(self, entry: ConfigEntry, name: str, *keys: str | int) -> Iterator[None]:
        """Add a problem at ``keys`` where a named file cannot be used. ``name``: the key in the message."""
        try:
            yield
        except FileError as problem:
            self.fail(entry, f"{name}: {problem}", *keys)

    def validated(self, model: type[Fields], data: Any, entry: ConfigEntry) -> Fields | None:
        """Return the data of an entry as a model, or None with problems added."""
        try:
            return model.model_validate(data)
        except ValidationError as error:
            add_model_problems(self, entry, error, model)
            return None

    def folders(self, entry: ConfigEntry) -> list[Path]:
        """Return the folders that relative paths start from: that of the entry's file, then that of the suite."""
        own = Path(entry.source.path).parent
        return [own] if own == self.suite_folder else [own, self.suite_folder]

    def find_folder(self, entry: ConfigEntry, reference: str, name: str, *keys: str) -> str:
        """Return the absolute path of a named folder; add a problem at ``keys`` where it does not exist."""
        with self.placing(entry, name, *keys):
            return str(self.files.find(reference, self.folders(entry), folder=True))
        return reference

    def check_program(self, script: Sequence[str], entry: ConfigEntry, key: str, *, folder: str | None = None) -> None:
        """Note a file of a program that does not exist. ``folder``: where the program runs; None: the suite's folder."""
        place = Path(folder or self.suite_folder)
        name = missing_file(script, place)
        if name is not None:
            shown = key if key in entry.data else next((own for own in ("command", "path") if own in entry.data), key)
            said = f"{name!r} does not exist in {place}; write it, or correct the name"
            self.missing.append(entry.problem(entry.said(said), shown))

    @cached_property
    def top(self) -> Path:
        return repository_of(self.suite_folder)


_DATA_FILES = (".jsonl", ".csv")
_LABEL = re.compile(r"^test '[^']*'|^tests\[\d+\]")


def grouped(problems: Iterable[Problem]) -> list[Problem]:
    """Return problems without duplicates; the same problem in several lines of a data file becomes one, at the first line."""
    found: dict[Any, list[Problem]] = {}
    for problem in dict.fromkeys(problems):
        is_row = (problem.path or "").endswith(_DATA_FILES)
        found.setdefault((problem.path, _LABEL.sub("", problem.message)) if is_row else problem, []).append(problem)
    return [_with_lines(alike) for alike in found.values()]


def _with_lines(alike: Sequence[Problem]) -> Problem:
    lines = [str(problem.line) for problem in alike[1:]]
    if not lines:
        return alike[0]
    shown = ", ".join(lines[:_SHOWN_LINES]) + (", ..." if len(lines) > _SHOWN_LINES else "")
    return replace(alike[0], message=f"{alike[0].message} (and {len(lines)} more: line {shown})")


_SHOWN_LINES = 5
# Pydantic's types of errors, in words. Names in braces are those of the error's context.
_TEXTS = {
    **EXPECTED,
    "string_type": "must be a string",
    "int_from_float": "must be a whole number",
    "greater_than_equal": "must be >= {ge:g}",
    "greater_than": "must be > {gt:g}",
    "less_than_equal": "must be <= {le:g}",
    "less_than": "must be < {lt:g}",
    "literal_error": "must be one of {expected}",
    "string_pattern_mismatch": "must match {pattern}",
}
# Errors whose text does not show the value.
_ALONE = {
    "string_too_short": "must not be empty",
    "too_short": "must not be empty",
    "string_too_long": "must have at most {max_length} characters",
    "union_tag_invalid": "must be one of {expected_tags}, not {tag!r}",
}


def add_model_problems(reader: Reader, entry: ConfigEntry, error: ValidationError, model: type[BaseModel]) -> None:
    """Add the problems of a pydantic error, each at its place and in plain words."""
    older = getattr(model, "older_names", {})
    found = error.errors(include_url=False)
    # A misspelt key is not also a missing key: one cause, one problem.
    meant = {
        (*item["loc"][:-1], *nearest(str(item["loc"][-1]), names_at(model, item["loc"][:-1])))
        for item in found
        if item["type"] == "extra_forbidden"
    }
    for item in found:
        if item["type"] == "missing" and item["loc"] in meant:
            continue
        location = tuple(item["loc"])
        if item["type"].startswith("union_tag"):
            location = (*location, item.get("ctx", {})["discriminator"].strip("'"))
        place = _written(entry.data, location, older)
        name = _dotted(place or location)
        if item["type"] == "extra_forbidden":
            hint = did_you_mean(str(location[-1]), sorted(names_at(model, location[:-1])))
            hint = hint or quotes_hint({location[-1]: item["input"] or ""})
            reader.fail(entry, f"unknown key {name!r}{hint}", *place, key=True)
        elif item["type"] in ("missing", "union_tag_not_found"):
            place = _written(entry.data, location[:-1], older)
            reader.fail(entry, f"{_dotted((*place, location[-1]))} is required", *place)
        else:
            prefix = f"{name}: " if name else ""
            reader.fail(entry, f"{prefix}{_text(item, location)}", *place)


def _written(data: Any, location: tuple[str | int, ...], older: Mapping[str, str]) -> tuple[str | int, ...]:
    """Return a location as the file spells it: older names stay, and pydantic's names of union members are left out."""
    place: list[str | int] = []
    for part in location:
        if not place and part not in data:
            part = older.get(str(part), part)
        if part in _keys(data):
            place.append(part)
            data = data[part]
    return tuple(place)


def _keys(value: Any) -> Any:
    return range(len(value)) if isinstance(value, list) else value if isinstance(value, dict) else ()


def _text(item: Any, location: tuple[str | int, ...]) -> str:
    kind, context = item["type"], item.get("ctx", {})
    if location and location[-1] == "weight":
        return f"must be a finite number >= 0, not {_shown(item.get('input'))}"
    if kind in _ALONE:
        return _ALONE[kind].format(**context)
    if kind not in _TEXTS:
        return item["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    said = _TEXTS[kind].format(**context).replace(" or '", ", '")
    return f"{said}, not {_shown(item.get('input'))}{quotes_hint(item.get('input'))}"


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    names = {None: "null", True: "true", False: "false"}
    text = names[value] if value is None or isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _dotted(location: tuple[str | int, ...]) -> str:
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text
