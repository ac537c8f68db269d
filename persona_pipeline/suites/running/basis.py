"""What the verdict on a test rests on: files, texts and settings that can change it, and one digest of all of them.

``--resume``, ``--cache``, ``--changed``, Dagster's sensor and the results use it. What programs read is known from what they opened
when they last ran (``records.py``); without a record it is the whole repository. Nothing is run, imported or asked here. Only files
in the repository, the world and the allowed folders are read. What lies elsewhere is *unseen*: a test that rests on it always runs.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from persona_pipeline.base.documents.json import content_hash
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.files import repository_of
from persona_pipeline.guard.labels.files import LABELS, VOICE
from persona_pipeline.suites.answering.base import PromptFiles, Responses, file_parts
from persona_pipeline.suites.asserts.code_judge import Function
from persona_pipeline.suites.asserts.persona import AgentClaims, PersonaDrift, VoiceSounds
from persona_pipeline.suites.asserts.registry import default_assert
from persona_pipeline.suites.format.files import FileError, default_roots, state_folder
from persona_pipeline.suites.format.models import AssertFields, Suite, Test, over_texts
from persona_pipeline.suites.grading.suite_judge import SuiteJudge
from persona_pipeline.suites.running.plan import RunOptions, Targets
from persona_pipeline.suites.running.records import Entry, Places, Records
from persona_pipeline.suites.sandbox.opened import recording
from persona_pipeline.suites.targets.python import PythonTarget
from persona_pipeline.suites.targets.registry import find_provider, with_function
from persona_pipeline.world.personas import PERSONAS, is_agent_id, yaml_stems

_LONGEST_PATH = 300


@dataclass
class Basis:
    """What a verdict or an answer rests on.

    Attributes:
        values: JSON that is in no file of its own.
        entries: files, folders and links, by kind (``Places``).
        since: of recorded entries the digest before they were recorded, which holds as long as they look as in ``looks``.
        parts: what this shares with other bases.
    """

    values: dict[str, Any] = field(default_factory=dict)
    entries: set[Entry] = field(default_factory=set)
    since: str = ""
    looks: Mapping[Entry, str] = field(default_factory=dict)
    parts: "dict[str, Basis]" = field(default_factory=dict)

    def everything(self) -> "Iterator[Basis]":
        yield self
        for part in self.parts.values():
            yield from part.everything()


@dataclass
class Bases:
    """The bases of a suite's tests. What several tests share is looked at once, when the first of them needs it.

    ``responses``: recorded answers, for which no target is asked. ``judge``: the judge of the run.
    """

    suite: Suite
    targets: Targets | None = None
    responses: Responses | None = None
    judge: SuiteJudge | None = None
    options: RunOptions = field(default_factory=RunOptions)
    _known: dict[Any, Basis] = field(default_factory=dict)
    _digests: dict[int, str] = field(default_factory=dict)

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
            # The user names it as their own.
            further.append(repository_of(beside))
        return [self.top, *(root.resolve() for root in self.suite.roots or ()), *further]

    @cached_property
    def places(self) -> Places:
        state = state_folder(self.suite.path, self.options.state)
        return Places(self.top, self.roots, state.resolve(), {path.resolve() for path in self.options.written})

    @cached_property
    def records(self) -> Records:
        return Records(self.places, self.suite.path.absolute())

    @cached_property
    def prompts(self) -> PromptFiles:
        return PromptFiles(self.suite)

    def digest(self, test: Test, target: str | None) -> str:
        return self.digest_of(self.of(test, target))

    def digest_of(self, basis: Basis) -> str:
        """Return a digest: SHA-256, the same wherever the repository lies. Nothing is added to the basis afterwards."""
        if id(basis) not in self._digests:
            looks = {entry: self.places.look(entry) for entry in basis.entries}
            if basis.since and looks == basis.looks:
                found = basis.since
            else:
                # Programs that differ may open other files than those that were recorded.
                whole = {entry: self.places.look(entry) for entry in self.places.everything} if basis.since else {}
                found = content_hash([basis.values, basis.since, self.places.portable({**looks, **whole})])
            parts = {name: self.digest_of(part) for name, part in basis.parts.items()}
            self._digests[id(basis)] = content_hash([found, parts]) if parts else found
        return self._digests[id(basis)]

    def is_seen(self, basis: Basis) -> bool:
        """Return whether all that something rests on can be looked at."""
        return not any(self.places.unseen(entry) for part in basis.everything() for entry in part.entries)

    @contextmanager
    def recording(self, *keys: tuple[str, ...]) -> Iterator[None]:
        """Record what is opened by the programs that run in this context; ``keys``: the parts of bases they are."""
        # What they change is part of the next run's basis, not of this one's.
        before = {key: self.digest_of(self._programs(key)) for key in keys}
        with recording() as opened:
            try:
                yield
            finally:
                for key, since in before.items():
                    self.records.keep(key, since, opened)

    def of(self, test: Test, target: str | None) -> Basis:
        return self._once(("test", test.id, target), lambda: self._of(test, target))

    def of_answer(self, name: str, test: Test) -> Basis:
        """Return what a target's answers to a test rest on, whatever is asked: its entry, and what it opened."""
        shared = self._once(("target", name), lambda: self._of_target(name))
        if not (self.targets and name in self.targets.entries and self.targets.runs_code(name)):
            return shared
        programs = self._programs(self.answer_key(name, test))
        return self._once(("answer", name, test.id), lambda: Basis(parts={"target": shared, "programs": programs}))

    def answer_key(self, name: str, test: Test) -> tuple[str, ...]:
        """Return the key of the record of what a target opens for a test: another entry or another question is another key."""
        asked = {
            key: value for key, value in test.model_dump().items() if key not in ("assert", "asserts", "each_turn")
        }
        target = self._once(("target", name), lambda: self._of_target(name))
        return ("target", name, test.id, content_hash([target.values, self._portable(asked)])[:16])

    def grading_key(self, test: Test, target: str | None) -> tuple[str, ...]:
        """Return the key of the record of the programs that prepare and grade a test."""
        return ("test", test.id, target or "", content_hash(self._portable(own_values(self.suite, test)))[:16])

    @property
    def frame_key(self) -> tuple[str, ...]:
        """The key of the record of the programs that run once before a suite."""
        hooks = {name: hook.model_dump(exclude_none=True) for name, hook in self.suite.framing.items()}
        return ("suite", content_hash(self._portable(hooks))[:16])

    def has_programs(self, test: Test) -> bool:
        """Return whether programs grade a test or prepare its workspace."""
        asserts = (item for outer in test.all_asserts for item in _flat(outer))
        return any(item.program is not None for item in asserts) or bool(
            self.responses is None and test.workspace and test.workspace.hooks
        )

    def _once(self, key: tuple[Any, ...], make: Callable[[], Basis]) -> Basis:
        if key not in self._known:
            self._known[key] = make()
        return self._known[key]

    def _programs(self, key: tuple[str, ...]) -> Basis:
        """Return what programs opened when they last ran; the whole repository, if nothing recorded it."""

        def make() -> Basis:
            record = self.records.find(key)
            if record is None:
                return Basis(entries={*self.places.everything})
            return Basis(entries={*record.looks}, since=record.since, looks=record.looks)

        return self._once(("programs", *key), make)

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
            basis.parts[f"target {target}"] = self.of_answer(target, test)
            if test.workspace and test.workspace.template:
                basis.entries.add(("tree", Path(test.workspace.template).resolve()))
            if self.suite.framing:
                basis.parts["hooks"] = self._programs(self.frame_key)
            if test.user is not None and not (self.targets and self.targets.is_recorded(target)):
                basis.parts[f"target {test.user.target}"] = self.of_answer(test.user.target, test)
                self._add_persona(basis, self.world, test.user.agent)
        for reference in file_parts(test):
            try:
                basis.entries.add(("file", self.prompts.find(reference, test)))
            except FileError as problem:
                # The run says so.
                basis.values[f"file {reference}"] = problem.message
        flat = [item for outer in asserts for item in _flat(outer)]
        for item in flat:
            self._add_assert(basis, item, test)
        if self.has_programs(test):
            basis.parts["programs"] = self._programs(self.grading_key(test, target))
        if any(item.needs_judge for item in asserts):
            agents = frozenset(item.agent for item in flat if isinstance(item, AgentClaims))
            basis.parts["judge"] = self._once(("judge", agents), lambda: self._of_judge(agents))
        return basis

    def _add_assert(self, basis: Basis, item: AssertFields, test: Test) -> None:
        basis.entries |= {("file", path) for path in item.files}
        beside = self.suite.path.absolute().parent
        if item.asked is not None and self.responses is None:
            basis.parts[f"target {item.asked}"] = self.of_answer(item.asked, test)
        if item.program is not None:
            script, folder = item.program
            self._add_named(basis, [*script], Path(folder or beside), outside=True)
        if isinstance(item, AgentClaims):
            self._add_agent(basis, item)
        elif isinstance(item, VoiceSounds) and self.world is not None:
            basis.entries.add(("file", self.world / LABELS / f"{VOICE}.jsonl"))
        if item.needs_code:
            self._add_named(basis, item.dump(), beside)
        self._add_class(basis, type(item), is_function=isinstance(item, Function))

    def _add_agent(self, basis: Basis, item: AgentClaims) -> None:
        """Add what an assert about an agent reads of the world, also where it does not exist yet."""
        if self.world is None or not is_agent_id(item.agent):
            return
        # They bring numpy and SQLAlchemy, which most suites do not need.
        from persona_pipeline.guard.baselines.golden import BASELINES, baseline_path
        from persona_pipeline.world.propositions.loading import DEFAULT, PROPOSITIONS

        self._add_persona(basis, self.world, item.agent)
        for dimension in item.judged_dimensions:
            for stem in (DEFAULT, item.agent):
                self._add_yaml(basis, self.world / PROPOSITIONS / dimension, stem)
        if isinstance(item, PersonaDrift):
            basis.entries.add(("file", baseline_path(self.world / BASELINES, item.agent)))

    def _add_persona(self, basis: Basis, world: Path | None, agent: str | None) -> None:
        # The run reports a name that is not an agent's. It is not a path to look at.
        if world is not None and agent is not None and is_agent_id(agent):
            self._add_yaml(basis, world / PERSONAS, agent)

    def _add_yaml(self, basis: Basis, folder: Path, stem: str) -> None:
        basis.entries |= {("file", folder / f"{stem}.{ending}") for ending in ("yaml", "yml")}

    def _of_judge(self, agents: frozenset[str]) -> Basis:
        """Return what judgments rest on: the judge, and of recorded judgments those of these agents."""
        basis = Basis({"judge": self.judge and self.judge.identity})
        folder = self.judge.recordings if self.judge else None
        if folder is None:
            return basis
        others = {stem for stem in yaml_stems(folder.parent / PERSONAS) if stem not in agents}
        found = (path for path in folder.glob("**/*.jsonl") if path.relative_to(folder).parts[0] not in others)
        basis.parts["recordings"] = Basis(entries={("gone", folder.resolve()), *(("file", path) for path in found)})
        return basis

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
        secret = ("api_key", "headers")
        shown = {key: value for key, value in filled.items() if key not in secret}
        basis = Basis({f"target {name}": self._portable([data, {**defaults, **shown}])})
        folder = Path(self.targets.path).parent
        self._add_named(basis, data, folder)
        if provider == "cli":
            self._add_named(basis, _argv(filled), folder / str(filled.get("cwd") or ""), outside=True)
        elif provider == "replay":
            basis.entries.add(("file", folder / str(filled.get("path"))))
        elif provider == "persona":
            world = folder / str(filled["root"]) if filled.get("root") else self.world or folder
            self._add_persona(basis, world, str(filled.get("agent")))
        elif model is not None:
            self._add_class(basis, model)
        return basis

    def _of_given(self, name: str) -> Basis:
        """Return what the answers of a target rest on that the running program hands over."""
        if self.targets is None or name not in self.targets.names:
            return Basis({f"target {name}": None})
        target = self.targets.open(name)
        # What a function opens on import was opened before.
        entries = {*self.places.everything} if isinstance(target, PythonTarget) else set[Entry]()
        return Basis({f"target {name}": target.fingerprint()}, entries)

    def _add_named(self, basis: Basis, value: Any, folder: Path, *, outside: bool = False) -> None:
        """Add the files of the repository that any text names; ``outside``: other files, too, which are unseen."""

        def look(text: str) -> None:
            if text and len(text) <= _LONGEST_PATH and "\0" not in text:
                with contextlib.suppress(OSError):
                    if self.places.is_named(folder / text, outside=outside):
                        basis.entries.add(("file", folder / text))

        over_texts(value, look)

    def _add_class(self, basis: Basis, model: type, *, is_function: bool = False) -> None:
        """Add what an assert or a target of another package or of a function may read."""
        place = getattr(sys.modules.get(model.__module__), "__file__", None) or ""
        foreign = not model.__module__.startswith("persona_pipeline.")
        if is_function or (foreign and any(Path(place).resolve().is_relative_to(root) for root in self.roots)):
            basis.entries |= self.places.everything

    def _portable(self, value: Any) -> Any:
        if isinstance(value, str):
            return value.replace(str(self.top), "")
        if isinstance(value, Mapping):
            return {str(key): self._portable(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._portable(item) for item in value]
        return value if value is None or isinstance(value, bool | int | float) else str(value)


def own_values(suite: Suite, test: Test) -> dict[str, Any]:
    """Return the values of a test in its suite: itself, how often it runs, the default evaluator, hooks around the run."""
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
