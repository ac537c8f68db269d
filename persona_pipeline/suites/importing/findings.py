"""The state of an import: values with their places and the keys that were read, and access to files.

Rules read keys through ``FilePart``. ``Findings.unread`` reports every other key, so no list of known keys is needed.
"""

import os
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from persona_pipeline.base.documents.yaml import Location
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.suites.format.files import FileError, is_pattern
from persona_pipeline.suites.format.problems import ConfigEntry, Reader
from persona_pipeline.suites.format.suite import read_document

PROMPTFOO, AGENTV, PYDANTIC_EVALS = "promptfoo", "agentv", "pydantic-evals"
# A file of code, optionally with the name of a function.
PROGRAM = re.compile(r"\.(js|cjs|mjs|ts|py|rb)(:\w+)?$")
# Names of other tools and their counterparts.
TABLES = tomllib.loads((Path(__file__).parent / "data" / "tables.toml").read_text(encoding="utf-8"))
# Limits of an import: a file may refer to itself and combine its lists.
MOST = {"files": 10_000, "tests": 100_000, "groups": 200_000, "findings": 200_000, "characters": 64_000_000}


@dataclass
class Findings:
    """One import.

    Attributes:
        reader: its problems end the import; its warnings are the findings.
        out: folder of the suite, from which its paths start.
        origin: the tool of the file.
        groups: places of the groups around the current assert.
    """

    reader: Reader
    out: Path
    origin: str
    parts: dict[tuple[int, Location, int], "FilePart"] = field(default_factory=dict)
    documents: dict[str, ConfigEntry] = field(default_factory=dict)
    spent: Counter[str] = field(default_factory=Counter)
    groups: list[tuple[int, Location]] = field(default_factory=list)

    @property
    def promptfoo(self) -> bool:
        return self.origin == PROMPTFOO

    @property
    def strict(self) -> bool:
        """Whether a test passes only if all its asserts pass."""
        return self.origin != AGENTV

    def part(self, entry: ConfigEntry, label: str = "{}") -> "FilePart":
        """Return the part at a place, one per place. ``label``: name of its keys, where ``{}`` is the key."""
        if not isinstance(entry.data, dict):
            return FilePart(self, entry, label)
        # Data that is derived from a place, such as a template with further keys, is a separate part.
        return self.parts.setdefault((id(entry.source), entry.location, id(entry.data)), FilePart(self, entry, label))

    def unread(self) -> None:
        """Report every key that no rule read. Keys without a value are ignored."""
        for part in list(self.parts.values()):
            for key, value in part.data.items():
                if value is not None and key not in part.used:
                    part.none(part.label.replace("{}", key), key)

    def spend(self, what: str, amount: int, part: "FilePart") -> None:
        """Count towards a limit of ``MOST``. Raises ``ConfigError``: the limit is exceeded."""
        self.spent[what] += amount
        if self.spent[what] > MOST[what]:
            said = f"leads to more than {MOST[what]:,} {what}; split the file, or import less of it"
            raise ConfigError(part.entry.problem(said))


@dataclass(eq=False)
class FilePart:
    """A value of a file with its place and its read keys."""

    findings: Findings
    entry: ConfigEntry
    label: str = "{}"
    used: set[str | int] = field(default_factory=set)

    @property
    def data(self) -> Any:
        return self.entry.data

    def first(self, *names: str) -> str | None:
        """Return the first of these keys with a value, without marking it as read."""
        data = self.data if isinstance(self.data, dict) else {}
        return next((name for name in names if data.get(name) is not None), None)

    def take(self, *names: str) -> Any:
        """Return the value of the first of these keys that has one, and mark it as read."""
        name = self.first(*names)
        if name is None:
            return None
        self.used.add(name)
        return self.data[name]

    def text(self, *names: str) -> str | None:
        """Return a text like ``take``; another type is a finding."""
        return self._typed(names, str, "text")

    def mapping(self, *names: str) -> dict[str, Any]:
        """Return a mapping like ``take``, by default an empty one; another type is a finding."""
        return self._typed(names, dict, "a mapping") or {}

    def number(self, *names: str) -> float | None:
        """Return a number like ``take``; another type is a finding."""
        return self._typed(names, int | float, "a number")

    def _typed(self, names: tuple[str, ...], kind: Any, said: str) -> Any:
        value = self.take(*names)
        if value is None or (isinstance(value, kind) and not isinstance(value, bool)):
            return value
        return self.warn(f"{self.first(*names)} must be {said}, and is left out", self.first(*names) or "")

    def child(self, *keys: str | int, label: str = "{}") -> "FilePart":
        """Return the part of an existing value inside this one, and mark it as read."""
        self.used.add(keys[0])
        return self.findings.part(self.entry.child(*keys), label)

    def inner(self, name: str, label: str = "{}") -> "FilePart | None":
        """Return the part of a mapping at a key; None without one. Another type is a finding."""
        return self.child(name, label=label) if self.mapping(name) else None

    def made(self, data: Any) -> "FilePart":
        """Return derived data as a part at this place."""
        return self.findings.part(ConfigEntry(data, self.entry.source, self.entry.location))

    def valid(self, data: Any, read: Callable[[Reader, ConfigEntry], Any]) -> bool:
        """Return whether converted data is valid in a suite; its problems are findings at this place."""
        reader = Reader(self.findings.reader.files, self.findings.out)
        found = read(reader, ConfigEntry(data, self.entry.source, self.entry.location)) is not None
        self.findings.reader.warnings += () if found else reader.problems
        return found

    def items(self, label: str = "{}") -> list["FilePart"]:
        """Return the parts of a list; any other value is the only part."""
        several = range(len(self.data)) if isinstance(self.data, list) else None
        return [self] if several is None else [self.child(index, label=label) for index in several]

    def each(self, *names: str, label: str = "{}") -> list["FilePart"]:
        """Return the parts of the value at the first of these keys that has one."""
        name = self.first(*names)
        return [] if name is None else self.child(name, label=label).items(label)

    def followed(self) -> "FilePart | None":
        """Return the content of the file that a text names, or the value itself; None, with a finding, without the file."""
        return self.file(self.data).document(self.label) if isinstance(self.data, str) else self

    def none(self, what: str, *keys: str | int, remedy: str = "") -> None:
        """Report a part without a counterpart; without ``keys``, the whole part."""
        self.warn(f"{what} has no counterpart{'; ' + remedy if remedy else ''}", *keys)

    def warn(self, said: str, *keys: str | int) -> None:
        """Report a part that has another meaning here or cannot be used; without ``keys``, the whole part."""
        self.used.update(keys[:1])
        self.findings.spend("findings", 1, self)
        self.findings.reader.warn(self.entry, said, *keys, key=bool(keys))

    def name_numbers(self, value: Any, *keys: str | int) -> None:
        """Report data that becomes text and has a number that JavaScript spells differently."""
        if self.findings.origin != PYDANTIC_EVALS and _has_odd_number(value):
            self.warn("a number such as 1.0 or 1e-07 is written so here, there as 1 and 1e-7; quote it", *keys)

    def dropped(self, what: str, remedy: str = "") -> None:
        """Report this part with all its keys as one without a counterpart."""
        self.used.update(self.data if isinstance(self.data, dict) else ())
        self.none(what, remedy=remedy)

    def file(self, text: str, *keys: str | int) -> "FileReference":
        """Return a reference to the path in a text. ``keys``: the place of the text."""
        return FileReference(self, text, keys)


@dataclass(frozen=True)
class FileReference:
    """A path that a file names. Only its methods open the file, and only inside the eval file's repository.

    A refused path is a finding, and the suite does not contain it.
    """

    part: FilePart
    text: str
    keys: tuple[str | int, ...] = ()

    @property
    def path(self) -> PurePosixPath:
        """The path as a name, for its ending and its stem."""
        return PurePosixPath(self.text.removeprefix("file://"))

    def all(self) -> "list[FileReference] | None":
        """Return the files that match a pattern, or the plain path; None, with a finding, if it is refused."""
        if not is_pattern(self.text):
            return [self]
        findings = self.part.findings
        try:
            paths = findings.reader.files.glob(self._spelled(), self._folders())
        except FileError as problem:
            return self.part.warn(str(problem), *self.keys)
        return [FileReference(self.part, str(path), self.keys) for path in paths]

    def above(self, *names: str) -> "Iterator[FileReference]":
        """Yield these files in a folder of this name: next to the file, then above it, up to the repository's top."""
        paths = (folder / self.text / name for folder in self._folders() for name in names)
        yield from (FileReference(self.part, str(path)) for path in paths if path.exists())

    def read(self) -> str | None:
        """Return the text of the file; None, with a finding, if it cannot be read."""
        found = self.opened()
        return found and found[1]

    def opened(self) -> tuple[str, str] | None:
        """Return path and text of the file; None, with a finding, if it cannot be read."""
        findings = self.part.findings
        findings.spend("files", 1, self.part)
        try:
            path = findings.reader.files.find(self._spelled(), self._folders())
            return str(path), findings.reader.files.read(path)
        except FileError as problem:
            return self.part.warn(str(problem), *self.keys)

    def document(self, label: str = "{}", *, quiet: bool = False) -> FilePart | None:
        """Return the content of a YAML or JSON file; None, with a finding, if it cannot be read.

        ``quiet``: ignore its syntax errors.
        """
        findings, found = self.part.findings, self.opened()
        if found is None:
            return None
        try:
            if found[0] not in findings.documents:
                findings.documents[found[0]] = whole(found[1], Path(found[0]))
            return findings.part(findings.documents[found[0]], label)
        except ConfigError as error:
            findings.reader.warnings += () if quiet else error.problems
            return None

    def written(self, *, folder: str = "") -> str | None:
        """Return the path relative to the suite's folder; None, with a finding, if it is outside the repository.

        ``folder``: key that names an existing folder.
        """
        files = self.part.findings.reader.files
        try:
            candidates = files.candidates(self._spelled(), self._folders())
            found = next((path for path in candidates if path.exists()), candidates[0])
            files.check_place(found, self.text)
            if folder and not found.is_dir():
                raise FileError(f"{folder}: folder {self.text!r} does not exist")
        except (FileError, OSError, ValueError) as problem:
            return self.part.warn(f"{problem}; it is left out", *self.keys)
        return Path(os.path.relpath(os.path.normpath(found), self.part.findings.out)).as_posix()

    def _folders(self) -> list[Path]:
        reader = self.part.findings.reader
        if self.part.findings.origin != AGENTV:
            return reader.folders(self.part.entry)
        own = Path(self.part.entry.source.path).parent
        return [own, *(above for above in own.parents if above.is_relative_to(reader.top))]

    def _spelled(self) -> str:
        # In AgentV a path with a leading / starts at the top of the repository.
        name = self.text.removeprefix("file://")
        top = self.part.findings.reader.top
        from_top = self.part.findings.origin == AGENTV and not PurePosixPath(name).is_relative_to(top)
        return name.lstrip("/") if from_top and name.startswith("/") else self.text


def whole(text: str, path: Path) -> ConfigEntry:
    """Return the content of another tool's file. Raises ``ConfigError``: it is not valid."""
    document = read_document(path, text, merge=True)
    return ConfigEntry(document.data, document)


def _has_odd_number(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(map(_has_odd_number, value.values() if isinstance(value, dict) else value))
    return isinstance(value, float) and (value.is_integer() or "e" in repr(value))


def listed(value: Any) -> list[Any]:
    """Return a list unchanged, any other value as a list with that value, and None as an empty list."""
    return value if isinstance(value, list) else [] if value is None else [value]
