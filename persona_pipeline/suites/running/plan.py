"""What a run will do: which tests, and who answers each."""

import fnmatch
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from persona_pipeline.base.errors import ConfigError, did_you_mean
from persona_pipeline.suites.answering.base import TargetFields
from persona_pipeline.suites.answering.responses import Responses
from persona_pipeline.suites.format.models import Suite, Test
from persona_pipeline.suites.grading.base import DEFAULT_TIMEOUT
from persona_pipeline.suites.results.suite_result import TestResult
from persona_pipeline.suites.running.targets_file import Targets


@dataclass(frozen=True)
class RunOptions:
    """How a suite is run.

    Attributes:
        allow_code: code judges, code aggregators, prompt scripts, workspace hooks and cli targets may run.
        test_ids: globs; a test runs if one matches. Empty: all.
        tags: a test runs if it or its suite has one of them. Empty: all.
        only: ids of tests that may run; None: all. None of them is no mistake.
        shard: which part of the tests, and of how many, such as (2, 4); None: all.
        targets: who answers instead of those the suite names.
        workers: tests at once; None: what the target says, else 1, and 20 of recorded answers where a judge grades them.
        timeout: seconds one attempt may take, answer and grading together.
        max_retries: further tries after a failure that can pass.
        cache: answer from earlier answers; None: as the suite says.
        cache_folder, workspace_folder: where answers and workspaces are kept; by default ``.persona`` at the top of the suite's
            repository.
        keep_workspaces: also those of tests that pass.
        world_root: gives the world's folder; asked only by persona asserts.
        keyed: results carry the digest of what they rest on, so that a later run can go on from them; None: where they are heard
            one by one.
        written: files that the run writes: no result rests on them.
        earlier: rows of an interrupted run: what they finished is not run again.
        clock: the time that results carry.
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
    cache_folder: Path | None = None
    workspace_folder: Path | None = None
    keep_workspaces: bool = False
    world_root: Callable[[], Path] | None = None
    keyed: bool | None = None
    written: tuple[Path, ...] = ()
    earlier: Sequence[TestResult] = ()
    clock: Callable[[], datetime] = field(default=lambda: datetime.now(UTC), repr=False)

    @property
    def may_leave_none(self) -> bool:
        """Whether it is no mistake when no test is left: a shard may be empty, and nothing may have changed."""
        return self.shard is not None or self.only is not None


DEFAULT_TARGET = "default"


class NothingToRunError(ConfigError):
    """What was asked leaves no test, such as a filter that matches none: no mistake in a file, and no verdict either."""


@dataclass(frozen=True)
class PlannedTest:
    """One test with one target. ``target`` None: its answer is recorded."""

    id: str
    test: Test
    target_name: str | None
    target: TargetFields | None


def plan(
    suite: Suite, options: RunOptions, targets: Targets | None = None, responses: Responses | None = None
) -> Iterator[PlannedTest]:
    """Yield what will run: each chosen test with each of its targets.

    Raises:
        NothingToRunError: a filter matches nothing.
        ConfigError: a named target does not exist.
    """
    named = [
        (test, name)
        for test in select_tests(suite, options)
        for name in targets_of(suite, test, options, targets, responses)
    ]
    if not named and suite.tests and not options.may_leave_none:
        raise NothingToRunError(f"no test of {suite.name} is for target {', '.join(options.targets)}")
    several = len({name for _, name in named}) > 1
    for test, name in named:
        target = None if responses is not None or targets is None else targets.open(name or DEFAULT_TARGET)
        yield PlannedTest(f"{test.id}@{name}" if several else test.id, test, name, target)


def target_names(suite: Suite, targets: Targets | None) -> list[str]:
    """Return who answers the suite's tests, in order of first mention, without opening anyone.

    Raises:
        ConfigError: there are tests and nobody answers.
    """
    everything = RunOptions()
    named = (name for test in suite.tests for name in targets_of(suite, test, everything, targets, None))
    return list(dict.fromkeys(name for name in named if name is not None))


def select_tests(suite: Suite, options: RunOptions) -> list[Test]:
    """Return the tests the filters leave.

    Raises:
        NothingToRunError: there are tests, and none is left.
    """
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
    """Return in a sentence why a run has no tests, where that is no mistake of a filter."""
    if not suite.tests:
        return f"{suite.name} has no tests"
    if options.shard is None or options.only is not None:
        return f"no test of {suite.name} was asked for"
    part, count = options.shard
    left = len(select_tests(suite, replace(options, shard=None)))
    return f"no test is in shard {part}/{count}: there are {left}; take fewer shards"


def parse_shard(text: str) -> tuple[int, int]:
    """Return the part and of how many, from a text such as 2/4.

    Raises:
        ConfigError: it is no such text.
    """
    part, sign, count = text.partition("/")
    if (
        sign
        and part.isascii()
        and part.isdigit()
        and count.isascii()
        and count.isdigit()
        and 1 <= int(part) <= int(count)
    ):
        return int(part), int(count)
    raise ConfigError(f"--shard {text!r} is no part such as 2/4: the second of four")


def targets_of(
    suite: Suite,
    test: Test,
    options: RunOptions,
    targets: Targets | None,
    responses: Responses | None,
) -> Sequence[str | None]:
    """Return who answers a test; a None in it is whoever gave the recorded answer.

    Raises:
        ConfigError: nobody does: there are neither targets nor recorded answers.
    """
    wanted = options.targets or suite.targets or ((suite.target,) if suite.target else ())
    if test.targets is not None:
        # A test says who may answer it; naming targets for a run leaves it out where they do not meet.
        wanted = tuple(name for name in wanted if name in test.targets) if options.targets else test.targets
        if not wanted:
            return ()
    if responses is not None:
        return wanted if wanted else (None,)
    if targets is None:
        raise ConfigError(
            f"{suite.path}: nobody answers: write a targets.yaml, or grade recorded answers with --responses FILE"
        )
    if wanted:
        return wanted
    if DEFAULT_TARGET in targets.names or len(targets.names) != 1:
        return (DEFAULT_TARGET,)
    return (targets.names[0],)
