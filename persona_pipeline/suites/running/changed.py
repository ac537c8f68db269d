"""Tests of a suite that depend on differences from a commit, with the reasons."""

import io
import json
import os
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.files import ask_git, repository_of
from persona_pipeline.base.text import some
from persona_pipeline.suites.answering.base import load_responses
from persona_pipeline.suites.format.models import Test
from persona_pipeline.suites.format.problems import ConfigEntry
from persona_pipeline.suites.running.basis import UNSEEN, Bases, Entry, Looks, git_names
from persona_pipeline.suites.running.opening import FILE_NAMES, load_suite, load_targets
from persona_pipeline.suites.running.plan import targets_of

OUTSIDE = "outside the repository"
# Values of each test, by target.
_Before = dict[str, dict[str | None, dict[str, str]]]


def why_changed(bases: Bases, tests: Sequence[Test], commit: str) -> dict[str, list[str]]:
    """Return the tests that depend on a difference from a commit, by id, with the reasons.

    Uncommitted changes count. A file outside the repository or not in git counts as changed. ``tests``: candidates.
    ``commit``: such as ``HEAD`` or ``origin/main``.
    """
    top = repository_of(bases.suite.path.parent)
    if not (top / ".git").exists():
        raise ConfigError(f"--changed: {bases.suite.path} is in no git repository")
    diff = _Diff.since(top, commit)
    before = _before(bases, diff)
    return {test.id: reasons for test in tests if (reasons := list(dict.fromkeys(_reasons(bases, test, diff, before))))}


def changed_line(reasons: Iterable[Iterable[str]], total: int) -> str:
    """Return one line with the number of tests to run and the first change for each. ``reasons``: those of each such test."""
    found = [list(item) for item in reasons]
    if not found:
        return f"nothing to run: 0 of {total} tests rest on what changed"
    named = list(dict.fromkeys(item[0] for item in found))
    verb = "rests" if len(found) == 1 else "rest"
    return f"{len(found)} of {total} tests {verb} on what changed: {some(named, 5)}"


@dataclass
class _Diff:
    """Differences from a commit, by paths relative to the repository.

    ``changed``: all; ``moved``: new and deleted files; ``known``: files that git tracks or would add.
    """

    top: Path
    commit: str
    changed: frozenset[str]
    moved: frozenset[str]
    known: frozenset[str]
    _reasons: dict[Entry, list[str]] = field(default_factory=dict)

    @classmethod
    def since(cls, top: Path, commit: str) -> "_Diff":
        top = top.resolve()
        named = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{commit}^{{commit}}")
        commit = ask_git(top, *named).decode().strip()
        how = ("--no-ext-diff", "--name-status", "-z", "--no-renames", "--end-of-options")
        words = ask_git(top, "diff", *how, commit, "--").decode("utf-8", "surrogateescape").split("\0")
        differing = dict(zip(words[1::2], words[::2], strict=False))
        new = git_names(top, "--others", "--exclude-standard")
        moved = frozenset((*new, *(name for name, how in differing.items() if how in "AD")))
        return cls(top, commit, frozenset((*differing, *new)), moved, frozenset((*git_names(top), *new)))

    def name(self, path: Path) -> str | None:
        """Return a path as git spells it; None outside the repository."""
        return path.relative_to(self.top).as_posix() if path.is_relative_to(self.top) else None

    def place(self, path: Path, entry: ConfigEntry | None = None) -> str:
        """Return a file as git spells it, with the line of ``entry``."""
        line = f":{entry.problem('').line}" if entry else ""
        return f"{name}{line}" if (name := self.name(path)) else f"{path} ({OUTSIDE})"

    def reasons(self, looks: Looks, entry: Entry) -> list[str]:
        """Return the reasons why an entry differs; many tests share one."""
        if entry not in self._reasons:
            self._reasons[entry] = [*self._found(looks, *entry)]
        return self._reasons[entry]

    def _found(self, looks: Looks, path: str, kind: str) -> Iterator[str]:
        *links, real = led(Path(path))
        for way in (*links, real, *real.parents):
            if self.name(way) in self.changed:
                yield self.place(way)
        # Installed versions are compared with the last run, not with a commit.
        is_asked = kind == "*-info" or (kind == "" and not real.is_file())
        if looks.of((path, kind)) == UNSEEN or (self.name(real) is None and not is_asked):
            yield f"{path} ({OUTSIDE})"
        elif kind:
            for name in sorted(self.changed if kind in ("git", "**") else self.moved):
                if (self.top / name).is_relative_to(real) and looks.is_part(str(self.top / name), kind):
                    yield self.place(self.top / name)
                    break
        elif not is_asked and self.name(real) not in self.known:
            yield f"{path} (not in git)"


def led(path: Path, most: int = 40) -> Iterator[Path]:
    """Yield the links on an absolute path, and its target."""
    for part in reversed((path, *path.parents)):
        if part.is_symlink() and most:
            yield part
            yield from led(part.parent / part.readlink() / path.relative_to(part), most - 1)
            return
    yield Path(os.path.normpath(path))


def _reasons(bases: Bases, test: Test, diff: _Diff, before: _Before | None) -> Iterator[str]:
    """Yield the inputs of a test that differ."""
    written = Path(test.entry.source.path).resolve() if test.entry else bases.suite.path.resolve()
    named = targets_of(bases.suite, test, bases.options, bases.targets, bases.responses)
    old = before.get(test.id) if before is not None else None
    if old is None:
        yield diff.place(written, test.entry)
    elif list(named) != list(old):
        yield diff.place(bases.suite.path.resolve())
    for name in named:
        basis, values = bases.of(test, name), _values(bases, test, name)
        then = old.get(name, values) if old else values
        for part in sorted(key for key in {*values, *then} if values.get(key) != then.get(key)):
            yield _place_of(bases, part, diff) or diff.place(written, test.entry)
        for key in basis.programs:
            for path, _ in bases.looks.differing(bases.looks.find(key)):
                yield f"{os.path.relpath(path, diff.top)} (not as it was when a program opened it)"
        for entry in sorted(bases.entries(basis)):
            yield from diff.reasons(bases.looks, entry)
        for part in basis.values:
            yield from _environment(bases, part, diff)


def _values(bases: Bases, test: Test, target: str | None) -> dict[str, str]:
    """Return the values of a test's basis as JSON, without the judge, which no commit has."""
    values = bases.of(test, target).values.items()
    return {key: json.dumps(value, sort_keys=True, default=str) for key, value in values if key != "judge"}


def _place_of(bases: Bases, part: str, diff: _Diff) -> str | None:
    """Return the place of a different value; None: in the test itself."""
    if part == "answer" and bases.responses is not None:
        return diff.place(Path(bases.responses.source).resolve())
    if bases.targets is None or not part.startswith("target "):
        return None
    return diff.place(Path(bases.targets.path).resolve(), bases.targets.entries.get(part.removeprefix("target ")))


def _environment(bases: Bases, part: str, diff: _Diff) -> Iterator[str]:
    """Yield changed ``.env`` files that a target's entry may read."""
    entry = bases.targets.entries.get(part.removeprefix("target ")) if bases.targets else None
    if bases.targets is not None and entry is not None and "${{" in json.dumps(entry.data, default=str):
        files = [folder / ".env" for folder in Path(bases.targets.path).resolve().parents]
        yield from (diff.place(file) for file in files if diff.name(file) in diff.changed)


def _before(bases: Bases, diff: _Diff) -> _Before | None:
    """Return the values of the suite and its targets in the commit; None: they cannot be read."""
    suite, top = bases.suite, diff.top
    own = suite.path.resolve()
    places = {path.resolve().parent.relative_to(top) for path in (*suite.files, suite.path)}
    there = (
        ask_git(top, "ls-tree", "-r", "--name-only", "-z", diff.commit).decode("utf-8", "surrogateescape").split("\0")
    )
    above = [folder for folder in (own.parent, *own.parent.parents) if folder.is_relative_to(top)]
    files = [diff.name(folder / name) or "" for folder in above for name in FILE_NAMES]
    if bases.targets is not None and bases.targets.path:
        files.insert(0, diff.name(Path(bases.targets.path).resolve()) or "")
    answers = diff.name(Path(bases.responses.source).resolve()) if bases.responses is not None else None
    wanted = {*files, answers} & {*filter(None, there)}
    with tempfile.TemporaryDirectory(prefix="persona-suite-") as name:
        folder = Path(name).resolve()
        try:
            paths = [f"./{path}" for path in (*sorted(places), *sorted(filter(None, wanted)))]
            archive = ask_git(top, "--literal-pathspecs", "archive", "--format=tar", diff.commit, *paths)
            with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
                tar.extractall(folder, filter="data")
            # Paths are relative to the top, as in the repository.
            (folder / ".git").mkdir(exist_ok=True)
            loaded = load_suite(folder / own.relative_to(top), [folder])
            targets = next((load_targets(folder / item) for item in files if item in wanted), None)
            if targets is not None and bases.targets is not None:
                targets = replace(targets, environment=bases.targets.environment, grants=bases.targets.grants)
            responses = load_responses(folder / answers) if answers in wanted and answers else bases.responses
            old = Bases(loaded, targets, responses, bases.judge, bases.options)
            return {test.id: _values_by_target(old, test) for test in loaded.tests}
        except (ConfigError, OSError, tarfile.TarError):
            return None


def _values_by_target(old: Bases, test: Test) -> dict[str | None, dict[str, str]]:
    try:
        named = targets_of(old.suite, test, old.options, old.targets, old.responses)
    except ConfigError:
        return {}
    return {name: _values(old, test, name) for name in named}
