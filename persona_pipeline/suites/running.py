"""Running a suite: every test by every target, graded, in order, and resumable."""

import contextlib
import dataclasses
import fnmatch
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from persona_pipeline.errors import ConfigError, did_you_mean
from persona_pipeline.suites.cells import Cell, CellRunner
from persona_pipeline.suites.context import DEFAULT_TIMEOUT, Services
from persona_pipeline.suites.grades import Failure, SuiteVerdict
from persona_pipeline.suites.loading.files import state_folder
from persona_pipeline.suites.models import Suite, Test
from persona_pipeline.suites.responses import Responses
from persona_pipeline.suites.results import Attempt, SuiteResult, TestResult
from persona_pipeline.suites.workspaces import WorkspaceError, Workspaces

if TYPE_CHECKING:
    from persona_pipeline.suites.judges import BackedJudge, SuiteJudge
    from persona_pipeline.suites.targets.config import Targets

DEFAULT_TARGET = "default"


@dataclass(frozen=True)
class RunOptions:
    """How a suite is run.

    Attributes:
        allow_code: code judges, code aggregators, prompt scripts, workspace hooks and cli targets may run.
        test_ids: globs; a test runs if one matches. Empty: all.
        tags: a test runs if it or its suite has one of them. Empty: all.
        targets: who answers instead of those the suite names.
        workers: tests at once; None: what the target says, else 1.
        timeout: seconds one attempt may take, answer and grading together.
        max_retries: further tries after a failure that can pass.
        cache: answer from earlier answers; None: as the suite says.
        cache_folder, workspace_folder: where answers and workspaces are kept; by default ``.persona`` at the top of the suite's
            repository.
        keep_workspaces: also those of tests that pass.
        world_root: gives the world's folder; asked only by persona asserts.
        earlier: rows of an interrupted run: what they finished is not run again.
        clock: the time that results carry.
    """

    allow_code: bool = False
    test_ids: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    workers: int | None = None
    timeout: float = DEFAULT_TIMEOUT
    max_retries: int = 2
    cache: bool | None = None
    cache_folder: Path | None = None
    workspace_folder: Path | None = None
    keep_workspaces: bool = False
    world_root: Callable[[], Path] | None = None
    earlier: Sequence[TestResult] = ()
    clock: Callable[[], datetime] = field(default=lambda: datetime.now(UTC), repr=False)


def run_suite(
    suite: Suite,
    *,
    targets: "Targets | None" = None,
    responses: Responses | None = None,
    judge: "Callable[[], BackedJudge | SuiteJudge] | BackedJudge | None" = None,
    options: RunOptions | None = None,
    on_result: Callable[[TestResult], None] | None = None,
) -> SuiteResult:
    """Run a suite and return every test's result, in the suite's order.

    Args:
        targets: who may answer; not needed with ``responses``.
        responses: recorded answers to grade; no target is asked.
        judge: the project's judge, or a function that opens it when the first assert needs one. None: what needs a judge is an
            error.
        on_result: called with each result as soon as it is there, one at a time.

    Raises:
        ConfigError: a filter matches nothing, or a target is missing or not valid.
    """
    options = options or RunOptions()
    cells = list(plan(suite, options, targets, responses))
    shared = _Judges(judge)
    workspaces = Workspaces(
        suite,
        options.workspace_folder or state_folder(suite.path) / "workspaces",
        options.allow_code,
        options.keep_workspaces,
    )
    services = Services(
        judge=shared.get if judge is not None else None,
        allow_code=options.allow_code,
        world_root=options.world_root,
    )
    keyed = on_result is not None or bool(options.earlier)
    runner = CellRunner(suite, options, services, workspaces, responses, targets, keyed)
    try:
        results = _run_all(suite, cells, runner, workspaces, options, on_result)
    finally:
        shared.close()
        workspaces.close()
    return SuiteResult(
        suite.name,
        str(suite.path),
        results,
        suite.content_hash,
        [str(warning) for warning in suite.warnings],
        shared.name,
        shared.usage,
    )


def plan(
    suite: Suite, options: RunOptions, targets: "Targets | None" = None, responses: Responses | None = None
) -> Iterator[Cell]:
    """Yield what will run: each chosen test with each of its targets.

    Raises:
        ConfigError: a filter matches nothing, or a named target does not exist.
    """
    named = [
        (test, name)
        for test in select_tests(suite, options)
        for name in targets_of(suite, test, options, targets, responses)
    ]
    if not named and suite.tests:
        raise ConfigError(f"no test of {suite.name} is for target {', '.join(options.targets)}")
    several = len({name for _, name in named}) > 1
    for test, name in named:
        target = None if responses is not None or targets is None else targets.open(name or DEFAULT_TARGET)
        yield Cell(f"{test.id}@{name}" if several else test.id, test, name, target)


def target_names(suite: Suite, targets: "Targets | None") -> list[str]:
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
        ConfigError: there are tests, and none is left.
    """
    tests = list(suite.tests)
    for pattern in options.test_ids:
        if tests and not any(fnmatch.fnmatchcase(test.id, pattern) for test in tests):
            raise ConfigError(
                f"no test of {suite.name} matches --test-id {pattern!r}{did_you_mean(pattern, [t.id for t in tests])}"
            )
    if options.test_ids:
        tests = [test for test in tests if any(fnmatch.fnmatchcase(test.id, glob) for glob in options.test_ids)]
    if options.tags and not set(options.tags) & set(suite.tags):
        tests = [test for test in tests if set(options.tags) & set(test.tags)]
    if not tests and suite.tests:
        asked = ", ".join((*options.test_ids, *options.tags))
        raise ConfigError(f"no test of {suite.name} is left by the filters {asked}")
    return tests


def targets_of(
    suite: Suite,
    test: Test,
    options: RunOptions,
    targets: "Targets | None",
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


def _run_all(
    suite: Suite,
    cells: Sequence[Cell],
    runner: CellRunner,
    workspaces: Workspaces,
    options: RunOptions,
    on_result: Callable[[TestResult], None] | None,
) -> list[TestResult]:
    # Recorded answers were given elsewhere: nothing is prepared for them.
    hooked = runner.responses is None
    try:
        if hooked:
            workspaces.suite_hook("before_all")
    except WorkspaceError as problem:
        failure = Failure(problem.reason, f"before_all: {problem.message}")
        return [_failed(cell, failure, options) for cell in cells]
    earlier = {row.id: row for row in options.earlier}
    runner.prefetch([cell for cell in cells if cell.id not in earlier])
    lock = threading.Lock()

    def one(cell: Cell) -> TestResult:
        known = earlier.get(cell.id)
        result = known if known is not None and runner.is_done(cell, known) else runner.run(cell)
        if on_result is not None:
            with lock:
                on_result(result)
        return result

    try:
        return _in_order(one, cells, _workers(cells, options))
    finally:
        with contextlib.suppress(WorkspaceError):
            if hooked:
                workspaces.suite_hook("after_all")


def _in_order(one: Callable[[Cell], TestResult], cells: Sequence[Cell], workers: int) -> list[TestResult]:
    if workers == 1 or len(cells) < 2:
        return [one(cell) for cell in cells]
    from concurrent.futures import ThreadPoolExecutor

    pool = ThreadPoolExecutor(workers, thread_name_prefix="suite")
    try:
        return list(pool.map(one, cells))
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _workers(cells: Iterable[Cell], options: RunOptions) -> int:
    if options.workers is not None:
        return max(1, options.workers)
    return min((cell.target.workers or 1 for cell in cells if cell.target), default=1)


def _failed(cell: Cell, failure: Failure, options: RunOptions) -> TestResult:
    attempt = Attempt(0, None, SuiteVerdict.ERROR, error=failure)
    return TestResult(
        cell.id,
        cell.test.id,
        None,
        SuiteVerdict.ERROR,
        attempt,
        cell.target_name,
        cell.test.dataset,
        timestamp=options.clock().isoformat(),
    )


class _Judges:
    """Opens the judge once, when it is needed, from whichever thread needs it first."""

    def __init__(self, judge: Any) -> None:
        self._given = judge
        self._opened: SuiteJudge | None = None
        self._lock = threading.Lock()

    def get(self) -> "SuiteJudge":
        from persona_pipeline.suites.judges import SuiteJudge

        with self._lock:
            if self._opened is None:
                given: Any = self._given() if callable(self._given) else self._given
                self._opened = given if isinstance(given, SuiteJudge) else SuiteJudge(given)
            return self._opened

    @property
    def name(self) -> str | None:
        return self._opened.name if self._opened else None

    @property
    def usage(self) -> Mapping[str, Any]:
        return dataclasses.asdict(self._opened.usage) if self._opened else {}

    def close(self) -> None:
        if self._opened:
            self._opened.close()
