"""Files, folders and links that a verdict rests on: how they look, and the records of what programs opened.

Records are in ``.persona/opened``, a file a suite. Records that git tracks are not believed: they came with the repository.
"""

import contextlib
import itertools
import json
import os
import stat as modes
import sys
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from persona_pipeline.base.documents.json import content_hash
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.files import digest_within, look_of, read_regular, regular_digest
from persona_pipeline.suites.sandbox.hook.sitecustomize import PACKAGES
from persona_pipeline.suites.sandbox.opened import Opened
from persona_pipeline.world.changes import ask_git

# A kind and a path. ``file``: its content, or that it does not exist. ``link``: where it leads. ``folder``: the names in it;
# ``modules``: those that can be imported. ``tree``: all files below. ``environment``: the versions of its distributions.
# ``whole``: all files of a repository. ``gone``: a folder whose files are entries, so that a removed one is seen.
Entry = tuple[str, Path]
ABSENT, FOLDER, OUTSIDE = "absent", "folder", "outside the repository"
_MOST_FILES, _MOST_BYTES = 50_000, 20_000_000
_LEFT_ENDINGS = (".pyc", ".log", ".tmp", ".db", ".db-wal", ".db-shm", ".db-journal", ".sqlite", ".sqlite3")
_LEFT_FOLDERS = frozenset({"__pycache__", "node_modules"})
IMPORTED = (".py", ".pyc", ".so", ".pyd")
_MACHINE = tuple(
    map(Path, ("/proc", "/dev", "/sys", "/etc", "/usr", "/lib", "/lib64", "/bin", "/sbin", "/opt", "/var", "/run"))
)


@dataclass
class Places:
    """How entries look, each looked at once.

    ``roots``: the resolved folders that may be looked into. ``state``: where runs keep what can be thrown away. ``written``: files
    that the run writes, which no result rests on.
    """

    top: Path
    roots: list[Path]
    state: Path
    written: set[Path]
    _looks: dict[Entry, str] = field(default_factory=dict)
    _unseen: dict[Entry, str] = field(default_factory=dict)
    _files: dict[Path, str] = field(default_factory=dict)

    @cached_property
    def everything(self) -> frozenset[Entry]:
        """All files of the repository and of the other folders that may be looked into."""
        outer = [
            root for root in self.roots if not any(root != other and root.is_relative_to(other) for other in self.roots)
        ]
        return frozenset(("whole", root) for root in outer)

    def look(self, entry: Entry) -> str:
        """Return how an entry looks: a digest or a few words."""
        if entry not in self._looks:
            self._looks[entry] = self._look(entry)
        return self._looks[entry]

    def unseen(self, entry: Entry) -> str:
        """Return why an entry cannot be looked at, ``""`` where it can."""
        self.look(entry)
        return self._unseen.get(entry, "")

    def portable(self, looks: Mapping[Entry, str]) -> list[list[str]]:
        return sorted([kind, self.shown(path), look] for (kind, path), look in looks.items())

    def shown(self, path: Path) -> str:
        return path.relative_to(self.top).as_posix() if path.is_relative_to(self.top) else path.as_posix()

    def is_inside(self, path: Path) -> bool:
        return any(path.is_relative_to(root) for root in self.roots)

    def is_named(self, path: Path, *, outside: bool) -> bool:
        """Return whether a file exists at a path, in the repository or, if ``outside``, elsewhere but in the system's folders."""
        real = path.resolve()
        return real.is_file() and self.is_inside(real) if not outside else path.exists() and not self._is_machines(real)

    def counts(self, path: Path) -> bool:
        """Return whether a file that git does not have may be one to read, and not what tools and runs leave."""
        return (
            not path.name.endswith(_LEFT_ENDINGS) and path not in self.written and not path.is_relative_to(self.state)
        )

    def _look(self, entry: Entry) -> str:
        kind, path = entry
        if kind == "whole":
            names = self._names(path) if entry in self.everything else None
            if names is None or len(names) > _MOST_FILES:
                return self._cannot(entry, f"more than {_MOST_FILES:,} files")
            return content_hash([[name.relative_to(path).as_posix(), self._own(name)] for name in sorted(names)])
        if kind == "environment":
            return content_hash(_listed(path, (".dist-info", ".egg-info", ".pth", ".egg-link")))
        if kind == "gone":
            return ""
        if not self.is_inside(path.resolve() if kind != "link" else path.parent.resolve()):
            return self._cannot(entry, OUTSIDE)
        if kind == "link":
            return str(path.readlink()) if path.is_symlink() else ABSENT
        if kind == "tree":
            files = [name for name in path.rglob("*") if name.is_symlink() or not name.is_dir()]
            return content_hash([[name.relative_to(path).as_posix(), self._own(name)] for name in sorted(files)])
        if kind == "modules":
            return content_hash(_listed(path, IMPORTED, folders=True))
        if kind == "folder":
            return content_hash(
                [name for name in _listed(path) if self.counts(path / name.rstrip("/")) and name != ".git/"]
            )
        return self._file(entry)

    def _file(self, entry: Entry) -> str:
        path = entry[1]
        if path not in self._files or path.is_symlink():
            try:
                digest = FOLDER if path.is_dir() else digest_within(path, self.roots)
            except OSError as error:
                digest = ABSENT if isinstance(error, FileNotFoundError | NotADirectoryError) else "unreadable"
            if digest is None:
                return self._cannot(entry, "no regular file of at most 64 MB")
            self._files[path] = digest
        return self._files[path]

    def _cannot(self, entry: Entry, why: str) -> str:
        self._unseen[entry] = f"{entry[1]} ({why})"
        return why

    def _own(self, path: Path) -> str:
        """Return how a file of a listing looks, no link followed."""
        if path not in self._files:
            try:
                stat = path.lstat()
                if modes.S_ISLNK(stat.st_mode):
                    return f"link {path.readlink()}"
                if modes.S_ISDIR(stat.st_mode):
                    return content_hash([[str(name), self._own(name)] for name in self._names(path) if name != path])
                self._files[path] = regular_digest(str(path), stat) or look_of(stat)
            except OSError as error:
                return ABSENT if isinstance(error, FileNotFoundError) else "unreadable"
        return self._files[path]

    def _names(self, root: Path) -> list[Path]:
        """Return all files below a folder that git has or would take; without git all but hidden ones and what tools leave."""
        try:
            tracked = [root / name for name in git_names(root, "--cached")]
            new = [root / name for name in git_names(root, "--others", "--exclude-standard")]
            return [*tracked, *(path for path in new if self.counts(path))]
        except ConfigError:
            return [*itertools.islice(self._walked(root), _MOST_FILES + 1)]

    def _walked(self, root: Path) -> Iterable[Path]:
        for place, folders, names in os.walk(root):
            folders[:] = [
                name
                for name in folders
                if name[0] != "." and name not in _LEFT_FOLDERS and not Path(place, name, "pyvenv.cfg").exists()
            ]
            yield from (path for name in names if name[0] != "." and self.counts(path := Path(place, name)))

    def entries_of(self, opened: Opened) -> set[Entry]:
        """Return what programs opened as entries: real paths, and the links that lead to them."""
        found: set[Entry] = {*self.everything} if opened.is_whole else set()
        for kind, text in opened.places:
            real, links = lead(text)
            packages = next((part for part in PACKAGES if part in f"{real}/"), None)
            if packages is not None:
                found.add(("environment", Path(str(real).partition(packages)[0] + packages)))
            elif kind == "early":
                found |= self.everything if self.is_inside(real) else set()
            elif not self.is_inside(real):
                if kind == "file" and real.is_file() and not self._is_machines(real):
                    found.add(("file", real))
            elif not any(real.is_relative_to(self.state / name) for name in ("workspaces", "cache")):
                found.add(("file" if kind == "asked" else kind, real))
            found |= {("link", link) for link in links if self.is_inside(link)}
        return found

    def _is_machines(self, path: Path) -> bool:
        """Return whether a file outside the repository belongs to the machine or the user's settings, not to a program."""
        if self.is_inside(path):
            return False
        home = Path.home()
        is_hidden = path.is_relative_to(home) and path.relative_to(home).as_posix().startswith(".")
        places = (*_MACHINE, Path(sys.prefix), Path(sys.base_prefix))
        return is_hidden or any(path.is_relative_to(place) for place in places)


def git_names(root: Path, *which: str) -> list[str]:
    """Return paths that git lists below a folder. Raises ``ConfigError``: it is no git repository."""
    listed = ask_git(root, "ls-files", "-z", *which)
    return [name.decode("utf-8", "surrogateescape") for name in listed.split(b"\0") if name]


def _listed(folder: Path, endings: tuple[str, ...] = ("",), *, folders: bool = False) -> list[str]:
    """Return the sorted names in a folder, those of folders with a slash. ``folders``: all folders, whatever their ending."""
    try:
        with os.scandir(folder) as found:
            names = [entry.name + ("/" if entry.is_dir() else "") for entry in found if entry.name != "__pycache__"]
    except OSError:
        return [ABSENT]
    return sorted(name for name in names if name.rstrip("/").endswith(endings) or (folders and name[-1] == "/"))


def lead(text: str, most: int = 40) -> tuple[Path, list[Path]]:
    """Return where an absolute path leads, and the links on the way."""
    parts = [*Path(text).parts]
    real, links = Path(parts.pop(0)), list[Path]()
    while parts:
        part = parts.pop(0)
        real = real.parent if part == ".." else real / part
        if part != ".." and most and real.is_symlink():
            most -= 1
            links.append(real)
            target = real.parent / real.readlink()
            parts[:0] = target.parts[1:]
            real = Path(target.anchor)
    return real, links


@dataclass(frozen=True)
class Record:
    """What programs opened, and how it looked. ``since``: the digest of what was known before they ran."""

    since: str
    looks: Mapping[Entry, str]


@dataclass
class Records:
    """The records of a suite: read once, added to line by line, so that runs at the same time lose none."""

    places: Places
    suite: Path
    _lock: Any = field(default_factory=threading.Lock)
    _written: dict[str, Mapping[Entry, str]] = field(default_factory=dict)

    @cached_property
    def path(self) -> Path:
        return self.places.state / "opened" / f"{content_hash(self.places.shown(self.suite.resolve()))[:16]}.jsonl"

    @cached_property
    def _known(self) -> dict[str, Record]:
        found: dict[str, Record] = {}
        with contextlib.suppress(ConfigError):
            if self.path.exists() and git_names(self.path.parent, "--", self.path.name):
                return found
        try:
            lines = read_regular(self.path, _MOST_BYTES, [self.places.state]).splitlines()
        except OSError:
            return found
        for line in lines:
            # A line that a killed run left half written is none.
            with contextlib.suppress(ValueError, TypeError, KeyError):
                self._read(found, json.loads(line))
        return found

    def _read(self, found: dict[str, Record], row: Mapping[str, Any]) -> None:
        if "looks" in row:
            entries = [
                ((str(kind), self.places.top / os.path.normpath(path)), str(look)) for kind, path, look in row["looks"]
            ]
            self._written[row["id"]] = dict(entries)
        key, since, looks = row["key"], row["since"], self._written[row["id"]]
        earlier = found.get(key)
        # Runs from the same state may open different files: what a result rests on is all of them.
        joined = {**earlier.looks, **looks} if earlier and earlier.since == since else looks
        found[key] = Record(since, joined)

    def find(self, key: tuple[str, ...]) -> Record | None:
        return self._known.get(json.dumps(key))

    def keep(self, key: tuple[str, ...], since: str, opened: Opened) -> None:
        """Record what programs opened. ``since``: the digest before they ran. Where it cannot be written, nothing is recorded."""
        if not opened.programs:
            return
        looks = {entry: self.places.look(entry) for entry in self.places.entries_of(opened)}
        with self._lock:
            known = self.find(key)
            if known is not None and known.since == since and looks.items() <= known.looks.items():
                return
            name = content_hash(self.places.portable(looks))[:16]
            row: dict[str, Any] = {"key": json.dumps(key), "since": since, "id": name}
            if name not in self._written:
                row["looks"] = self.places.portable(looks)
            self._read(self._known, row)
            with contextlib.suppress(OSError):
                self.path.parent.mkdir(parents=True, exist_ok=True)
                if self.path.exists() and self.path.stat().st_size > _MOST_BYTES // 2:
                    # Without a record the whole repository counts.
                    self.path.unlink()
                with self.path.open("a", encoding="ascii") as stream:
                    stream.write(f"\n{json.dumps(row)}\n")
