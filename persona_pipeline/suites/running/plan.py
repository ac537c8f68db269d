"""What a run will do: which tests, and who answers each."""

import fnmatch
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from persona_pipeline.errors import ConfigError, did_you_mean
from persona_pipeline.suites.format.models import Suite, Test
from persona_pipeline.suites.running.options import RunOptions
from persona_pipeline.suites.targets.config import Targets
from persona_pipeline.suites.targets.fields import TargetFields
from persona_pipeline.suites.targets.responses import Responses

DEFAULT_TARGET = "default"


class NothingToRunError(ConfigError):
    """What was asked leaves no test, such as a filter that matches none: no mistake in a file, and no verdict either."""


@dataclass(frozen=True)
class Cell:
    """One test with one target. ``target`` None: its answer is recorded."""

    id: str
    test: Test
    target_name: str | None
    target: TargetFields | None


def plan(
    suite: Suite, options: RunOptions, targets: Targets | None = None, responses: Responses | None = None
) -> Iterator[Cell]:
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
        yield Cell(f"{test.id}@{name}" if several else test.id, test, name, target)


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
