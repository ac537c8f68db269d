"""Collecting everything that is wrong with a suite, and saying it in one voice."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from persona_pipeline.base.documents.yaml import EXPECTED, Document, Location, braces_hint, names_at, parse_document
from persona_pipeline.base.errors import ConfigError, Problem, did_you_mean, nearest
from persona_pipeline.base.files import repository_of
from persona_pipeline.suites.format.files import FileError, Files, missing_file


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
        # The column of one of several, such as assert[1], comes before that of them all.
        names = (_dotted(tuple(location[:2])), str(location[0])) if location else ()
        column = next((self.columns[name] for name in names if name in self.columns), 1)
        return Problem(message, self.path, self.line, column)


Fields = TypeVar("Fields", bound=BaseModel)


# A file that knows where its values stand.
ConfigSource = Document | LineSource | RowSource


@dataclass(frozen=True)
class ConfigEntry:
    """A value and where it stands."""

    data: Any
    source: ConfigSource
    location: Location = ()

    def child(self, *keys: str | int) -> "ConfigEntry":
        """Return the entry of a value inside this one; the value must be there."""
        data = self.data
        for key in keys:
            data = data[key]
        return ConfigEntry(data, self.source, (*self.location, *keys))

    @property
    def place(self) -> str:
        """Its file and line."""
        return f"{self.source.path}:{self.problem('').line}"

    def problem(self, message: str, *keys: str | int, key: bool = False) -> Problem:
        """Return a problem placed at this value, or at a key path inside it."""
        return self.source.problem((*self.location, *keys), message, key=key)


class AssertTypes(Protocol):
    """The types of asserts a suite may name. They stand above the format, so they are handed in."""

    def canonical_type(self, spelled: str) -> str: ...

    def find_type(self, name: str) -> type[Any] | None: ...

    def unknown_type(self, spelled: str) -> str: ...


@dataclass
class Reader:
    """What every part of loading shares: the files, the suite's folder, and the problems and warnings found so far.

    ``assert_types``: None where no asserts are read. ``missing``: files that programs of the suite name and that are not there, of
    which a run knows only when it comes to them. ``depth``: how many composites the assert being read stands in.
    """

    files: Files
    suite_folder: Path
    assert_types: AssertTypes | None = None
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    missing: list[Problem] = field(default_factory=list)
    depth: int = 0
    # Values that are not valid: an alias of one is not told again.
    broken: set[int] = field(default_factory=set)

    def fail(self, entry: ConfigEntry, message: str, *keys: str | int, key: bool = False) -> None:
        self.problems.append(entry.problem(message, *keys, key=key))

    def warn(self, entry: ConfigEntry, message: str, *keys: str | int, key: bool = False) -> None:
        self.warnings.append(entry.problem(message, *keys, key=key))

    def deprecated(self, entry: ConfigEntry, old: str, new: str, *keys: str | int) -> None:
        self.warn(entry, f"{old} is deprecated; {new}", *keys, key=True)

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Turn a ``ConfigError`` from below into problems of this suite."""
        try:
            yield
        except ConfigError as error:
            self.problems += error.problems

    @contextmanager
    def placing(self, entry: ConfigEntry, label: str, *keys: str | int) -> Iterator[None]:
        """Turn a file that cannot be used into a problem of what names it."""
        try:
            yield
        except FileError as problem:
            self.fail(entry, f"{label}: {problem}", *keys)

    def validated(self, model: type[Fields], data: Any, entry: ConfigEntry, label: str) -> Fields | None:
        """Return data of an entry as a model, None where it is not valid; what is wrong is added."""
        try:
            return model.model_validate(data)
        except ValidationError as error:
            add_model_problems(self, entry, error, label, model)
            return None

    @property
    def types(self) -> AssertTypes:
        assert self.assert_types is not None, "this reader was given no types of asserts"
        return self.assert_types

    @property
    def clean(self) -> bool:
        return not self.problems

    def folders(self, entry: ConfigEntry) -> list[Path]:
        """Return where files named in an entry are looked for: beside the file that names them, then beside the suite."""
        own = Path(entry.source.path).parent
        return [own] if own == self.suite_folder else [own, self.suite_folder]

    def find_folder(self, entry: ConfigEntry, reference: str, label: str, *keys: str) -> str:
        """Return the absolute path of a folder named in an entry; where there is none, that is a problem at ``keys``."""
        with self.placing(entry, label, *keys):
            return str(self.files.find(reference, self.folders(entry), folder=True))
        return reference

    def check_program(
        self, script: Sequence[str], entry: ConfigEntry, label: str, key: str, *, folder: str | None = None
    ) -> None:
        """Note a file of a program that is not there. ``folder``: where the program runs, the suite's folder by default."""
        place = Path(folder or self.suite_folder)
        name = missing_file(script, place)
        if name is not None:
            shown = key if key in entry.data else next((own for own in ("command", "path") if own in entry.data), key)
            said = f"{label}: {name!r} does not exist in {place}; write it, or correct the name"
            self.missing.append(entry.problem(said, shown))

    @cached_property
    def top(self) -> Path:
        return repository_of(self.suite_folder)


_DATA_FILES = (".jsonl", ".csv")
_LABEL = re.compile(r"^test '[^']*'|^tests\[\d+\]")


def grouped(problems: Iterable[Problem]) -> list[Problem]:
    """Return problems without repetition; what several lines of a data file have alike is one problem, at the first of them."""
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
# What pydantic calls a mistake, in words; what stands in braces is of its context.
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
# Those that do not say what was written instead.
_ALONE = {
    "string_too_short": "must not be empty",
    "too_short": "must not be empty",
    "string_too_long": "must have at most {max_length} characters",
    "union_tag_invalid": "must be one of {expected_tags}, not {tag!r}",
}


def add_model_problems(
    reader: Reader, entry: ConfigEntry, error: ValidationError, label: str, model: type[BaseModel]
) -> None:
    """Add the problems of a pydantic error, each at its place, in plain words and with the thing they are about."""
    older = getattr(model, "older_names", {})
    found = error.errors(include_url=False)
    # A key that is misspelt is not missing too: one cause, one finding.
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
            known = sorted(names_at(model, location[:-1]))
            reader.fail(
                entry, f"{label}: unknown key {name!r}{did_you_mean(str(location[-1]), known)}", *place, key=True
            )
        elif item["type"] in ("missing", "union_tag_not_found"):
            place = _written(entry.data, location[:-1], older)
            reader.fail(entry, f"{label}: {_dotted((*place, location[-1]))} is required", *place)
        else:
            prefix = f"{name}: " if name else ""
            reader.fail(entry, f"{label}: {prefix}{_text(item, location)}", *place)


def _written(data: Any, location: tuple[str | int, ...], older: Mapping[str, str]) -> tuple[str | int, ...]:
    """Return a place as the file spells it: fields by the name it uses, without the members of unions that pydantic names."""
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
    return f"{said}, not {_shown(item.get('input'))}{braces_hint(item.get('input'))}"


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
