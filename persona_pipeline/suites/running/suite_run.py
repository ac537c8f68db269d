"""Running one suite or several: every test with every target, in order and resumable."""

import contextlib
import contextvars
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from persona_pipeline.base.documents.json import content_hash
from persona_pipeline.base.errors import ConfigError, Problem
from persona_pipeline.base.settings import Settings, from_environment
from persona_pipeline.base.telemetry import EvaluationEvent, emitter
from persona_pipeline.judging.verdict import Usage
from persona_pipeline.suites.answering.base import Responses
from persona_pipeline.suites.format.files import ReasonedError
from persona_pipeline.suites.format.models import Suite
from persona_pipeline.suites.grading.results import Attempt, Failure, SuiteResult, SuiteVerdict, TestResult
from persona_pipeline.suites.grading.suite_judge import GivenJudge, SuiteJudge
from persona_pipeline.suites.running.cells import CellRunner
from persona_pipeline.suites.running.opening import OpenedSuite, SuiteFile, named_judge, open_suite
from persona_pipeline.suites.running.plan import (
    NothingToRunError,
    PlannedTest,
    RunOptions,
    Targets,
    answered_tests,
    plan,
    select_tests,
    why_nothing,
)


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
    judge: GivenJudge | SuiteJudge = None,
    options: RunOptions | None = None,
    on_result: Callable[[TestResult], None] | None = None,
) -> SuiteResult:
    """Run a suite and return every test's result, in the suite's order.

    Args:
        targets: not needed with ``responses``. A function is the target named default; a mapping has functions by name.
            Connections are closed at the end.
        responses: recorded answers to grade instead of asking targets.
        judge: the project's judge, or a function that opens it on first use, closed at the end; a ``SuiteJudge`` stays open.
            None: asserts that need a judge are errors.
        on_result: called with each finished result, one at a time.

    Raises:
        ConfigError: a filter matches nothing, or a target is missing or not valid.
    """
    options = options or RunOptions()
    if targets is not None and not isinstance(targets, Targets):
        targets = Targets.of(targets)
    cells = list(plan(suite, options, targets, responses))
    shared = judge if isinstance(judge, SuiteJudge) else SuiteJudge(judge)
    before = shared.usage
    keyed = bool(options.earlier) or (on_result is not None if options.keyed is None else options.keyed)
    runner = CellRunner(suite, options, shared, responses, targets, keyed)
    try:
        results = _run_all(cells, runner, on_result)
    finally:
        if shared is not judge:
            shared.close()
        runner.close()
        if targets is not None:
            targets.close()
    result = SuiteResult(
        suite.name,
        str(suite.path),
        results,
        suite.content_hash,
        [*(str(warning) for warning in suite.warnings), *_uncounted(shared)],
        shared.name,
        # The dollars of a judge without a known price stay unknown.
        {key: value and value - (before.get(key) or 0) for key, value in shared.usage.items()},
        "" if cells else why_nothing(suite, options),
    )
    sender = emitter(options.settings or from_environment(Settings))
    if sender is not None:
        # Failures of telemetry do not affect the run.
        sender.emit(suite_events(result))
    return result


def _uncounted(judge: SuiteJudge) -> list[str]:
    """Return a warning if a limit in dollars could not count an answer."""
    if judge.max_usd is None or not judge.uncounted:
        return []
    return ["a target did not report what its answers cost, so the limit in dollars does not count them"]


def _run_all(
    cells: Sequence[PlannedTest], runner: CellRunner, on_result: Callable[[TestResult], None] | None
) -> list[TestResult]:
    if not cells:
        return []
    # Recorded answers need no preparation.
    hooked = bool(runner.suite.framing) and runner.responses is None
    try:
        if hooked:
            with runner.bases.recording(runner.bases.framing):
                runner.workspaces.suite_hook("before_all")
    except ReasonedError as problem:
        failure = Failure(problem.reason, f"before_all: {problem.message}")
        attempt = Attempt(0, None, SuiteVerdict.ERROR, error=failure)
        return [runner.result_of(cell, TestResult("", "", None, attempt.verdict, attempt)) for cell in cells]
    earlier = {row.id: row for row in runner.options.earlier}
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
        return _in_order(one, cells, _workers(cells, runner))
    finally:
        with contextlib.suppress(ReasonedError):
            if hooked:
                runner.workspaces.suite_hook("after_all")


def _in_order(one: Callable[[PlannedTest], TestResult], cells: Sequence[PlannedTest], workers: int) -> list[TestResult]:
    if workers == 1 or len(cells) < 2:
        return [one(cell) for cell in cells]
    from concurrent.futures import ThreadPoolExecutor

    pool = ThreadPoolExecutor(workers, thread_name_prefix="suite")
    # Worker threads have the same settings.
    here = contextvars.copy_context()
    try:
        return list(pool.map(lambda cell: here.copy().run(one, cell), cells))
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _workers(cells: Sequence[PlannedTest], runner: CellRunner) -> int:
    if runner.options.workers is not None:
        return max(1, runner.options.workers)
    if runner.responses is not None:
        # Only the judge is asked, and it limits its calls itself.
        judged = any(item.needs_judge for cell in cells for item in runner.asserts(cell.test))
        return _JUDGED_AT_ONCE if judged else 1
    return min((cell.target.workers or 1 for cell in cells if cell.target), default=1)


def chosen(suites: Sequence[Suite], options: RunOptions) -> list[Suite]:
    """Return the suites with tests left by the filters. Raises ``NothingToRunError``: no suite has any."""
    left: list[Suite] = []
    problems: list[Problem] = []
    for suite in suites:
        try:
            select_tests(suite, options)
            left.append(suite)
        except NothingToRunError as error:
            problems += error.problems
    if not left:
        raise NothingToRunError(problems)
    return left


def prefixes(suites: Sequence[Suite]) -> list[str]:
    """Return the prefix of each suite's test ids in a joined result: its name, or its path if names are equal."""
    if len(suites) == 1:
        return [""]
    names = Counter(suite.name for suite in suites)
    return [f"{suite.name if names[suite.name] == 1 else suite.path}/" for suite in suites]


def with_prefix(test: TestResult, prefix: str) -> TestResult:
    """Return a suite's test as part of a joined result."""
    return replace(test, id=f"{prefix}{test.id}") if prefix else test


def joined(suites: Sequence[Suite], results: Sequence[SuiteResult]) -> SuiteResult:
    """Return a list of suite results as one result; a single result stays unchanged."""
    if len(results) == 1:
        return results[0]
    usages = [Usage(**result.usage) for result in results if result.usage]
    # A shard or ``--changed`` may leave some suites without tests.
    ran = any(result.tests for result in results)
    told = [result.reason for suite, result in zip(suites, results, strict=True) if not (ran and suite.tests)]
    return SuiteResult(
        f"{len(results)} suites",
        ", ".join(result.path for result in results),
        [
            with_prefix(test, prefix)
            for prefix, result in zip(prefixes(suites), results, strict=True)
            for test in result.tests
        ],
        " ".join(result.suite_hash for result in results),
        [warning for result in results for warning in result.warnings],
        next((result.judge for result in results if result.judge), None),
        dict(vars(sum(usages, Usage()))) if usages else {},
        "; ".join(dict.fromkeys(filter(None, told))),
        all(result.unchanged for result in results),
    )


def run_suites(
    suites: Sequence[Suite],
    options: RunOptions,
    *,
    targets: Sequence[Targets | None],
    judge: SuiteJudge,
    responses: Responses | None = None,
    changed: str | None = None,
    rows: Path | None = None,
    resume: bool = False,
    announce: Callable[[str], None] = lambda changed: None,
    on_result: Callable[[TestResult], None] | None = None,
) -> list[SuiteResult]:
    """Run several suites, one after the other, and return their results; the judge is closed at the end.

    Args:
        targets: those of each suite.
        responses: recorded answers to a single suite.
        changed: a commit; only tests that depend on a difference from it run.
        rows: a JSON lines file for results, appended as they finish.
        resume: keep the valid results of ``rows``.
        announce: called with the changes before the run.
        on_result: called with each result as part of the joined one.

    Raises:
        ConfigError: a target is missing or not valid, or the commit does not exist.
    """
    from persona_pipeline.suites.running.history import RowWriter, earlier_results

    own, touched = [options for _ in suites], ""
    if changed is not None:
        from persona_pipeline.suites.running.basis import Bases
        from persona_pipeline.suites.running.changed import changed_line, why_changed

        asked = [select_tests(suite, replace(options, shard=None)) for suite in suites]
        why = [
            why_changed(Bases(suite, found, responses, judge, options), tests, changed)
            for suite, found, tests in zip(suites, targets, asked, strict=True)
        ]
        own = [replace(options, only=frozenset(reasons)) for reasons in why]
        touched = changed_line((item for reasons in why for item in reasons.values()), sum(map(len, asked)))
    for suite, found, how in zip(suites, targets, own, strict=True):
        list(plan(suite, how, found, responses))
    if any(how.only for how in own):
        announce(touched)
    earlier = earlier_results(rows) if resume and rows is not None else []
    writer = None if rows is None else RowWriter(rows, append=resume)
    results: list[SuiteResult] = []
    try:
        for suite, found, how, prefix in zip(suites, targets, own, prefixes(suites), strict=True):

            def tell(test: TestResult, prefix: str = prefix) -> None:
                shown = with_prefix(test, prefix)
                if writer is not None and not test.resumed:
                    writer.write(shown)
                if on_result is not None:
                    on_result(shown)

            own_rows = (row for row in earlier if row.id.startswith(prefix))
            known = tuple(replace(row, id=row.id.removeprefix(prefix)) for row in own_rows)
            how = replace(how, earlier=known)
            results.append(
                run_suite(suite, targets=found, responses=responses, judge=judge, options=how, on_result=tell)
            )
    finally:
        judge.close()
        if writer is not None:
            writer.close()
    if changed is not None and not any(result.tests for result in results):
        results = [replace(result, reason=touched, unchanged=True) for result in results]
    return results


_DIGITS = 16


def look_at_suite(root: Path, file: SuiteFile, settings: Settings) -> tuple[str, OpenedSuite | ConfigError]:
    """Open a suite, and return the digest of all inputs of its verdicts (``Bases``).

    An invalid suite has a digest too, of the file and its problems.
    """
    from persona_pipeline.base.files import digest_within, repository_of
    from persona_pipeline.suites.running.basis import Bases

    path = file.within(root)
    try:
        opened = open_suite(root, file, settings)
    except ConfigError as error:
        try:
            digest = digest_within(path, [repository_of(root)])
        except OSError as unreadable:
            digest = f"unreadable-{unreadable.errno}"
        return f"invalid-{content_hash([digest, str(error)])[:_DIGITS]}", error
    shared = named_judge(settings.judge, settings, root)
    options = RunOptions(world_root=lambda: root, settings=settings)
    bases = Bases(opened.suite, opened.targets, None, shared, options)
    asked = answered_tests(opened.suite, options, opened.targets)
    digests = [[test.id, target, bases.digest(bases.of(test, target))] for _, test, target in asked]
    return content_hash(digests)[:_DIGITS], opened
