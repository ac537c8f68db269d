"""How files and folders look that a verdict rests on, and the records of what programs opened.

Records are in ``.persona/opened``, a file for each program of a test. Where git tracks one, they are not believed: they came with
the repository.
"""

import contextlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from persona_pipeline.base.documents.json import content_hash, write_atomically
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.files import digest_within, look_of, read_regular
from persona_pipeline.suites.sandbox.processes import Opened
from persona_pipeline.world.changes import ask_git

# An absolute path, and what of it counts. "": the file's content, or that there is none. "**": all files below; "git": those that
# git has or would take. "*": the names in the folder; "*.py": those that can be imported; "*-info": those of distributions.
Entry = tuple[str, str]
ABSENT, UNSEEN = "absent", "unseen"
_IMPORTED = (".py", ".pyc", ".so", ".pyd")
_LEFT = ("__pycache__", "node_modules", "site-packages")
_PACKAGES = ("/site-packages", "/dist-packages")
# What belongs to the machine and not to a program.
_MACHINE = (
    *("/proc", "/dev", "/sys", "/etc", "/usr", "/lib", "/lib64", "/opt", "/var", "/run"),
    sys.prefix,
    sys.base_prefix,
)


@dataclass
class Looks:
    """How entries look, each looked at once.

    ``roots``: the resolved folders that may be looked into. ``state``: where runs keep what can be thrown away. ``written``: files
    that the run writes, which no result rests on.
    """

    top: Path
    roots: list[Path]
    state: Path
    written: set[Path]
    _known: dict[Entry, str] = field(default_factory=dict)
    _records: dict[str, dict[Entry, str]] = field(default_factory=dict)

    @cached_property
    def everything(self) -> set[Entry]:
        """All files of the repository and of the other folders that may be looked into."""
        return {(str(root), "git") for root in self.roots}

    def of(self, entry: Entry) -> str:
        """Return how an entry looks: a digest or a word."""
        if entry not in self._known:
            path, kind = entry
            real = os.path.realpath(path)
            if kind != "*-info" and not self.is_inside(real):
                self._known[entry] = UNSEEN
            elif real != path:
                self._known[entry] = self.of((real, kind))
            else:
                self._known[entry] = self._look(path, kind)
        return self._known[entry]

    def digest(self, entries: Iterable[Entry]) -> str:
        """Return a digest of how entries look, the same wherever the repository lies."""
        return content_hash(sorted([self.shown(path), kind, self.of((path, kind))] for path, kind in entries))

    def shown(self, path: str) -> str:
        """Return a path as it is kept: from the top with a dot, any other as it is."""
        return f".{path.removeprefix(str(self.top))}" if Path(path).is_relative_to(self.top) else path

    def is_inside(self, path: str) -> bool:
        return any(Path(path).is_relative_to(root) for root in self.roots)

    def is_part(self, path: str, kind: str) -> bool:
        """Return whether a file or a folder counts in a listing of this kind, and is none that runs leave."""
        place = Path(path)
        if place in self.written or place.is_relative_to(self.state) or place.name in ("__pycache__", ".git"):
            return False
        if kind == "*.py":
            return place.suffix in _IMPORTED or place.is_dir()
        return kind in ("git", "**") or path.endswith(kind[1:])

    def _look(self, path: str, kind: str) -> str:
        try:
            if kind in ("git", "**") and not Path(path).is_file():
                names = sorted({*(_in_git(path) if kind == "git" else _below(path))})
                parts = [name for name in names if self.is_part(f"{path}/{name}", kind)]
                return content_hash([[name, self._listed(f"{path}/{name}", kind)] for name in parts])
            if kind.startswith("*") and kind != "**":
                return content_hash(sorted(item.name for item in Path(path).iterdir() if self.is_part(str(item), kind)))
            return "folder" if Path(path).is_dir() else digest_within(path, self.roots) or look_of(Path(path).stat())
        except OSError as error:
            return ABSENT if isinstance(error, FileNotFoundError | NotADirectoryError) else "unreadable"

    def _listed(self, path: str, kind: str) -> str:
        """Return how a file of a folder looks, no link followed."""
        if os.path.islink(path):  # noqa: PTH114
            return f"link {os.readlink(path)}"  # noqa: PTH115
        return self.of((path.rstrip("/"), kind if Path(path).is_dir() else ""))

    def find(self, key: str) -> dict[Entry, str]:
        """Return what a program opened when it last ran, and how that looked; empty without a record."""
        if key not in self._records:
            self._records[key] = {}
            with contextlib.suppress(OSError, ValueError, TypeError):
                rows = json.loads(read_regular(self._path(key), roots=[self.state])) if self._is_believed else []
                self._records[key] = {
                    (f"{self.top}{path[1:]}" if path[0] == "." else path, kind): look for path, kind, look in rows
                }
        return self._records[key]

    def opened(self, key: str) -> set[Entry]:
        """Return what a program opens; the whole repository, if nothing recorded it or something of the record has changed."""
        record = self.find(key)
        return {*record} if record and not self.differing(record) else self.everything

    def differing(self, record: Mapping[Entry, str]) -> list[Entry]:
        return [entry for entry, look in record.items() if self.of(entry) != look]

    def keep(self, key: str, opened: Opened) -> None:
        """Record what a program opened. Where it cannot be written, nothing is recorded."""
        earlier = self.find(key)
        looks = {entry: self.of(entry) for entry in self._entries(opened)}
        # Runs from the same state may open different files: what a result rests on is all of them.
        record = {**earlier, **looks} if not self.differing(earlier) else looks
        if record != earlier:
            self._records[key] = record
            rows: list[Any] = sorted([self.shown(path), kind, look] for (path, kind), look in record.items())
            with contextlib.suppress(OSError):
                write_atomically(self._path(key), json.dumps(rows))

    def _path(self, key: str) -> Path:
        return self.state / "opened" / f"{key}.json"

    @cached_property
    def _is_believed(self) -> bool:
        try:
            return not git_names(self.state, "--", "opened")
        except ConfigError:
            return True

    def _entries(self, opened: Opened) -> Iterator[Entry]:
        yield from self.everything if opened.is_whole else ()
        for path, kind in opened.places:
            packages = next((part for part in _PACKAGES if part in path), None)
            place, real = os.path.normpath(path), os.path.realpath(path)
            if packages is not None:
                yield path.partition(packages)[0] + packages, "*-info"
            elif self.is_inside(real):
                if not any(Path(real).is_relative_to(self.state / name) for name in ("workspaces", "cache", "opened")):
                    yield place if os.path.realpath(place) == real else path, kind
            elif kind == "" and Path(real).is_file():
                # What the machine has is as it is everywhere.
                is_hidden = real.startswith(f"{Path.home()}/.")
                if not (is_hidden or any(Path(real).is_relative_to(place) for place in _MACHINE)):
                    yield real, kind


def git_names(root: Path, *which: str) -> list[str]:
    """Return paths that git lists below a folder. Raises ``ConfigError``: it is no git repository."""
    listed = ask_git(root, "ls-files", "-z", *which)
    return [name for name in listed.decode("utf-8", "surrogateescape").split("\0") if name]


def _in_git(root: str) -> Iterable[str]:
    """Return the files below a folder that git has or would take; without git all but hidden ones and installed ones."""
    try:
        return git_names(Path(root), "--cached", "--others", "--exclude-standard")
    except ConfigError:
        return _below(root, hidden=False)


def _below(root: str, *, hidden: bool = True) -> Iterator[str]:
    for place, folders, names in os.walk(root):
        folders[:] = [name for name in folders if hidden or not (name.startswith(".") or name in _LEFT)]
        links = [name for name in folders if os.path.islink(f"{place}/{name}")]  # noqa: PTH114
        yield from (os.path.relpath(f"{place}/{name}", root) for name in [*names, *links] if hidden or name[0] != ".")
