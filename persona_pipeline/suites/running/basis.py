"""What the verdict on a test rests on: files, texts and settings that can change it, and one digest of all of them.

``--resume``, ``--cache``, ``--changed``, Dagster's sensor and the results use it. What programs read is known from what they opened
when they last ran (``records.py``); without a record it is the whole repository. Nothing is run, imported or asked here. Only files
in the repository, the world and the allowed folders are read. What lies elsewhere is *unseen*: a test that rests on it always runs.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from persona_pipeline.base.documents.json import content_hash
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.files import repository_of
from persona_pipeline.suites.answering.base import PromptFiles, Responses, file_parts
from persona_pipeline.suites.asserts.code_judge import Function
from persona_pipeline.suites.asserts.persona import AgentClaims, PersonaDrift
from persona_pipeline.suites.asserts.registry import default_assert
from persona_pipeline.suites.format.files import FileError, default_roots, state_folder
from persona_pipeline.suites.format.models import AssertFields, Suite, Test
from persona_pipeline.suites.grading.suite_judge import SuiteJudge
from persona_pipeline.suites.running.plan import RunOptions, Targets
from persona_pipeline.suites.running.records import UNSEEN, Entry, Looks
from persona_pipeline.suites.sandbox.processes import recording
from persona_pipeline.suites.targets.python import PythonTarget
from persona_pipeline.suites.targets.registry import find_provider, with_function
from persona_pipeline.world.personas import PERSONAS, is_agent_id, yaml_stems

_DIGITS = 32


@dataclass
class Basis:
    """What a verdict rests on: JSON that is in no file of its own, files, and programs by the keys of their records."""

    values: dict[str, Any] = field(default_factory=dict)
    entries: set[Entry] = field(default_factory=set)
    programs: set[str] = field(default_factory=set)

    def add(self, other: "Basis") -> None:
        self.values |= other.values
        self.entries |= other.entries
        self.programs |= other.programs


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
    def looks(self) -> Looks:
        state = state_folder(self.suite.path, self.options.state)
        return Looks(self.top, self.roots, state.resolve(), {path.resolve() for path in self.options.written})

    @cached_property
    def prompts(self) -> PromptFiles:
        return PromptFiles(self.suite)

    def digest(self, basis: Basis) -> str:
        """Return the digest of a basis as things are: SHA-256, the same wherever the repository lies."""
        return content_hash([basis.values, self.looks.digest(self.entries(basis))])

    def entries(self, basis: Basis) -> set[Entry]:
        """Return the files of a basis, also those that its programs open."""
        return basis.entries.union(*(self.looks.opened(key) for key in basis.programs))

    def is_seen(self, basis: Basis) -> bool:
        """Return whether all that something rests on can be looked at."""
        return not any(self.looks.of(entry) == UNSEEN for entry in self.entries(basis))

    @contextmanager
    def recording(self, programs: Iterable[str]) -> Iterator[None]:
        """Record what is opened by the programs that run in this context; ``programs``: the keys of their records."""
        keys = [*programs]
        # What they change is part of the next run's basis, not of this one's.
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
        """Return what a target's answers to a test rest on, whatever is asked: its entry, and what it opened."""
        shared = self._once(("target", name), lambda: self._of_target(name))
        if not (self.targets and name in self.targets.entries and self.targets.runs_code(name)):
            return shared
        graded = ("assert", "asserts", "each_turn")
        asked = {key: value for key, value in test.model_dump().items() if key not in graded}
        return Basis(shared.values, shared.entries, {self._key("answer", [shared.values, asked])})

    def grading(self, test: Test, target: str | None) -> set[str]:
        """Return the key of the programs that prepare and grade a test; empty: there are none."""
        hooked = self.responses is None and test.workspace and test.workspace.hooks
        if hooked or any(item.program is not None for outer in test.all_asserts for item in _flat(outer)):
            return {self._key("grading", [target, own_values(self.suite, test)])}
        return set()

    @property
    def framing(self) -> set[str]:
        """The key of the programs that run once before a suite; empty: there are none."""
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
            # Nothing is run around recorded answers.
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
                self._add_persona(basis, self.world, test.user.agent)
        for reference in file_parts(test):
            try:
                basis.entries.add((str(self.prompts.find(reference, test)), ""))
            except FileError as problem:
                # The run says so.
                basis.values[f"file {reference}"] = problem.said
        flat = [item for outer in asserts for item in _flat(outer)]
        for item in flat:
            self._add_assert(basis, item, test)
        if any(item.needs_judge for item in asserts):
            agents = frozenset(item.agent for item in flat if isinstance(item, AgentClaims))
            basis.add(self._once(("judge", agents), lambda: self._of_judge(agents)))
        return basis

    def _add_assert(self, basis: Basis, item: AssertFields, test: Test) -> None:
        basis.entries |= {(str(path), "") for path in item.files}
        if item.asked is not None and self.responses is None:
            basis.add(self.of_answer(item.asked, test))
        if isinstance(item, AgentClaims):
            self._add_agent(basis, item)
        self._add_class(basis, type(item))

    def _add_agent(self, basis: Basis, item: AgentClaims) -> None:
        """Add what an assert about an agent reads of the world, also where it does not exist yet."""
        if self.world is None or not is_agent_id(item.agent):
            return
        # They bring numpy and SQLAlchemy, which most suites do not need.
        from persona_pipeline.guard.baselines.golden import BASELINES, baseline_path
        from persona_pipeline.world.propositions.loading import DEFAULT, PROPOSITIONS

        self._add_persona(basis, self.world, item.agent)
        for dimension in item.judged_dimensions:
            _add_yaml(basis, self.world / PROPOSITIONS / dimension, DEFAULT, item.agent)
        if isinstance(item, PersonaDrift):
            basis.entries.add((str(baseline_path(self.world / BASELINES, item.agent)), ""))

    def _add_persona(self, basis: Basis, world: Path | None, agent: str | None) -> None:
        # The run reports a name that is not an agent's. It is not a path to look at.
        if world is not None and agent is not None and is_agent_id(agent):
            _add_yaml(basis, world / PERSONAS, agent)

    def _of_judge(self, agents: frozenset[str]) -> Basis:
        """Return what judgments rest on: the judge, and of recorded judgments those of these agents and of no agent."""
        basis = Basis({"judge": self.judge and self.judge.identity})
        folder = self.judge.recordings if self.judge else None
        if folder is not None:
            names = {path.name for path in folder.glob("*")} - {*yaml_stems(folder.parent / PERSONAS)}
            basis.entries = {(str(folder.resolve() / name), "**") for name in names | agents}
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
        shown = {key: value for key, value in filled.items() if key not in ("api_key", "headers")}
        basis = Basis({f"target {name}": self._portable([data, {**defaults, **shown}])})
        folder = Path(self.targets.path).parent.resolve()
        if provider == "replay":
            basis.entries.add((str(folder / str(filled.get("path"))), ""))
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
        # A function may have opened anything.
        entries = {*self.looks.everything} if isinstance(target, PythonTarget) else set[Entry]()
        return Basis({f"target {name}": target.fingerprint()}, entries)

    def _add_class(self, basis: Basis, model: type) -> None:
        """Add what an assert or a target may read that is no part of this program: anything."""
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


def _add_yaml(basis: Basis, folder: Path, *stems: str) -> None:
    basis.entries |= {(str(folder / f"{stem}.{ending}"), "") for stem in stems for ending in ("yaml", "yml")}
