"""Planning a run: its options, targets, tests, and needs."""

import fnmatch
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from persona_pipeline.base.errors import ConfigError, NothingError, Problem, did_you_mean
from persona_pipeline.base.settings import Settings, from_environment
from persona_pipeline.suites.answering.base import OWN, Grants, Responses, TargetFields
from persona_pipeline.suites.format.files import Files
from persona_pipeline.suites.format.models import AssertFields, Suite, Test, rename
from persona_pipeline.suites.format.problems import ConfigEntry, Reader
from persona_pipeline.suites.format.registry import default_assert
from persona_pipeline.suites.grading.base import DEFAULT_TIMEOUT
from persona_pipeline.suites.grading.results import TestResult, gate_of
from persona_pipeline.suites.targets.registry import TARGETS, find_provider, with_function


@dataclass(frozen=True)
class RunOptions:
    """Options of a run.

    Attributes:
        allow_code: whether code judges, aggregators, prompt scripts, workspace hooks and cli targets may run.
        test_ids: globs; a test runs if one matches. Empty: all.
        tags: a test runs if it or its suite has one of them. Empty: all.
        only: ids of tests that may run; None: all. It may be empty.
        shard: part of the tests and number of parts, such as (2, 4); None: all.
        targets: used instead of the targets in the suite.
        workers: tests at once; None: as the target has it, else 1, and 20 for recorded answers with a judge.
        timeout: seconds for one attempt, answer and grading together.
        max_retries: further tries after a failure that can pass.
        cache: whether cached answers are used; None: as the suite has it.
        settings: folders of caches and workspaces, and telemetry; None: from the environment.
        keep_workspaces: also those of passed tests.
        world_root: returns the world's folder; called only for persona asserts.
        keyed: whether results have the digest of their inputs, for later runs; None: if there is an ``on_result``.
        written: files that the run writes, on which no result depends.
        earlier: rows of an interrupted run, which are kept.
        clock: returns the time of results.
    """

    allow_code: bool = False
    test_ids: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    only: frozenset[str] | None = None
    shard: tuple[int, int] | None = None
    targets: tuple[str, ...] = ()
    workers: int | None = None
    timeout: float = DEFAULT_TIMEOUT
    max_retries: int = 2
    cache: bool | None = None
    settings: Settings | None = None
    keep_workspaces: bool = False
    world_root: Callable[[], Path] | None = None
    keyed: bool | None = None
    written: tuple[Path, ...] = ()
    earlier: Sequence[TestResult] = ()
    clock: Callable[[], datetime] = field(default=lambda: datetime.now(UTC), repr=False)

    @property
    def state(self) -> Path | None:
        """Folder of caches and workspaces; None: ``.persona`` at the top of the suite's repository."""
        return (self.settings or from_environment(Settings)).state


_REFERENCE = re.compile(r"\$\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")


@dataclass
class Targets:
    """The entries of a targets file. Each is read, and its variables filled, on first use."""

    path: str
    entries: Mapping[str, ConfigEntry]
    environment: Mapping[str, str]
    grants: Grants = OWN
    _opened: dict[str, TargetFields] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        return list({**self.entries, **self._opened})

    def runs_code(self, name: str) -> bool | None:
        """Return whether a target needs permission to run code, without opening it; None: the target does not exist."""
        if name not in self.names:
            return None
        model = self._model(name)
        return model is not None and model.runs_code

    def asks_network(self, name: str) -> bool:
        """Return whether a target needs permission to ask a server, without opening it."""
        model = self._model(name)
        return model is not None and model.asks_network and not self.grants.reaches

    def is_recorded(self, name: str) -> bool:
        """Return whether a target replays recorded answers, so its simulated user is not asked either."""
        return getattr(self._model(name), "is_recorded", False)

    def reads(self, name: str) -> list[str]:
        """Return the environment variables that a target names and may not read, without opening it."""
        entry = self.entries.get(name)
        named = [] if entry is None else _REFERENCE.findall(json.dumps(entry.data, ensure_ascii=False, default=str))
        return [variable for variable in dict.fromkeys(named) if not self.grants.reads(variable)]

    def unknown_providers(self) -> list[Problem]:
        """Return a problem for every entry with an unknown provider."""
        return [self._unknown_provider(name) for name in self.entries if self._model(name) is None]

    def _unknown_provider(self, name: str) -> Problem:
        entry = self.entries[name]
        provider = entry.data.get("provider")
        said = f"target {name!r}: provider {provider!r} is unknown{TARGETS.hint(str(provider))}"
        return entry.problem(said, "provider")

    def _model(self, name: str) -> type[TargetFields] | None:
        if name in self._opened:
            return type(self._opened[name])
        provider = self.entries[name].data.get("provider") if name in self.entries else None
        return find_provider(provider) if isinstance(provider, str) else None

    @classmethod
    def of(cls, given: "Callable[..., Any] | Mapping[str, Callable[..., Any]]") -> "Targets":
        """Return targets that are Python functions: one named default, or each by its name.

        Raises ``ConfigError``: one is not a function.
        """
        from persona_pipeline.suites.targets.python import target_of

        functions = given if isinstance(given, Mapping) else {"default": given}
        return cls("", {}, {}, _opened={name: target_of(function, name) for name, function in functions.items()})

    def close(self) -> None:
        """Close connections of targets; a further answer opens them again."""
        for target in self._opened.values():
            target.close()

    def open(self, name: str) -> TargetFields:
        """Return a target that is ready to answer.

        Raises ``ConfigError``: it does not exist, its entry is not valid, or a variable is not set.
        """
        if name not in self._opened:
            self._opened[name] = self._open(name)
        return self._opened[name]

    def filled(self, name: str) -> dict[str, Any]:
        """Return a target's keys with the permitted environment variables filled, without opening it."""
        entry = self.entries[name]
        return self._filled(with_function(entry.data), entry, (), Reader(Files(), Path(self.path).parent))

    def _open(self, name: str) -> TargetFields:
        if name not in self.entries:
            known = ", ".join(self.names) or "none"
            place = f" in {self.path}" if self.path else ""
            raise ConfigError(f"there is no target {name!r}{place}{did_you_mean(name, self.names)}; known: {known}")
        entry = self.entries[name].named(f"target {name!r}")
        reader = Reader(Files(), Path(self.path).parent)
        model = self._model(name)
        if model is None:
            raise ConfigError(self._unknown_provider(name))
        data = self._filled(with_function(entry.data), entry, (), reader)
        if reader.problems:
            raise ConfigError(reader.problems)
        for written, older in model.older_names.items():
            rename(data, older, written)
        target = reader.validated(model, data, entry)
        if target is None:
            raise ConfigError(reader.problems)
        target._folder = Path(self.path).parent
        target._grants = self.grants
        opens = getattr(target, "open", None)
        if opens is not None:
            opens()
        return target

    def _filled(self, value: Any, entry: ConfigEntry, location: tuple[str | int, ...], reader: Reader) -> Any:
        """Replace ``${{ NAME }}`` with the environment variable, once."""
        if isinstance(value, dict):
            return {key: self._filled(item, entry, (*location, key), reader) for key, item in value.items()}
        if isinstance(value, list):
            return [self._filled(item, entry, (*location, index), reader) for index, item in enumerate(value)]
        if not isinstance(value, str) or "${{" not in value:
            return value
        for name in _REFERENCE.findall(value):
            if not self.grants.reads(name):
                said = f"reads the environment variable {name}; pass --allow-env {name} if you trust the suite with it"
                reader.fail(entry, said, *location)
            elif name not in self.environment:
                said = f"the environment variable {name} is not set; export it or add it to .env"
                reader.fail(entry, said, *location)
        readable = {name: text for name, text in self.environment.items() if self.grants.reads(name)}
        return _REFERENCE.sub(lambda match: readable.get(match[1], ""), value)


DEFAULT_TARGET = "default"


class NothingToRunError(NothingError):
    """The filters leave no tests. This is neither a mistake in a file nor a verdict."""


@dataclass(frozen=True)
class PlannedTest:
    """One test with one target. ``target`` None: its answer is recorded.

    ``asked``: a turn of a conversation, as a test whose input is the conversation so far; ``turn``: its number.
    """

    id: str
    test: Test
    target_name: str | None
    target: TargetFields | None
    asked: Test | None = None
    turn: int = 0
    conversation: str = ""


def plan(
    suite: Suite, options: RunOptions, targets: Targets | None = None, responses: Responses | None = None
) -> Iterator[PlannedTest]:
    """Yield the tests to run: each chosen test with each of its targets.

    Raises ``NothingToRunError``: a filter matches nothing; ``ConfigError``: a named target does not exist.
    """
    named = answered_tests(suite, options, targets, responses, select_tests(suite, options))
    # A shard may be empty, and there may be no changes.
    if not named and suite.tests and options.shard is None and options.only is None:
        raise NothingToRunError(f"no test of {suite.name} is for target {', '.join(options.targets)}")
    for identity, test, name in named:
        target = None if responses is not None or targets is None else targets.open(name or DEFAULT_TARGET)
        yield PlannedTest(identity, test, name, target)


def answered_tests(
    suite: Suite,
    options: RunOptions,
    targets: Targets | None,
    responses: Responses | None = None,
    tests: Sequence[Test] | None = None,
) -> list[tuple[str, Test, str | None]]:
    """Return each test with each of its targets, under the id of its result. Raises ``ConfigError``: no target answers."""
    chosen = suite.tests if tests is None else tests
    found = [(test, name) for test in chosen for name in targets_of(suite, test, options, targets, responses)]
    several = len({name for _, name in found}) > 1
    return [(f"{test.id}@{name}" if several else test.id, test, name) for test, name in found]


def target_names(suite: Suite, targets: Targets | None) -> list[str]:
    """Return the targets of the suite's tests, in order of first mention, without opening them.

    Raises ``ConfigError``: there are tests and no targets.
    """
    return list(dict.fromkeys(name for *_, name in answered_tests(suite, RunOptions(), targets) if name is not None))


def target_problems(suite: Suite, targets: Targets) -> list[Problem]:
    """Return the problems of a suite's targets: names that the file lacks, each once, and unknown providers.

    No target is opened, so no key is needed and no server is asked.
    """
    asked: list[tuple[str | None, ConfigEntry | None]] = [
        (name, None) for name in (suite.target, *(suite.targets or ()))
    ]
    for test in suite.tests:
        asked += [(name, test.entry) for name in (*(test.targets or ()), test.user and test.user.target)]
    named: dict[str, Problem] = {}
    for name, entry in asked:
        if name is not None and name not in targets.names and name not in named:
            said = f"there is no target {name!r} in {targets.path}{did_you_mean(name, targets.names)}"
            named[name] = entry.problem(said) if entry else Problem(said, str(suite.path))
    return [*named.values(), *targets.unknown_providers()]


def select_tests(suite: Suite, options: RunOptions) -> list[Test]:
    """Return the tests that the filters leave. Raises ``NothingToRunError``: none is left."""
    tests = list(suite.tests)
    for pattern in options.test_ids:
        if tests and not any(fnmatch.fnmatchcase(test.id, pattern) for test in tests):
            raise NothingToRunError(
                f"no test of {suite.name} matches --test-id {pattern!r}{did_you_mean(pattern, [t.id for t in tests])}"
            )
    if options.test_ids:
        tests = [test for test in tests if any(fnmatch.fnmatchcase(test.id, glob) for glob in options.test_ids)]
    if options.tags and not set(options.tags) & set(suite.tags):
        tests = [test for test in tests if set(options.tags) & set(test.tags)]
    if not tests and suite.tests:
        asked = ", ".join((*options.test_ids, *options.tags))
        raise NothingToRunError(f"no test of {suite.name} is left by the filters {asked}")
    if options.only is not None:
        tests = [test for test in tests if test.id in options.only]
    if options.shard is not None:
        part, count = options.shard
        tests = tests[part - 1 :: count]
    return tests


def why_nothing(suite: Suite, options: RunOptions) -> str:
    """Return in a sentence why a run has no tests although its filters are valid."""
    if not suite.tests:
        return f"{suite.name} has no tests"
    if options.shard is None or options.only is not None:
        return f"no test of {suite.name} was asked for"
    part, count = options.shard
    left = len(select_tests(suite, replace(options, shard=None)))
    return f"no test is in shard {part}/{count}: there are {left}; take fewer shards"


def parse_shard(text: str) -> tuple[int, int]:
    """Return part and number of parts of a text such as 2/4. Raises ``ConfigError``: it has another form."""
    part, sign, count = text.partition("/")
    if sign and all(text.isascii() and text.isdigit() for text in (part, count)) and 1 <= int(part) <= int(count):
        return int(part), int(count)
    raise ConfigError(f"--shard {text!r} is no part such as 2/4: the second of four")


def targets_of(
    suite: Suite, test: Test, options: RunOptions, targets: Targets | None, responses: Responses | None
) -> Sequence[str | None]:
    """Return the targets of a test; None in it is the unnamed target of a recorded answer.

    Raises ``ConfigError``: there are neither targets nor recorded answers.
    """
    wanted = options.targets or suite.targets or ((suite.target,) if suite.target else ())
    if test.targets is not None:
        # A run's targets apply to a test only if the test allows them.
        wanted = tuple(name for name in wanted if name in test.targets) if options.targets else test.targets
        if not wanted:
            return ()
    if responses is not None:
        return wanted if wanted else (None,)
    if targets is None:
        raise ConfigError(
            f"{suite.path}: there is no target: write a targets.yaml, or grade recorded answers with --responses FILE"
        )
    if wanted:
        return wanted
    if DEFAULT_TARGET in targets.names or (targets.path and len(targets.names) != 1):
        return (DEFAULT_TARGET,)
    # All named functions answer, except the simulated user.
    return tuple(name for name in targets.names if targets.path or not test.user or name != test.user.target)


def explain(suite: Suite, tests: Sequence[Test], targets: Targets | None = None) -> list[dict[str, Any]]:
    """Return each test as JSON: its targets, attempts and asserts, and what the answer and the asserts need.

    ``targets``: those to choose from; None without a targets file. An assert's ``origin`` is ``test`` (its own), ``suite``
    (inherited) or ``fallback`` (the test has none), its ``share`` of the score 0-1; None: all weights are 0.
    """
    return [_explained(suite, test, targets) for test in tests]


def _explained(suite: Suite, test: Test, targets: Targets | None) -> dict[str, Any]:
    trials = suite.trials_of(test)
    named = test.targets or suite.targets or ((suite.target,) if suite.target else (DEFAULT_TARGET,))
    if targets is not None:
        named = tuple(name for name in targets_of(suite, test, RunOptions(), targets, None) if name)
    asserts = _named(test) or [("", default_assert(suite.evaluator))]
    total = sum(item.weight for _, item in asserts)
    asked = [*named, test.user.target] if test.user and targets and not all(map(targets.is_recorded, named)) else named
    needs = [need for name in asked for need in _target_needs(name, targets)]
    if test.workspace is not None and test.workspace.hooks:
        needs.append("code (workspace hooks)")
    return {
        "id": test.id,
        "place": test.entry and test.entry.place,
        "targets": list(named),
        "attempts": trials.count if trials else 1,
        "strategy": trials.label if trials else None,
        "needs": needs,
        "asserts": [_explained_assert(item, test, total, turn) for turn, item in asserts],
    }


def _named(test: Test) -> list[tuple[str, AssertFields]]:
    """Return each assert with the prefix of its result's name: the turn, or ""."""
    own = ((f"turn {number}: ", item) for number, turn in enumerate(test.turns, start=1) for item in turn.asserts)
    return [*(("", item) for item in test.asserts), *own, *(("each turn: ", item) for item in test.each_turn)]


def _target_needs(name: str, targets: Targets | None) -> Iterator[str]:
    if targets is None:
        return
    runs_code = targets.runs_code(name)
    if runs_code is None:
        yield f"target {name} (there is none)"
    elif runs_code:
        yield f"code (target {name})"
    if targets.asks_network(name):
        yield f"a server (target {name}; --allow-targets)"
    for variable in targets.reads(name):
        yield f"the environment variable {variable} (target {name}; --allow-env {variable})"


def _explained_assert(item: AssertFields, test: Test, total: float, turn: str) -> dict[str, Any]:
    needs = [word for word, needed in (("judge", item.needs_judge), ("code", item.needs_code)) if needed]
    if item.needs_workspace and test.workspace is None:
        needs.append("workspace (there is none)")
    return {
        "name": f"{turn}{item.name}",
        "type": item.type,
        "origin": "fallback" if not test.all_asserts else "test" if _within(item, test) else "suite",
        "weight": item.weight,
        "share": item.weight / total if total else None,
        "gate": gate_of(item.required),
        "needs": needs,
        "place": item.entry and item.entry.place,
    }


def _within(item: AssertFields, test: Test) -> bool:
    """Return whether an assert is written inside the test."""
    own, outer = item.entry, test.entry
    if own is None or outer is None or own.source != outer.source:
        return False
    return own.location[: len(outer.location)] == outer.location
