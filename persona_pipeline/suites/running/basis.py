"""Inputs of a verdict: files, values and programs, one digest of them, and records of the files that programs open.

``--resume``, ``--cache``, ``--changed``, Dagster's sensor and the results use the digest. A record says which files a
program opened in its last run; without a record it is the whole repository. Nothing is run, imported or asked here.
Only files in the repository, the world and the allowed folders are read. Any other file is *unseen*, and a test that
depends on one always runs.

Records are in ``.persona/opened``, one file per program of a test. A record that git tracks is ignored, because it came
with the repository.
"""

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from persona_pipeline.base.documents.json import content_hash, write_atomically
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.files import ask_git, digest_within, look_of, read_regular, repository_of
from persona_pipeline.suites.answering.base import Responses
from persona_pipeline.suites.asserts.code_judge import Function
from persona_pipeline.suites.format.files import default_roots, state_folder
from persona_pipeline.suites.format.models import AssertFields, Suite, Test
from persona_pipeline.suites.format.registry import default_assert
from persona_pipeline.suites.grading.suite_judge import SuiteJudge
from persona_pipeline.suites.running.plan import RunOptions, Targets
from persona_pipeline.suites.sandbox.processes import Opened, recording
from persona_pipeline.suites.targets.python import PythonTarget
from persona_pipeline.suites.targets.registry import find_provider, with_function

# An absolute path and a kind. "": the file's content, or that it is missing. "**": all files below; "git": those that
# git tracks or would add. "*": names in the folder; "*.py": importable names; "*-info": names of distributions.
Entry = tuple[str, str]
ABSENT, UNSEEN = "absent", "unseen"
_IMPORTED = (".py", ".pyc", ".so", ".pyd")
_LEFT = ("__pycache__", "node_modules", "site-packages")
_PACKAGES = ("/site-packages", "/dist-packages")
# Folders of the machine, which no program owns.
_MACHINE = (
    *("/proc", "/dev", "/sys", "/etc", "/usr", "/lib", "/lib64", "/opt", "/var", "/run"),
    sys.prefix,
    sys.base_prefix,
)


@dataclass
class Looks:
    """Digests of entries, each computed once.

    ``roots``: resolved folders that may be read. ``state``: folder for caches and records. ``written``: files that the run
    writes, on which no result depends.
    """

    top: Path
    roots: list[Path]
    state: Path
    written: set[Path]
    _known: dict[Entry, str] = field(default_factory=dict)
    _records: dict[str, dict[Entry, str]] = field(default_factory=dict)

    @cached_property
    def everything(self) -> set[Entry]:
        """All files of the repository and of the other roots."""
        return {(str(root), "git") for root in self.roots}

    def of(self, entry: Entry) -> str:
        """Return the digest of an entry, or a word for a missing or unseen one."""
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
        """Return one digest of entries, independent of the repository's path."""
        return content_hash(sorted([self.shown(path), kind, self.of((path, kind))] for path, kind in entries))

    def shown(self, path: str) -> str:
        """Return a path for records: relative to the repository with a dot, else absolute."""
        return f".{path.removeprefix(str(self.top))}" if Path(path).is_relative_to(self.top) else path

    def is_inside(self, path: str) -> bool:
        return any(Path(path).is_relative_to(root) for root in self.roots)

    def is_part(self, path: str, kind: str) -> bool:
        """Return whether a file or folder counts in a listing of this kind; output of runs does not."""
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
        """Return the digest of a file of a folder, or the target of a link."""
        if os.path.islink(path):  # noqa: PTH114
            return f"link {os.readlink(path)}"  # noqa: PTH115
        return self.of((path.rstrip("/"), kind if Path(path).is_dir() else ""))

    def find(self, key: str) -> dict[Entry, str]:
        """Return the record of a program's last run; empty without one."""
        if key not in self._records:
            self._records[key] = {}
            with contextlib.suppress(OSError, ValueError, TypeError):
                rows = json.loads(read_regular(self._path(key), roots=[self.state])) if self._is_believed else []
                self._records[key] = {
                    (f"{self.top}{path[1:]}" if path[0] == "." else path, kind): look for path, kind, look in rows
                }
        return self._records[key]

    def opened(self, key: str) -> set[Entry]:
        """Return the entries that a program opens; the whole repository without a record or after a change."""
        record = self.find(key)
        return {*record} if record and not self.differing(record) else self.everything

    def differing(self, record: Mapping[Entry, str]) -> list[Entry]:
        return [entry for entry, look in record.items() if self.of(entry) != look]

    def keep(self, key: str, opened: Opened) -> None:
        """Write the record of a program. On a read-only disk there is none."""
        earlier = self.find(key)
        looks = {entry: self.of(entry) for entry in self._entries(opened)}
        # Runs from the same state may open different files; a result depends on all of them.
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
                # Files of the machine count as unchanged.
                is_hidden = real.startswith(f"{Path.home()}/.")
                if not (is_hidden or any(Path(real).is_relative_to(place) for place in _MACHINE)):
                    yield real, kind


def git_names(root: Path, *which: str) -> list[str]:
    """Return the paths that git lists below a folder. Raises ``ConfigError``: not a git repository."""
    listed = ask_git(root, "ls-files", "-z", *which)
    return [name for name in listed.decode("utf-8", "surrogateescape").split("\0") if name]


def _in_git(root: str) -> Iterable[str]:
    """Return the files below a folder that git tracks or would add; without git, all but hidden and installed ones."""
    try:
        return git_names(Path(root), "--cached", "--others", "--exclude-standard")
    except ConfigError:
        return _below(root, hidden=False)


def _below(root: str, *, hidden: bool = True) -> Iterator[str]:
    for place, folders, names in os.walk(root):
        folders[:] = [name for name in folders if hidden or not (name.startswith(".") or name in _LEFT)]
        links = [name for name in folders if os.path.islink(f"{place}/{name}")]  # noqa: PTH114
        yield from (os.path.relpath(f"{place}/{name}", root) for name in [*names, *links] if hidden or name[0] != ".")


_DIGITS = 32


@dataclass
class Basis:
    """Inputs of a verdict: values as JSON, files, and programs by the keys of their records."""

    values: dict[str, Any] = field(default_factory=dict)
    entries: set[Entry] = field(default_factory=set)
    programs: set[str] = field(default_factory=set)

    def add(self, other: "Basis") -> None:
        self.values |= other.values
        self.entries |= other.entries
        self.programs |= other.programs


@dataclass
class Bases:
    """Inputs of the verdicts of a suite's tests. Shared parts are computed once.

    ``responses``: recorded answers instead of targets. ``judge``: the judge of the run.
    """

    suite: Suite
    targets: Targets | None = None
    responses: Responses | None = None
    judge: SuiteJudge | None = None
    options: RunOptions = field(default_factory=RunOptions)
    _known: dict[Any, Basis] = field(default_factory=dict)

    @cached_property
    def top(self) -> Path:
        """The top of the suite's repository, else its folder."""
        return default_roots(self.suite.path)[0].resolve()

    @cached_property
    def world(self) -> Path | None:
        return None if self.options.world_root is None else self.options.world_root().resolve()

    @cached_property
    def roots(self) -> list[Path]:
        """Folders that may be read."""
        further = [] if self.world is None else [self.world]
        beside = Path(self.targets.path).parent if self.targets and self.targets.path else self.top
        if self.targets and self.targets.grants.own and not beside.is_relative_to(self.top):
            # A targets file outside the repository is the user's own.
            further.append(repository_of(beside))
        return [self.top, *(root.resolve() for root in self.suite.roots or ()), *further]

    @cached_property
    def looks(self) -> Looks:
        state = state_folder(self.suite.path, self.options.state)
        return Looks(self.top, self.roots, state.resolve(), {path.resolve() for path in self.options.written})

    def digest(self, basis: Basis) -> str:
        """Return the current digest of a basis: SHA-256, independent of the repository's path."""
        return content_hash([basis.values, self.looks.digest(self.entries(basis))])

    def entries(self, basis: Basis) -> set[Entry]:
        """Return the files of a basis, including those that its programs open."""
        return basis.entries.union(*(self.looks.opened(key) for key in basis.programs))

    def is_seen(self, basis: Basis) -> bool:
        """Return whether all inputs can be read."""
        return not any(self.looks.of(entry) == UNSEEN for entry in self.entries(basis))

    @contextmanager
    def recording(self, programs: Iterable[str]) -> Iterator[None]:
        """Record the files that programs open in this context. ``programs``: keys of their records."""
        keys = [*programs]
        # A change by the program is an input of its next run.
        self.looks.digest({entry for key in keys for entry in self.looks.opened(key)})
        with recording() as opened:
            try:
                yield
            finally:
                for key in keys if opened.programs else ():
                    self.looks.keep(key, opened)

    def of(self, test: Test, target: str | None) -> Basis:
        return self._once(("test", test.id, target), lambda: self._of(test, target))

    def of_answer(self, name: str, test: Test) -> Basis:
        """Return the inputs of a target's answers to a test: its entry, and the files it opened."""
        shared = self._once(("target", name), lambda: self._of_target(name))
        if not (self.targets and name in self.targets.entries and self.targets.runs_code(name)):
            return shared
        graded = ("assert", "asserts", "each_turn")
        asked = {key: value for key, value in test.model_dump().items() if key not in graded}
        return Basis(shared.values, shared.entries, {self._key("answer", [shared.values, asked])})

    def grading(self, test: Test, target: str | None) -> set[str]:
        """Return the key of the programs that prepare and grade a test; empty without any."""
        hooked = self.responses is None and test.workspace and test.workspace.hooks
        if hooked or any(item.program is not None for outer in test.all_asserts for item in _flat(outer)):
            return {self._key("grading", [target, own_values(self.suite, test)])}
        return set()

    @property
    def framing(self) -> set[str]:
        """The key of the programs that run once before a suite; empty without any."""
        hooks = {name: hook.model_dump(exclude_none=True) for name, hook in self.suite.framing.items()}
        return {self._key("framing", hooks)} if hooks else set()

    def _key(self, kind: str, values: Any) -> str:
        return content_hash([kind, self._portable([str(self.suite.path.resolve()), values])])[:_DIGITS]

    def _once(self, key: tuple[Any, ...], make: Callable[[], Basis]) -> Basis:
        if key not in self._known:
            self._known[key] = make()
        return self._known[key]

    def _of(self, test: Test, target: str | None) -> Basis:
        basis = Basis(self._portable(own_values(self.suite, test)), programs=self.grading(test, target))
        asserts: Sequence[AssertFields] = test.all_asserts or (default_assert(self.suite.evaluator),)
        if self.responses is not None or target is None:
            # No hooks run around recorded answers.
            del basis.values["hooks"]
        if self.responses is not None:
            basis.values["answer"] = [target, self.responses.answers.get(self.responses.key(test.id, target))]
        elif target is not None:
            basis.add(self.of_answer(target, test))
            basis.programs |= self.framing
            if test.workspace and test.workspace.template:
                basis.entries.add((str(Path(test.workspace.template).resolve()), "**"))
            if test.user is not None and not (self.targets and self.targets.is_recorded(target)):
                basis.add(self.of_answer(test.user.target, test))
                _add_persona(basis, self.world, test.user.agent)
        basis.entries |= {(str(path), "") for path in test.files.values()}
        for item in (part for outer in asserts for part in _flat(outer)):
            self._add_assert(basis, item)
        if any(item.needs_judge for item in asserts):
            basis.add(self._once(("judge",), self._of_judge))
        return basis

    def _add_assert(self, basis: Basis, item: AssertFields) -> None:
        basis.entries |= {(str(path), "") for path in item.files}
        if self.world is not None:
            # Also files that do not exist yet.
            basis.entries |= {(str(path), "") for path in item.world_files(self.world)}
        self._add_class(basis, type(item))

    def _of_judge(self) -> Basis:
        """Return the inputs of judgments: the judge and its recordings."""
        folder = self.judge.recordings if self.judge else None
        entries = set[Entry]() if folder is None else {(str(folder.resolve()), "**")}
        return Basis({"judge": self.judge and self.judge.identity}, entries)

    def _of_target(self, name: str) -> Basis:
        entry = self.targets.entries.get(name) if self.targets else None
        if self.targets is None or entry is None:
            return self._of_given(name)
        data, filled = with_function(entry.data), self.targets.filled(name)
        provider = data.get("provider")
        try:
            model = find_provider(provider) if isinstance(provider, str) else None
        except ConfigError:
            model = None
        fields = model.model_fields if model else {}
        defaults = {key: one.default for key, one in fields.items() if isinstance(one.default, str | int | float)}
        shown = {key: value for key, value in filled.items() if key not in ("api_key", "headers")}
        basis = Basis({f"target {name}": self._portable([data, {**defaults, **shown}])})
        folder = Path(self.targets.path).parent.resolve()
        if provider == "replay":
            basis.entries.add((str(folder / str(filled.get("path"))), ""))
        elif provider == "persona":
            world = folder / str(filled["root"]) if filled.get("root") else self.world or folder
            _add_persona(basis, world, str(filled.get("agent")))
        elif model is not None:
            self._add_class(basis, model)
        return basis

    def _of_given(self, name: str) -> Basis:
        """Return the inputs of a target that the running program passed."""
        if self.targets is None or name not in self.targets.names:
            return Basis({f"target {name}": None})
        target = self.targets.open(name)
        # A function may open any file.
        entries = {*self.looks.everything} if isinstance(target, PythonTarget) else set[Entry]()
        return Basis({f"target {name}": target.fingerprint()}, entries)

    def _add_class(self, basis: Basis, model: type) -> None:
        """Add the whole repository for an assert or a target that is not part of this package."""
        if model is Function or not model.__module__.startswith("persona_pipeline."):
            basis.entries |= self.looks.everything

    def _portable(self, value: Any) -> Any:
        if isinstance(value, str):
            return value.replace(str(self.top), "")
        if isinstance(value, Mapping):
            return {str(key): self._portable(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._portable(item) for item in value]
        return value if value is None or isinstance(value, bool | int | float) else str(value)


def own_values(suite: Suite, test: Test) -> dict[str, Any]:
    """Return the values of a test in its suite: the test, its trials, its default evaluator, and hooks."""
    trials = suite.trials_of(test)
    values = {
        "test": test.model_dump(),
        "trials": trials and trials.model_dump(exclude_none=True),
        "hooks": {name: hook.model_dump(exclude_none=True) for name, hook in suite.framing.items()},
    }
    return values if test.all_asserts else {**values, "evaluator": suite.evaluator}


def _flat(item: AssertFields) -> Iterator[AssertFields]:
    yield item
    for part in item.parts:
        yield from _flat(part)


def _add_persona(basis: Basis, world: Path | None, agent: str | None) -> None:
    from persona_pipeline.suites.targets.persona import persona_files

    if world is not None and agent is not None:
        basis.entries |= {(str(path), "") for path in persona_files(world, agent)}
