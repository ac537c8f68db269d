"""What every part of an import shares: the files, where the result will stand, and what could not be taken over."""

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.suites.format.files import FileError, is_pattern
from persona_pipeline.suites.format.loading.external_tests import check_numbers, read_document
from persona_pipeline.suites.format.problems import ConfigEntry, Reader

PROMPTFOO, AGENTV, PYDANTIC_EVALS = "promptfoo", "agentv", "pydantic-evals"


@dataclass
class Findings:
    """One import. ``reader`` collects: its problems end it, its warnings are what has no counterpart or means something else.

    ``out``: the folder the suite will stand in, which its paths start from; ``origin``: whose file it is.
    """

    reader: Reader
    out: Path
    origin: str

    @property
    def promptfoo(self) -> bool:
        return self.origin == PROMPTFOO

    @property
    def strict(self) -> bool:
        """Whether every assert must pass for its test to pass."""
        return self.origin != AGENTV

    def none(self, entry: ConfigEntry, what: str, *keys: str | int, remedy: str = "") -> None:
        """Name something that has no counterpart."""
        self.reader.warn(entry, f"{what} has no counterpart{'; ' + remedy if remedy else ''}", *keys, key=True)

    def differs(self, entry: ConfigEntry, what: str, *keys: str | int) -> None:
        """Name something that is taken over and means something else."""
        self.reader.warn(entry, what, *keys, key=True)

    def leftovers(self, entry: ConfigEntry, known: Collection[str], what: str = "") -> None:
        """Name every key of a mapping that nobody reads. Keys without a value say nothing."""
        for key, value in entry.data.items():
            if key not in known and value is not None:
                self.none(entry, f"{what}{key}", key)

    def paths(self, entry: ConfigEntry, reference: str) -> list[Path]:
        """Return the files that a reference or a pattern names; what cannot be used is a finding."""
        files, folders = self.reader.files, self.reader.folders(entry)
        try:
            return files.glob(reference, folders) if is_pattern(reference) else [files.find(reference, folders)]
        except FileError as problem:
            self.reader.warn(entry, str(problem))
            return []

    def text(self, entry: ConfigEntry, reference: str, *keys: str | int) -> str | None:
        """Return the text of a file; where there is none, that is a finding."""
        read = self._read(entry, reference, *keys)
        return None if read is None else read[1]

    def _read(self, entry: ConfigEntry, reference: str, *keys: str | int) -> tuple[Path, str] | None:
        try:
            path = self.reader.files.find(reference, self.reader.folders(entry))
            return path, self.reader.files.read(path)
        except FileError as problem:
            return self.reader.warn(entry, str(problem), *keys)

    def document(self, entry: ConfigEntry, reference: str, *keys: str | int) -> ConfigEntry | None:
        """Return what a YAML or JSON file holds, with the places of its own; where there is none, that is a finding."""
        try:
            read = self._read(entry, reference, *keys)
            return None if read is None else whole(read[1], read[0])
        except ConfigError as error:
            self.reader.warnings += error.problems
            return None

    def relocated(self, entry: ConfigEntry, reference: str) -> str:
        """Return a path as the suite must write it: from its own folder on. ``reference``: from the file that holds it on."""
        path = Path(entry.source.path).parent / reference.removeprefix("file://")
        return Path(os.path.relpath(os.path.normpath(path), self.out)).as_posix()


def whole(text: str, path: Path) -> ConfigEntry:
    document = read_document(path, text)
    check_numbers(document.data, document)
    return ConfigEntry(document.data, document)


def listed(value: Any) -> list[Any]:
    """Return a list as it is, and anything else as a list of it; of nothing an empty one."""
    return value if isinstance(value, list) else [] if value is None else [value]


def first_of(data: dict[str, Any], *names: str) -> str | None:
    return next((name for name in names if data.get(name) is not None), None)


def children(entry: ConfigEntry, key: str) -> list[ConfigEntry]:
    """Return the entries of a list at a key, or of the one value that stands there; none where there is nothing."""
    return [] if entry.data.get(key) is None else items(entry.child(key))


def items(entry: ConfigEntry) -> list[ConfigEntry]:
    """Return the entries of a list, and of anything else the one."""
    return [entry.child(index) for index in range(len(entry.data))] if isinstance(entry.data, list) else [entry]
