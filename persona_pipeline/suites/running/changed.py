"""Which tests of a suite rest on what differs from a commit, and on what of it."""

import io
import json
import re
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.files import repository_of
from persona_pipeline.suites.answering.base import Responses, load_responses
from persona_pipeline.suites.format.models import Suite, Test
from persona_pipeline.suites.format.problems import ConfigEntry
from persona_pipeline.suites.running.basis import ABSENT, Bases, Basis, own_values
from persona_pipeline.suites.running.opening import FILE_NAMES, load_suite, load_targets
from persona_pipeline.suites.running.plan import Targets, targets_of
from persona_pipeline.world.changes import ask_git

_HUNK = re.compile(rb"^@@ -\S+ \+(\d+)", re.MULTILINE)
MOST_NAMED = 5


def why_changed(bases: Bases, tests: Sequence[Test], commit: str) -> dict[str, list[str]]:
    """Return by id which tests rest on something that is new, gone or other than in a commit, each with what that is.

    Uncommitted changes count, and a doubt counts as a change: what lies outside the repository, or is not in git. ``tests``:
    those that would run. ``commit``: such as ``HEAD`` or ``origin/main``.
    """
    top = repository_of(bases.suite.path.parent)
    if not (top / ".git").exists():
        raise ConfigError(f"--changed: {bases.suite.path} stands in no git repository")
    diff = _Diff.since(top, commit)
    before = _before(bases, diff)
    return {test.id: reasons for test in tests if (reasons := list(dict.fromkeys(_reasons(bases, test, diff, before))))}


def changed_line(reasons: Iterable[Iterable[str]], total: int) -> str:
    """Return in one line how many of ``total`` tests rest on what changed, and what that is: of each test what comes first.

    ``reasons``: of each test that does.
    """
    found = [list(item) for item in reasons]
    if not found:
        return f"nothing to run: 0 of {total} tests rest on what changed"
    named = list(dict.fromkeys(item[0] for item in found))
    more = [f"{len(named) - MOST_NAMED} more"] if len(named) > MOST_NAMED else []
    verb = "rests" if len(found) == 1 else "rest"
    return f"{len(found)} of {total} tests {verb} on what changed: {', '.join([*named[:MOST_NAMED], *more])}"


@dataclass
class _Diff:
    """What differs from a commit. ``changed`` and ``known``: paths from the top, the latter all that git has or would take."""

    top: Path
    commit: str
    changed: frozenset[str]
    known: frozenset[str]
    _lines: dict[str, list[int]] = field(default_factory=dict)
    _reasons: dict[int, list[str]] = field(default_factory=dict)

    @classmethod
    def since(cls, top: Path, commit: str) -> "_Diff":
        top = top.resolve()
        named = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{commit}^{{commit}}")
        commit = ask_git(top, *named).decode().strip()
        how = ("--no-ext-diff", "--name-only", "-z", "--no-renames", "--end-of-options")
        differing = _names(ask_git(top, "diff", *how, commit, "--"))
        new = _names(ask_git(top, "ls-files", "--others", "--exclude-standard", "-z"))
        return cls(top, commit, differing | new, _names(ask_git(top, "ls-files", "-z")) | new)

    def name(self, path: Path) -> str | None:
        """Return a path as git has it, None of one outside."""
        return path.relative_to(self.top).as_posix() if path.is_relative_to(self.top) else None

    def spellings(self, path: Path) -> Iterator[str]:
        """Yield a path as git has it, and what it leads to where it is a link."""
        for place in dict.fromkeys((path, path.resolve())):
            name = self.name(place)
            if name is not None:
                yield name

    def place(self, name: str, entry: ConfigEntry | None = None) -> str:
        """Return a file with the first line that differs; ``entry``: from the line on where it stands."""
        if name not in self._lines:
            how = ("diff", "--no-ext-diff", "--no-textconv", "--no-color", "-U0", "--no-renames")
            said = ask_git(self.top, "--literal-pathspecs", *how, self.commit, "--", f"./{name}")
            self._lines[name] = [int(match) for match in _HUNK.findall(said)]
        first = (entry.problem("").line if entry else None) or 0
        lines = self._lines[name]
        line = next((line for line in lines if line >= first), lines[0] if lines else None)
        return f"{name}:{line}" if line else name

    def reasons(self, bases: Bases, part: Basis) -> list[str]:
        """Return why a part is not as it was; many tests share one."""
        if id(part) not in self._reasons:
            self._reasons[id(part)] = [*self._found(bases, part), *part.unseen]
        return self._reasons[id(part)]

    def _found(self, bases: Bases, part: Basis) -> Iterator[str]:
        for path, digest in part.files.items():
            names = list(self.spellings(path))
            for name in names:
                if name in self.changed:
                    yield self.place(name)
            # What merely lies in a program's folder and is kept out of git is made anew at will.
            if part.folder is None and digest != ABSENT and not any(name in self.known for name in names):
                yield f"{path} ({'not in git' if names else 'outside the repository'})"
        folder = None if part.folder is None else self.name(part.folder)
        if folder is not None:
            for name in sorted(self.changed):
                path = self.top / name
                # What is there is one of the files.
                if path.is_relative_to(self.top / folder) and not path.exists() and bases.counts(path):
                    yield name


@dataclass(frozen=True)
class _Before:
    """The suite, its targets and the recorded answers as they stand in the commit, with the folder they were read in."""

    suite: Suite
    targets: Targets | None
    responses: Responses | None
    folder: Path


def _reasons(bases: Bases, test: Test, diff: _Diff, before: _Before | None) -> Iterator[str]:
    """Yield what of all that a test rests on is not as it was."""
    source = Path(test.entry.source.path).resolve() if test.entry else bases.suite.path.resolve()
    written = diff.name(source) or str(source)
    named = targets_of(bases.suite, test, bases.options, bases.targets, bases.responses)
    if before is None:
        yield written
    else:
        old = next((item for item in before.suite.tests if item.id == test.id), None)
        own = _text(own_values(bases.suite, test), diff.top)
        if old is None or own != _text(own_values(before.suite, old), before.folder):
            yield diff.place(written, test.entry)
        elif list(named) != _targets_before(before, old, bases):
            yield diff.place(diff.name(bases.suite.path.resolve()) or written)
        if before.responses is not None and bases.responses is not None:
            keys = [*(f"{test.id}@{name}" for name in named), test.id]
            if any(bases.responses.answers.get(key) != before.responses.answers.get(key) for key in keys):
                yield diff.place(diff.name(Path(bases.responses.source).resolve()) or bases.responses.source)
    for name in named:
        for part in bases.of(test, name).everything():
            yield from diff.reasons(bases, part)
            for asked in part.parts:
                if asked.startswith("target "):
                    yield from _entry(bases, asked.removeprefix("target "), diff, before)


def _entry(bases: Bases, name: str, diff: _Diff, before: _Before | None) -> Iterator[str]:
    """Yield why a target is not who it was: its entry, its place, what it may read of the environment."""
    targets = bases.targets
    entry = targets.entries.get(name) if targets else None
    if targets is None or entry is None:
        return
    path = Path(targets.path).resolve()
    shown = diff.name(path)
    old = before.targets.entries.get(name) if before and before.targets else None
    if shown is None:
        yield f"{path} (outside the repository)"
    elif (
        before is None
        or before.targets is None
        or old is None
        or _text([entry.data, path], diff.top) != _text([old.data, before.targets.path], before.folder)
    ):
        yield diff.place(shown, entry)
    if "${{" in json.dumps(entry.data, default=str):
        for folder in (path.parent, *path.parents):
            name = diff.name(folder / ".env") or ""
            if name in diff.changed:
                yield diff.place(name)


def _targets_before(before: _Before, old: Test, bases: Bases) -> list[str | None]:
    try:
        return list(targets_of(before.suite, old, bases.options, before.targets, bases.responses))
    except ConfigError:
        return []


def _before(bases: Bases, diff: _Diff) -> _Before | None:
    """Return the suite as it stands in the commit, with the targets it had there; None where it cannot be read."""
    suite, top = bases.suite, diff.top
    own = suite.path.resolve()
    places = {path.resolve().parent.relative_to(top) for path in (*suite.files, suite.path)}
    there = _names(ask_git(top, "ls-tree", "-r", "--name-only", "-z", diff.commit))
    above = [folder for folder in (own.parent, *own.parent.parents) if folder.is_relative_to(top)]
    files = [diff.name(folder / name) or "" for folder in above for name in FILE_NAMES]
    if bases.targets is not None and bases.targets.path:
        files.insert(0, diff.name(Path(bases.targets.path).resolve()) or "")
    answers = diff.name(Path(bases.responses.source).resolve()) if bases.responses is not None else None
    wanted = [name for name in dict.fromkeys([*files, answers or ""]) if name in there]
    with tempfile.TemporaryDirectory(prefix="persona-suite-") as name:
        folder = Path(name).resolve()
        try:
            paths = [f"./{path}" for path in (*_outermost(places), *wanted)]
            archive = ask_git(top, "--literal-pathspecs", "archive", "--format=tar", diff.commit, *paths)
            with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
                tar.extractall(folder, filter="data")
            loaded = load_suite(folder / own.relative_to(top), [folder])
            targets = next((item for item in files if item in there), None)
            return _Before(
                loaded,
                None if targets is None else load_targets(folder / targets),
                load_responses(folder / answers) if answers in there and answers else None,
                folder,
            )
        except (ConfigError, OSError, tarfile.TarError):
            return None


def _outermost(folders: Iterable[Path]) -> list[Path]:
    found = sorted(folders)
    return [path for path in found if not any(path != other and path.is_relative_to(other) for other in found)]


def _names(listed: bytes) -> frozenset[str]:
    return frozenset(name.decode("utf-8", "surrogateescape") for name in listed.split(b"\0") if name)


def _text(data: Any, top: Path) -> str:
    """Return data as text in which the folder it was read in does not show."""
    return json.dumps(data, sort_keys=True, default=str).replace(str(top.resolve()), "").replace(str(top), "")
