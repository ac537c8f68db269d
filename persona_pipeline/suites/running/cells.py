"""One test with one target: asked, graded, tried again where that can help."""

import contextlib
import dataclasses
import hashlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.suites.answering.base import (
    OutputCache,
    PromptFiles,
    Request,
    ResponseError,
    Responses,
    TargetError,
    TargetFields,
    ask,
    cache_key,
    file_parts,
    prompt_text,
    request_key,
)
from persona_pipeline.suites.answering.output import Output
from persona_pipeline.suites.asserts.registry import default_assert
from persona_pipeline.suites.format.files import FileError, state_folder
from persona_pipeline.suites.format.models import BORDERLINE, PASS, Suite, Test, TrialsFields
from persona_pipeline.suites.grading.base import Assert, Context, Services, run_assert
from persona_pipeline.suites.grading.results import (
    AssertResult,
    Attempt,
    Failure,
    SuiteVerdict,
    TestResult,
    UngradedError,
    reaches,
    verdict_of,
)
from persona_pipeline.suites.grading.statistics import mean_interval, share_interval, weighted_mean
from persona_pipeline.suites.running.opening import SharedJudge
from persona_pipeline.suites.running.plan import PlannedTest, RunOptions, Targets
from persona_pipeline.suites.sandbox.workspaces import WorkspaceError, WorkspaceFolder, Workspaces

if TYPE_CHECKING:
    from persona_pipeline.suites.running.basis import Bases


def score_test(results: Sequence[AssertResult], output: Output | None = None, number: int = 0) -> Attempt:
    """Return an answer with the score that its asserts make.

    A gate that is not met makes the score 0, whatever the others say. Otherwise an assert without a score makes the test an error:
    a number without it would be a guess. Otherwise the score is the weighted mean.
    """
    gates = tuple(item.name for item in results if item.gate_failed)
    if gates:
        return Attempt(number, 0.0, SuiteVerdict.FAIL, results, output, gates)
    scored = [(item.score, item.weight) for item in results if item.score is not None]
    if len(scored) < len(results) or not results:
        return Attempt(number, None, SuiteVerdict.ERROR, results, output)
    score = weighted_mean(scored)
    return Attempt(number, score, verdict_of(score), results, output)


def run_trials(trials: TrialsFields, attempt: Callable[[int], Attempt], *, gated: bool = False) -> TestResult:
    """Make attempts until the verdict is certain, the count is reached or the money is spent, and put them together.

    The result's ``score`` is None for an error; ``best`` is the attempt that is shown. Whose result it is the caller knows.
    ``gated``: an assert is a gate, which an attempt that is not made might miss.
    """
    attempts: list[Attempt] = []
    spent, limited, notes = 0.0, False, []
    for number in range(trials.count):
        attempts.append(attempt(number))
        cost = attempts[-1].cost_usd
        if trials.cost_limit_usd is not None and cost is None and not notes:
            notes.append("an attempt reported no cost, so the cost limit could not count it")
        spent += cost or 0.0
        limited = trials.cost_limit_usd is not None and spent >= trials.cost_limit_usd
        score = _certain(trials, attempts, trials.count, gated)
        # How often attempts differ is told from all of them, but a test that fails needs no more.
        if limited or (score is not None and (trials.flakes_at_most is None or not reaches(score, BORDERLINE))):
            break
    return _outcome(trials, attempts, gated, limited, notes)


def _certain(trials: TrialsFields, attempts: Sequence[Attempt], planned: int, gated: bool) -> float | None:
    """Return the score by which the verdict is certain, whatever attempts that are missing or unjudged would be; else None.

    It is that of the k-th best attempt where k must pass, and of fewer attempts than planned the bound of it that decides.
    """
    if trials.every_gate and any(item.failed_gates for item in attempts):
        return 0.0
    if trials.needed is None:
        return None
    ordered = sorted((item.score for item in attempts if item.score is not None), reverse=True)
    unknown = planned - len(ordered)
    least = [*ordered, *[0.0] * unknown][trials.needed - 1]
    most = [*[1.0] * unknown, *ordered][trials.needed - 1]
    if verdict_of(least) is not verdict_of(most):
        return None
    if reaches(least, PASS):
        return None if unknown and gated and trials.every_gate else least
    return most


def _outcome(
    trials: TrialsFields, attempts: Sequence[Attempt], gated: bool, limited: bool, notes: Sequence[str]
) -> TestResult:
    scores = [attempt.score for attempt in attempts if attempt.score is not None]
    passed = sum(reaches(score, PASS) for score in scores)
    # The best of those that money allowed counts (spec/4); how many of all would have passed cannot be told.
    planned = len(attempts) if trials.strategy == "pass_at_k" and not trials.every_gate else trials.count
    rest = f"{len(attempts) - len(scores)} could not be judged, {trials.count - len(attempts)} were not made"
    left = gated and trials.every_gate and len(scores) < trials.count
    score, why = _certain(trials, attempts, planned, gated), None
    aggregation: dict[str, Any] = {"strategy": trials.strategy}
    if trials.needed is not None:
        aggregation |= {"passed_attempts": passed, "total_attempts": len(attempts)}
        if trials.at_least is not None:
            aggregation |= {"at_least": trials.at_least, "of": trials.count}
        if score is None:
            why = (
                f"of {trials.count} attempts {passed} passed, {rest}: whether {trials.needed} would pass cannot be told"
            )
    elif left and score is None:
        why = f"of {trials.count} attempts {rest}: whether a gate holds in every one cannot be told"
    elif score is not None or len(scores) < len(attempts):
        pass
    elif trials.strategy == "mean" or len(scores) < 2:
        score = math.fsum(scores) / len(scores)
        aggregation |= {"mean": score, "min": min(scores), "max": max(scores)}
    else:
        mean, lower, upper, spread = mean_interval(scores)
        score, upper = max(0.0, lower), min(1.0, upper)
        aggregation |= {"mean": mean, "ci95_lower": score, "ci95_upper": upper, "stddev": spread}
    if len(scores) == trials.count > 1:
        aggregation["flake_rate"] = _flake_rate(passed, trials.count)
    if trials.flakes_at_most is not None and score is not None and reaches(score, BORDERLINE):
        score, why = _steady(trials.flakes_at_most, aggregation.get("flake_rate"), score)
    scored = [attempt for attempt in attempts if attempt.score is not None]
    missed = next((item for item in attempts if item.failed_gates), None) if trials.every_gate else None
    if missed is not None:
        why = f"a gate holds in every attempt, and attempt {missed.number + 1} missed one"
    elif trials.needed is not None and score is not None:
        missed = next((item for item in scored if item.score == score), None)
    best = missed or max(scored, key=lambda item: item.score or 0.0, default=attempts[0])
    if why is not None:
        aggregation["why"] = why
    verdict = SuiteVerdict.ERROR if score is None else verdict_of(score)
    return TestResult(
        "", "", score, verdict, best, attempts=attempts, aggregation=aggregation, cost_limited=limited, notes=notes
    )


def _flake_rate(passed: int, total: int) -> dict[str, float]:
    """Return the share of attempts that came out unlike most, passed or not, with its exact 95 % interval."""
    flakes = min(passed, total - passed)
    low, high = share_interval(flakes, total) or (0.0, 1.0)
    return {"value": flakes / total, "low": low, "high": high}


def _steady(most: float, rate: Mapping[str, float] | None, score: float) -> tuple[float | None, str | None]:
    """Return a test's score, 0 where its attempts differ too often, None where that cannot be told; and why."""
    if rate is None:
        return None, f"how often attempts differ cannot be told: not all were made and judged (at most {most:.0%} may)"
    if rate["high"] <= most:
        return score, None
    said = f"flake rate {rate['value']:.0%} (95 % interval {rate['low']:.0%} to {rate['high']:.0%}), at most {most:.0%} is allowed"
    return (0.0, said) if rate["low"] > most else (None, f"{said}; a larger count could tell")


@dataclass
class CellRunner:
    """Runs cells; one instance serves all threads of a run.

    ``keyed``: results carry the digest by which a later run knows that they still stand.
    """

    suite: Suite
    options: RunOptions
    services: Services
    workspaces: Workspaces
    responses: Responses | None = None
    targets: Targets | None = None
    keyed: bool = True
    judge: SharedJudge | None = None

    def __post_init__(self) -> None:
        invoke = self._invoke if self.targets else None
        self.services = dataclasses.replace(self.services, invoke=invoke, answer=self._answer_of)
        self._sick: dict[str, TargetError | None] = {}
        self._request_keys: dict[str, str] = {}

    @cached_property
    def bases(self) -> "Bases":
        """What verdicts and answers rest on; made where somebody asks, for it brings in much."""
        from persona_pipeline.suites.running.basis import Bases

        return Bases(self.suite, self.targets, self.responses, self.judge, self.options)

    @cached_property
    def files(self) -> PromptFiles:
        return PromptFiles(self.suite)

    @cached_property
    def cache(self) -> OutputCache:
        if self.suite.cache_path:
            return OutputCache(self.suite.path.parent / self.suite.cache_path)
        return OutputCache(state_folder(self.suite.path, self.options.state) / "cache" / "suites")

    def prefetch(self, cells: Sequence[PlannedTest]) -> None:
        """Let targets that answer in batches do so; a batch that fails is no loss, its tests are then asked one by one."""
        for target in {id(cell.target): cell.target for cell in cells}.values():
            if not getattr(target, "provider_batching", False) or not self.options.allow_code:
                continue
            mine = (cell for cell in cells if cell.target is target)
            own = [cell for cell in mine if not (self.suite.trials_of(cell.test) or cell.test.workspace)]
            with contextlib.suppress(TargetError, FileError):
                requests = [self._request(cell.test, self.request_key(cell.test), 0, None) for cell in own]
                if requests:
                    target.answer_all(requests)  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]

    def run(self, cell: PlannedTest) -> TestResult:
        """Run one cell to its result; whatever happens becomes one."""
        test = cell.test
        notes: list[str] = []
        trials = self.suite.trials_of(test)
        if trials is None:
            attempt = self._attempt(cell, 0, notes)
            result = TestResult("", "", attempt.score, attempt.verdict, attempt)
        else:
            gated = any(item.has_gate for item in self.asserts(test))
            result = run_trials(trials, lambda number: self._attempt(cell, number, notes), gated=gated)
        return dataclasses.replace(
            result,
            id=cell.id,
            test_id=test.id,
            target=cell.target_name,
            dataset=test.dataset,
            conversation_id=test.conversation_id,
            metadata=test.metadata,
            request_key=self.request_key(test),
            digest=self.bases.digest(test, cell.target_name) if self.keyed else None,
            timestamp=self.options.clock().isoformat(),
            notes=[*notes, *result.notes],
        )

    def is_done(self, cell: PlannedTest, earlier: TestResult) -> bool:
        """Return whether an earlier result still stands: nothing that it rests on has changed, and all of that can be seen."""
        if earlier.verdict is SuiteVerdict.ERROR or not self.bases.of(cell.test, cell.target_name).is_seen:
            return False
        return earlier.digest == self.bases.digest(cell.test, cell.target_name)

    def asserts(self, test: Test) -> Sequence[Assert]:
        """Return a test's asserts; without any, the suite's evaluator judges the answer by the test's goal."""
        # The registry gives nothing but subclasses of Assert.
        return cast(Sequence[Assert], test.asserts) or (default_assert(self.suite.evaluator),)

    def request_key(self, test: Test) -> str:
        if test.id not in self._request_keys:
            files = {}
            for reference in file_parts(test):
                try:
                    raw = self.files.read(reference, test).encode("utf-8", "surrogatepass")
                    files[reference] = hashlib.sha256(raw).hexdigest()
                except FileError as problem:
                    files[reference] = str(problem)
            self._request_keys[test.id] = request_key(test.input_messages, files)
        return self._request_keys[test.id]

    def _attempt(self, cell: PlannedTest, number: int, notes: list[str]) -> Attempt:
        deadline = time.monotonic() + self.options.timeout
        made: WorkspaceFolder | None = None
        try:
            if self.responses is None:
                made = self.workspaces.prepare(cell.test, number, cell.target_name)
            output, cached, retries = self._answer(cell, number, made, deadline)
        except (TargetError, ResponseError, WorkspaceError, FileError) as problem:
            where = "workspace: " if isinstance(problem, WorkspaceError) else ""
            said = str(problem) if isinstance(problem, FileError) else problem.message
            failure = Failure(getattr(problem, "reason", "missing_file"), f"{where}{said}")
            attempt = Attempt(number, None, SuiteVerdict.ERROR, error=failure)
        else:
            if made is not None:
                output.workspace = str(made.path)
                output.file_changes = output.file_changes or made.changes()
            if output.truncated:
                notes.append(
                    f"attempt {number + 1}: the answer was cut off at the target's limit of tokens; raise max_tokens"
                )
            target = cell.target.name if cell.target else None
            context = Context(self.suite, cell.test, self.services, number, deadline, target)
            results = [run_assert(item, output, context) for item in self.asserts(cell.test)]
            attempt = dataclasses.replace(score_test(results, output, number), cached=cached, retries=retries)
        if made is None:
            return attempt
        kept = self.workspaces.finish(made, cell.test, passed=attempt.verdict is SuiteVerdict.PASS)
        notes += made.notes
        return dataclasses.replace(attempt, workspace_kept=kept)

    def _answer(
        self, cell: PlannedTest, number: int, made: WorkspaceFolder | None, deadline: float
    ) -> tuple[Output, bool, int]:
        """The output, whether it came from the cache, and how many tries failed before it."""
        if self.responses is not None:
            return self.responses.output(cell.test.id, cell.target_name, number, self.request_key(cell.test)), False, 0
        target = cell.target
        assert target is not None
        if target.runs_code and not self.options.allow_code:
            said = f"target {target.name!r} runs a program; pass --allow-code if you trust it"
            raise TargetError("code_not_allowed", said)
        self._check_health(target)
        asked = self.request_key(cell.test)
        key = None
        # What was done to a workspace cannot be done again from a recorded answer.
        choices = (self.options.cache, cell.test.cache, self.suite.cache)
        if made is None and next((choice for choice in choices if choice is not None), False):
            basis = self.bases.of_answer(target.name)
            # An answer that nobody can tell from that of another program is not kept.
            if basis.is_seen:
                made_of = {"basis": basis.digest(self.bases.top)}
                key = cache_key(made_of, asked, test_id=cell.test.id, attempt=number)
            known = None if key is None else self.cache.get(key)
            if known is not None:
                return known, True, 0
        request = self._request(cell.test, asked, number, made)
        began = time.monotonic()
        target.prepare()
        deadline += time.monotonic() - began
        output, retries = ask(target, request, most_retries=self.options.max_retries, deadline=deadline)
        if key is not None:
            self.cache.put(key, output)
        return output, False, retries

    def _request(self, test: Test, key: str, number: int, made: WorkspaceFolder | None) -> Request:
        return Request(
            test,
            self.files.messages(test),
            prompt_text(test.input_messages, test, self.files),
            [str(self.files.find(reference, test)) for reference in file_parts(test)],
            number,
            str(made.path) if made else None,
            self.options.timeout,
            key,
        )

    def _check_health(self, target: TargetFields) -> None:
        check = getattr(target, "check_health", None)
        if check is None:
            return
        if target.name not in self._sick:
            try:
                check()
                self._sick[target.name] = None
            except TargetError as problem:
                self._sick[target.name] = problem
        problem = self._sick[target.name]
        if problem is not None:
            raise problem

    def _invoke(self, name: str, prompt: str, context: Context) -> str:
        assert self.targets is not None
        with _ungraded():
            target = self.targets.open(name)
            if target.runs_code:
                context.require_code(f"target {name!r}")
            message = {"role": "user", "content": prompt}
            key = request_key([message], {})
            return target.respond(
                Request(context.test, [message], prompt, timeout=context.time_left(), request_key=key)
            ).text

    def _answer_of(self, name: str, context: Context) -> Output:
        """What another target says to the same test."""
        test = context.test
        if test.workspace is not None:
            said = f"target {name!r} would need a workspace of its own; compare with recorded answers (responses)"
            raise UngradedError("no_workspace", said)
        if self.responses is not None and f"{test.id}@{name}" not in self.responses.answers:
            raise UngradedError("no_response", f"{self.responses.source} has no answer for '{test.id}@{name}'")
        with _ungraded():
            target = None if self.responses is not None or self.targets is None else self.targets.open(name)
            if target is None and self.responses is None:
                raise UngradedError("no_target", f"there are no targets to ask for {name!r}")
            cell = PlannedTest(test.id, test, name, target)
            return self._answer(cell, context.attempt, None, time.monotonic() + context.time_left())[0]


@contextlib.contextmanager
def _ungraded() -> Iterator[None]:
    """Turn what keeps a target from answering an assert into what keeps the assert from a grade."""
    try:
        yield
    except (TargetError, ResponseError) as problem:
        raise UngradedError(problem.reason, problem.message) from problem
    except FileError as problem:
        raise UngradedError("missing_file", str(problem)) from problem
    except ConfigError as problem:
        raise UngradedError("no_target", str(problem)) from problem
