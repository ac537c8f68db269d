"""What the verdict on a test rests on: every file, text and setting that could change it, and one digest of them all.

Going on with a run, taking kept answers, running what a change touches, Dagster's sensor and the results themselves all ask here.
What is in doubt is in it: of a program everything in its folder. Nothing is run, imported or asked, and nothing outside the
repository and the world is read: what lies there is *unseen*, and what rests on something unseen runs.
"""

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from persona_pipeline.base.documents.json import content_hash
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.files import digest_within, repository_of
from persona_pipeline.guard.labels.files import LABELS, VOICE
from persona_pipeline.suites.answering.base import PromptFiles, Responses, file_parts
from persona_pipeline.suites.asserts.persona import AgentClaims, PersonaDrift, VoiceSounds
from persona_pipeline.suites.asserts.registry import default_assert
from persona_pipeline.suites.format.files import FileError, default_roots
from persona_pipeline.suites.format.models import AssertFields, Suite, Test, over_texts
from persona_pipeline.suites.format.programs import ProgramSource, module_sources, program_sources
from persona_pipeline.suites.grading.suite_judge import SuiteJudge
from persona_pipeline.suites.running.plan import RunOptions, Targets
from persona_pipeline.suites.targets.registry import find_provider, with_function
from persona_pipeline.world.personas import PERSONAS, is_agent_id, yaml_stems

ABSENT = "absent"
_LONGEST_PATH, _MOST_FILES = 300, 5_000
# What a program's folder holds that is none of it: what tools and programs leave, suites and who answers them.
_LEFT_FOLDERS = frozenset({"__pycache__", "node_modules"})
_LEFT_ENDINGS = (".pyc", ".pyo", ".log", ".tmp", ".db", ".db-wal", ".db-shm", ".db-journal", ".sqlite", ".sqlite3")
_LEFT_NAMES = (".eval.yaml", ".eval.yml", ".eval.jsonl", "targets.yaml", "targets.yml")
_WORLDS_OWN = ("messages", "recordings")


@dataclass
class Basis:
    """What a verdict or an answer rests on.

    ``values``: what stands in no file of its own, by what it is: JSON. ``files``: digests by path; of files that are not there,
    but would be read if they were, ``absent``. ``folder``: all of whose files these are, whatever comes into it; None: each of
    them is named. ``unseen``: what nobody can look into, each with the reason. ``parts``: what it shares with others.
    """

    values: dict[str, Any] = field(default_factory=dict)
    files: dict[Path, str] = field(default_factory=dict)
    folder: Path | None = None
    unseen: list[str] = field(default_factory=list)
    parts: "dict[str, Basis]" = field(default_factory=dict)
    _digest: str = ""

    def digest(self, top: Path) -> str:
        """Return the digest: SHA-256, the same wherever the repository lies. Nothing is added afterwards."""
        if not self._digest:
            files = sorted((_shown(path, top), digest) for path, digest in self.files.items())
            parts = {_shown(Path(name), top): part.digest(top) for name, part in self.parts.items()}
            self._digest = content_hash([self.values, files, sorted({*self.unseen}), parts])
        return self._digest

    def everything(self) -> "Iterator[Basis]":
        yield self
        for part in self.parts.values():
            yield from part.everything()

    @property
    def is_seen(self) -> bool:
        return not any(part.unseen for part in self.everything())


@dataclass
class Bases:
    """The bases of a suite's tests; what several share is looked at once, when the first of them asks.

    ``responses``: recorded answers, where nobody is asked. ``judge``: who would judge.
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
        """The folders that may be looked into."""
        further = [] if self.world is None else [self.world]
        beside = Path(self.targets.path).parent if self.targets and self.targets.path else self.top
        if self.targets and self.targets.grants.own and not beside.is_relative_to(self.top):
            # Named by whoever runs the suite, as his own.
            further.append(repository_of(beside))
        return [self.top, *(root.resolve() for root in self.suite.roots or ()), *further]

    @cached_property
    def written(self) -> set[Path]:
        return {path.resolve() for path in self.options.written}

    @cached_property
    def prompts(self) -> PromptFiles:
        return PromptFiles(self.suite)

    def digest(self, test: Test, target: str | None) -> str:
        return self.of(test, target).digest(self.top)

    def of(self, test: Test, target: str | None) -> Basis:
        return self._once(("test", test.id, target), lambda: self._of(test, target))

    def of_answer(self, name: str) -> Basis:
        """Return what a target's answers rest on, whatever they are asked: its entry, and what it is made of."""
        return self._once(("answer", name), lambda: self._of_answer(name))

    def _once(self, key: tuple[Any, ...], make: Callable[[], Basis]) -> Basis:
        if key not in self._known:
            self._known[key] = make()
        return self._known[key]

    def _of(self, test: Test, target: str | None) -> Basis:
        basis = Basis(self._portable(own_values(self.suite, test)))
        asserts: Sequence[AssertFields] = test.all_asserts or (default_assert(self.suite.evaluator),)
        if self.responses is not None or target is None:
            # Nothing is run around recorded answers.
            del basis.values["hooks"]
        if self.responses is not None:
            answers = self.responses.answers
            basis.values["answer"] = [target, answers.get(f"{test.id}@{target}", answers.get(test.id))]
        elif target is not None:
            basis.parts[f"target {target}"] = self.of_answer(target)
            self._add_workspace(basis, test)
            if test.user is not None and not (self.targets and self.targets.is_recorded(target)):
                basis.parts[f"target {test.user.target}"] = self.of_answer(test.user.target)
                self._add_persona(basis, self.world, test.user.agent)
        for reference in file_parts(test):
            try:
                self._add_file(basis, self.prompts.find(reference, test))
            except FileError as problem:
                # The run says so.
                basis.values[f"file {reference}"] = problem.message
        flat = [item for outer in asserts for item in _flat(outer)]
        for item in flat:
            self._add_assert(basis, item)
        if any(item.needs_judge for item in asserts):
            agents = frozenset(item.agent for item in flat if isinstance(item, AgentClaims))
            basis.parts["judge"] = self._once(("judge", agents), lambda: self._of_judge(agents))
        return basis

    def _add_assert(self, basis: Basis, item: AssertFields) -> None:
        for path in item.files:
            self._add_file(basis, path)
        beside = self.suite.path.absolute().parent
        if item.asked is not None and self.responses is None:
            basis.parts[f"target {item.asked}"] = self.of_answer(item.asked)
        if item.program is not None:
            script, folder = item.program
            self._add_program(basis, script, [Path(folder or beside)])
        elif isinstance(item, AgentClaims):
            self._add_agent(basis, item)
        elif isinstance(item, VoiceSounds) and self.world is not None:
            self._add_file(basis, self.world / LABELS / f"{VOICE}.jsonl")
        if item.needs_code:
            self._add_named(basis, item.dump(), beside)
        self._add_class(basis, type(item))

    def _add_agent(self, basis: Basis, item: AgentClaims) -> None:
        """Add what an assert about an agent reads of the world, also where it is not there yet."""
        if self.world is None or not is_agent_id(item.agent):
            return
        # They bring numpy and SQLAlchemy, of which most suites need nothing.
        from persona_pipeline.guard.baselines.golden import BASELINES, baseline_path
        from persona_pipeline.world.propositions.loading import DEFAULT, PROPOSITIONS

        self._add_persona(basis, self.world, item.agent)
        for dimension in item.judged_dimensions:
            for stem in (DEFAULT, item.agent):
                self._add_yaml(basis, self.world / PROPOSITIONS / dimension, stem)
        if isinstance(item, PersonaDrift):
            self._add_file(basis, baseline_path(self.world / BASELINES, item.agent))

    def _add_persona(self, basis: Basis, world: Path | None, agent: str | None) -> None:
        # A name that is no agent's is the run's to report, and no path to look at.
        if world is not None and agent is not None and is_agent_id(agent):
            self._add_yaml(basis, world / PERSONAS, agent)

    def _add_yaml(self, basis: Basis, folder: Path, stem: str) -> None:
        for ending in ("yaml", "yml"):
            self._add_file(basis, folder / f"{stem}.{ending}")

    def _of_judge(self, agents: frozenset[str]) -> Basis:
        """Return what judgments rest on: what makes the judge answer so; of a recorded one what is recorded, but not of others."""
        basis = Basis({"judge": self.judge and self.judge.identity})
        folder = self.judge.recordings if self.judge else None
        if folder is None:
            return basis
        others = {stem for stem in yaml_stems(folder.parent / PERSONAS) if stem not in agents}
        found = Basis(folder=folder.resolve())
        for path in sorted(folder.glob("**/*.jsonl")):
            if path.relative_to(folder).parts[0] not in others:
                self._add_file(found, path)
        basis.parts["recordings"] = found
        return basis

    def _add_workspace(self, basis: Basis, test: Test) -> None:
        beside = self.suite.path.absolute().parent
        template = test.workspace.template if test.workspace else None
        if template:
            self._add_tree(basis, Path(template), template=True)
        own = test.workspace.hooks if test.workspace else {}
        for hook in {**own, **self.suite.framing}.values():
            self._add_program(basis, hook.script, [Path(hook.cwd or beside), *([Path(template)] if template else [])])

    def _of_answer(self, name: str) -> Basis:
        entry = self.targets.entries.get(name) if self.targets else None
        if self.targets is None or entry is None:
            given = self.targets is not None and name in self.targets.names
            return Basis({f"target {name}": self.targets.open(name).fingerprint() if given and self.targets else None})
        data, filled = with_function(entry.data), self.targets.filled(name)
        provider = data.get("provider")
        try:
            model = find_provider(provider) if isinstance(provider, str) else None
        except ConfigError:
            model = None
        fields = model.model_fields if model else {}
        defaults = {key: one.default for key, one in fields.items() if isinstance(one.default, str | int | float)}
        secret = ("api_key", "headers")
        shown = {key: value for key, value in filled.items() if key not in secret}
        basis = Basis({f"target {name}": self._portable([data, {**defaults, **shown}])})
        folder = Path(self.targets.path).parent
        self._add_named(basis, data, folder)
        if provider == "cli":
            self._add_program(basis, _argv(filled), [folder / str(filled.get("cwd") or ""), *self._templates])
        elif provider == "python":
            module = str(filled.get("function")).partition(":")[0]
            self._add_sources(basis, module_sources(module, [folder]))
        elif provider == "replay":
            self._add_file(basis, folder / str(filled.get("path")))
        elif provider == "persona":
            world = folder / str(filled["root"]) if filled.get("root") else self.world or folder
            self._add_persona(basis, world, str(filled.get("agent")))
        elif model is not None and not model.__module__.startswith("persona_pipeline."):
            self._add_class(basis, model)
        return basis

    @cached_property
    def _templates(self) -> list[Path]:
        found = {test.workspace.template for test in self.suite.tests if test.workspace}
        return [Path(template) for template in sorted(filter(None, found))]

    def _add_named(self, basis: Basis, value: Any, folder: Path) -> None:
        """Add the files of the repository that any text names."""

        def look(text: str) -> None:
            if text and len(text) <= _LONGEST_PATH and "\0" not in text:
                with contextlib.suppress(OSError):
                    digest = digest_within(folder / text, self.roots)
                    if digest is not None:
                        basis.files[folder / text] = digest

        over_texts(value, look)

    def _add_class(self, basis: Basis, model: type) -> None:
        """Add the source of an assert or a target that is no part of this program, where it lies in the repository."""
        if model.__module__.startswith("persona_pipeline."):
            return
        place = getattr(sys.modules.get(model.__module__), "__file__", None)
        if place and any(Path(place).resolve().is_relative_to(root) for root in self.roots):
            self._add_file(basis, Path(place), program=True)

    def _add_program(self, basis: Basis, script: Sequence[str], folders: Sequence[Path]) -> None:
        key = ("program", tuple(script), tuple(folders))
        found = self._once(key, lambda: self._add_sources(Basis(), program_sources(script, folders)))
        basis.parts[self._portable(f"program {' '.join(script)} in {', '.join(map(str, folders))}")] = found

    def _add_sources(self, basis: Basis, sources: Iterable[ProgramSource]) -> Basis:
        for source in sources:
            if source.path is None:
                basis.unseen.append(source.unseen)
            elif source.path.is_dir():
                self._add_tree(basis, source.path)
            else:
                self._add_file(basis, source.path, program=source.program)
        return basis

    def _add_file(self, basis: Basis, path: Path, *, program: bool = False) -> None:
        """Add a file; of a program what lies in its folder, too: it may import or read it."""
        path = Path(os.path.abspath(path))  # noqa: PTH100 -- a link stays one
        try:
            digest = digest_within(path, self.roots)
        except OSError as error:
            basis.files[path] = ABSENT if isinstance(error, FileNotFoundError | NotADirectoryError) else "unreadable"
            return
        if digest is None:
            inside = any(path.resolve().is_relative_to(root) for root in self.roots)
            basis.unseen.append(
                f"{path} ({'no regular file of at most 64 MB' if inside else 'outside the repository'})"
            )
            return
        basis.files[path] = digest
        if program:
            self._add_tree(basis, path.parent)
            if path.is_symlink():
                self._add_tree(basis, path.resolve().parent)

    def _add_tree(self, basis: Basis, folder: Path, *, template: bool = False) -> None:
        folder = folder.resolve()
        key = ("tree", folder, template)
        basis.parts[str(folder)] = self._once(key, lambda: self._tree(folder, template=template))

    def _tree(self, folder: Path, *, template: bool) -> Basis:
        basis = Basis(folder=folder)
        if not any(folder.is_relative_to(root) for root in self.roots):
            return Basis(unseen=[f"{folder} (outside the repository)"])
        for place, folders, names in os.walk(folder):
            if not template:
                folders[:] = [name for name in folders if self.counts(Path(place, name), is_folder=True)]
            for name in names:
                path = Path(place, name)
                if template or self.counts(path):
                    try:
                        basis.files[path] = digest_within(path, self.roots) or "unreadable"
                    except OSError:
                        basis.files[path] = "unreadable"
            if len(basis.files) > _MOST_FILES:
                return Basis(unseen=[f"{_shown(folder, self.top)}/ (more than {_MOST_FILES:,} files)"])
        return basis

    def counts(self, path: Path, *, is_folder: bool = False) -> bool:
        """Return whether a file or a folder beside a program may be a part of it."""
        name = path.name
        if name.startswith(".") or path in self.written:
            return False
        if is_folder:
            own = self.world is not None and name in _WORLDS_OWN and path.parent == self.world
            return name not in _LEFT_FOLDERS and not own and not (path / "pyvenv.cfg").exists()
        return not name.endswith(_LEFT_ENDINGS) and not name.endswith(_LEFT_NAMES)

    def _portable(self, value: Any) -> Any:
        if isinstance(value, str):
            return value.replace(str(self.top), "")
        if isinstance(value, Mapping):
            return {str(key): self._portable(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._portable(item) for item in value]
        return value if value is None or isinstance(value, bool | int | float) else str(value)


def own_values(suite: Suite, test: Test) -> dict[str, Any]:
    """Return what of a suite is a test's: itself, how often it runs, what judges it without asserts, what frames the run."""
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


def _argv(data: Mapping[str, Any]) -> list[str]:
    """Return a cli target's program as it is written, valid or not."""
    command = data.get("command", data.get("command_template"))
    return command.split() if isinstance(command, str) else [str(word) for word in command or ()]


def _shown(path: Path, top: Path) -> str:
    return path.relative_to(top).as_posix() if path.is_relative_to(top) else path.as_posix()
