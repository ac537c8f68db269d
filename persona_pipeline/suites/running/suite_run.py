"""Running a suite: every test by every target, graded, in order, and resumable."""

import contextlib
import contextvars
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from persona_pipeline.base.settings import get_settings
from persona_pipeline.base.telemetry import EvaluationEvent, emitter
from persona_pipeline.suites.answering.responses import Responses
from persona_pipeline.suites.format.files import state_folder
from persona_pipeline.suites.format.models import Suite
from persona_pipeline.suites.grading.base import Services
from persona_pipeline.suites.grading.grades import Failure, SuiteVerdict
from persona_pipeline.suites.results.suite_result import Attempt, SuiteResult, TestResult
from persona_pipeline.suites.running.cells import CellRunner
from persona_pipeline.suites.running.opening import SharedJudge
from persona_pipeline.suites.running.plan import PlannedTest, RunOptions, plan, why_nothing
from persona_pipeline.suites.running.targets_file import Targets
from persona_pipeline.suites.sandbox.workspaces import WorkspaceError, Workspaces

if TYPE_CHECKING:
    from persona_pipeline.suites.grading.suite_judge import BackedJudge, SuiteJudge

_LOGGER = logging.getLogger("persona_pipeline.telemetry")


def announce_suite(result: SuiteResult) -> None:
    """Hand a suite's scores over where events are asked for; whatever goes wrong, the run does not learn of it."""
    sender = emitter(get_settings())
    if sender is None:
        return
    try:
        sender.emit(suite_events(result))
    except Exception:
        _LOGGER.exception("scores were not handed to OpenTelemetry")


def suite_events(result: SuiteResult) -> Iterator[EvaluationEvent]:
    """Yield the events of a suite's run."""
    for test in result.tests:
        given = {
            "persona.suite": result.suite,
            "persona.test.id": test.test_id,
            "persona.target": test.target,
            "gen_ai.conversation.id": test.conversation_id,
        }
        error = test.error.reason if test.error else None
        yield EvaluationEvent(result.suite, test.score, test.verdict.value, error, attributes=given)
        for item in test.best.results:
            yield EvaluationEvent(
                f"{result.suite}/{item.name}",
                item.score,
                item.verdict.value,
                item.error.reason if item.error else None,
                item.reasoning,
                attributes={**given, "persona.assert.type": item.type},
            )


_JUDGED_AT_ONCE = 20


def run_suite(
    suite: Suite,
    *,
    targets: Targets | Callable[..., Any] | Mapping[str, Callable[..., Any]] | None = None,
    responses: Responses | None = None,
    judge: "Callable[[], BackedJudge | SuiteJudge] | BackedJudge | SharedJudge | None" = None,
    options: RunOptions | None = None,
    on_result: Callable[[TestResult], None] | None = None,
) -> SuiteResult:
    """Run a suite and return every test's result, in the suite's order.

    Args:
        targets: who may answer; not needed with ``responses``. A function answers for the target named default, functions by name
            for those; their connections are closed at the end.
        responses: recorded answers to grade; no target is asked.
        judge: the project's judge, or a function that opens it when the first assert needs one, closed at the end; a shared one
            stays open. None: what needs a judge is an error.
        on_result: called with each result as soon as it is there, one at a time.

    Raises:
        ConfigError: a filter matches nothing, or a target is missing or not valid.
    """
    options = options or RunOptions()
    if targets is not None and not isinstance(targets, Targets):
        targets = Targets.of(targets)
    cells = list(plan(suite, options, targets, responses))
    shared = judge if isinstance(judge, SharedJudge) else SharedJudge(judge)
    before = shared.usage
    workspaces = Workspaces(
        suite,
        options.workspace_folder or state_folder(suite.path) / "workspaces",
        options.allow_code,
        options.keep_workspaces,
    )
    services = Services(
        judge=shared.get if shared.given is not None else None,
        allow_code=options.allow_code,
        world_root=options.world_root,
    )
    keyed = bool(options.earlier) or (on_result is not None if options.keyed is None else options.keyed)
    runner = CellRunner(suite, options, services, workspaces, responses, targets, keyed, shared)
    try:
        results = _run_all(suite, cells, runner, workspaces, options, on_result)
    finally:
        if shared is not judge:
            shared.close()
        workspaces.close()
        if targets is not None:
            targets.close()
    result = SuiteResult(
        suite.name,
        str(suite.path),
        results,
        suite.content_hash,
        [str(warning) for warning in suite.warnings],
        shared.name,
        shared.usage_since(before),
        "" if cells else why_nothing(suite, options),
    )
    announce_suite(result)
    return result


def _run_all(
    suite: Suite,
    cells: Sequence[PlannedTest],
    runner: CellRunner,
    workspaces: Workspaces,
    options: RunOptions,
    on_result: Callable[[TestResult], None] | None,
) -> list[TestResult]:
    if not cells:
        return []
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

    def one(cell: PlannedTest) -> TestResult:
        known = earlier.get(cell.id)
        result = known if known is not None and runner.is_done(cell, known) else runner.run(cell)
        if on_result is not None:
            with lock:
                on_result(result)
        return result

    try:
        return _in_order(one, cells, _workers(cells, options, runner))
    finally:
        with contextlib.suppress(WorkspaceError):
            if hooked:
                workspaces.suite_hook("after_all")


def _in_order(one: Callable[[PlannedTest], TestResult], cells: Sequence[PlannedTest], workers: int) -> list[TestResult]:
    if workers == 1 or len(cells) < 2:
        return [one(cell) for cell in cells]
    from concurrent.futures import ThreadPoolExecutor

    pool = ThreadPoolExecutor(workers, thread_name_prefix="suite")
    # The settings in force here are in force there.
    here = contextvars.copy_context()
    try:
        return list(pool.map(lambda cell: here.copy().run(one, cell), cells))
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _workers(cells: Sequence[PlannedTest], options: RunOptions, runner: CellRunner) -> int:
    if options.workers is not None:
        return max(1, options.workers)
    if runner.responses is not None:
        # Nobody is asked but the judge, which bounds its calls itself.
        judged = any(item.needs_judge for cell in cells for item in runner.asserts(cell.test))
        return _JUDGED_AT_ONCE if judged else 1
    return min((cell.target.workers or 1 for cell in cells if cell.target), default=1)


def _failed(cell: PlannedTest, failure: Failure, options: RunOptions) -> TestResult:
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
