"""One test with one target: ask, grade, repeat."""

import contextlib
import dataclasses
import hashlib
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from persona_pipeline.suites.answering.base import (
    OutputCache,
    Request,
    Responses,
    TargetError,
    TargetFields,
    ask,
    cache_key,
    request_key,
    sent_messages,
)
from persona_pipeline.suites.answering.output import Output
from persona_pipeline.suites.format.files import FileError, Files, ReasonedError, state_folder
from persona_pipeline.suites.format.models import Suite, Test
from persona_pipeline.suites.format.registry import default_assert
from persona_pipeline.suites.format.tests import file_parts
from persona_pipeline.suites.format.text import under_roles
from persona_pipeline.suites.grading.base import Assert, Context, Services, run_assert, score_test
from persona_pipeline.suites.grading.results import Attempt, Failure, SuiteVerdict, TestResult
from persona_pipeline.suites.grading.suite_judge import SuiteJudge
from persona_pipeline.suites.running.plan import PlannedTest, RunOptions, Targets

if TYPE_CHECKING:
    from persona_pipeline.suites.running.basis import Bases
    from persona_pipeline.suites.sandbox.workspaces import WorkspaceFolder, Workspaces


@dataclass
class CellRunner:
    """Runs cells; all threads of a run share it. ``keyed``: results have the digest that lets a later run keep them."""

    suite: Suite
    options: RunOptions
    judge: SuiteJudge
    responses: Responses | None = None
    targets: Targets | None = None
    keyed: bool = True

    def __post_init__(self) -> None:
        judge, options = self.judge if self.judge.given is not None else None, self.options
        self.services = Services(judge, options.allow_code, options.world_root)
        self._request_keys: dict[str, str] = {}

    @cached_property
    def bases(self) -> "Bases":
        """Inputs of verdicts and answers; created on first use, because the import is slow."""
        from persona_pipeline.suites.running.basis import Bases

        return Bases(self.suite, self.targets, self.responses, self.judge, self.options)

    @cached_property
    def workspaces(self) -> "Workspaces":
        from persona_pipeline.suites.sandbox.workspaces import Workspaces

        folder = state_folder(self.suite.path, self.options.state) / "workspaces"
        return Workspaces(self.suite, folder, self.options.allow_code, self.options.keep_workspaces)

    @cached_property
    def files(self) -> Files:
        return Files(self.suite.roots)

    @cached_property
    def cache(self) -> OutputCache:
        if self.suite.cache_path:
            return OutputCache(self.suite.path.parent / self.suite.cache_path)
        return OutputCache(state_folder(self.suite.path, self.options.state) / "cache" / "suites")

    def close(self) -> None:
        """Remove the folder of the run's workspaces if it is empty."""
        if "workspaces" in vars(self):
            self.workspaces.close()

    def prefetch(self, cells: Sequence[PlannedTest]) -> None:
        """Ask targets with batches. If a batch fails, its tests are asked one by one."""
        for target in {id(cell.target): cell.target for cell in cells}.values():
            if not getattr(target, "provider_batching", False) or not self.options.allow_code:
                continue
            mine = (cell for cell in cells if cell.target is target)
            own = [
                cell
                for cell in mine
                if not (self.suite.trials_of(cell.test) or cell.test.workspace or cell.test.is_conversation)
            ]
            with contextlib.suppress(TargetError, FileError):
                requests = [self._request(cell, self.request_key(cell.test), 0, None) for cell in own]
                if requests and target is not None:
                    with self._recording(target, *(cell.test for cell in own)):
                        target.answer_all(requests)  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]

    def _recording(self, target: TargetFields, *tests: Test) -> contextlib.AbstractContextManager[None]:
        if not target.runs_code:
            return contextlib.nullcontext()
        return self.bases.recording(key for test in tests for key in self.bases.of_answer(target.name, test).programs)

    def run(self, cell: PlannedTest) -> TestResult:
        """Run one cell; any failure becomes its result."""
        test = cell.test
        basis = self.bases.of(test, cell.target_name) if self.keyed else None
        # The digest is that of the beginning, but for files that programs open for the first time.
        digest = self.bases.digest(basis) if basis else None
        notes: list[str] = []
        trials = self.suite.trials_of(test)
        programs = self.bases.grading(test, cell.target_name) if self.options.allow_code else ()
        with self.bases.recording(programs) if programs else contextlib.nullcontext():
            if trials is None:
                attempt = self._attempt(cell, 0, notes)
                result = TestResult("", "", attempt.score, attempt.verdict, attempt)
            else:
                from persona_pipeline.suites.running.trials import run_trials

                gated = any(item.has_gate for item in (*self.asserts(test), *test.all_asserts))
                result = run_trials(trials, lambda number: self._attempt(cell, number, notes), gated=gated)
        digest = self.bases.digest(basis) if basis and basis.programs else digest
        return self.result_of(cell, dataclasses.replace(result, digest=digest, notes=[*notes, *result.notes]))

    def result_of(self, cell: PlannedTest, result: TestResult) -> TestResult:
        """Return a result with its test's and target's names and the current time."""
        return dataclasses.replace(
            result,
            id=cell.id,
            test_id=cell.test.id,
            target=cell.target_name,
            dataset=cell.test.dataset,
            conversation_id=cell.test.conversation_id,
            metadata=cell.test.metadata,
            request_key=self.request_key(cell.test),
            timestamp=self.options.clock().isoformat(),
        )

    def is_done(self, cell: PlannedTest, earlier: TestResult) -> bool:
        """Return whether an earlier result is still valid: its inputs can be read and have not changed."""
        basis = self.bases.of(cell.test, cell.target_name)
        if earlier.verdict is SuiteVerdict.ERROR or not self.bases.is_seen(basis):
            return False
        return earlier.digest == self.bases.digest(basis)

    def asserts(self, test: Test) -> Sequence[Assert]:
        """Return a test's asserts, by default the suite's evaluator."""
        # The registry returns only subclasses of Assert.
        if test.asserts or test.all_asserts:
            return cast(Sequence[Assert], test.asserts)
        return (default_assert(self.suite.evaluator),)

    def request_key(self, test: Test) -> str:
        if test.id not in self._request_keys:
            files = {}
            for reference, path in test.files.items():
                try:
                    raw = self.files.read(path).encode("utf-8", "surrogatepass")
                    files[reference] = hashlib.sha256(raw).hexdigest()
                except FileError as problem:
                    files[reference] = str(problem)
            asked: Any = test.input_messages
            if test.is_conversation:
                user = test.user and test.user.model_dump()
                asked = [*asked], [turn.input_messages for turn in test.turns], user
            self._request_keys[test.id] = request_key(asked, files)
        return self._request_keys[test.id]

    def _attempt(self, cell: PlannedTest, number: int, notes: list[str]) -> Attempt:
        deadline = time.monotonic() + self.options.timeout
        made: WorkspaceFolder | None = None
        held: list[Output] = []
        try:
            if self.responses is None and cell.test.workspace is not None:
                made = self.workspaces.prepare(cell.test, number, cell.target_name)
            if cell.test.is_conversation:
                from persona_pipeline.suites.running import conversations

                output, cached = conversations.converse(self, cell, number, made, held)
                # The turns had their own time; so has grading.
                deadline = time.monotonic() + self.options.timeout
            else:
                output, cached = self.answer(cell, number, made, deadline)
        except ReasonedError as problem:
            failure = Failure(problem.reason, f"{problem.where}{problem.message}")
            answered = Output.of_turns(held) if held else None
            attempt = Attempt(number, None, SuiteVerdict.ERROR, output=answered, error=failure)
        else:
            if made is not None:
                output.workspace = str(made.path)
                output.file_changes = output.file_changes or made.changes()
            if output.truncated:
                notes.append(f"attempt {number + 1}: the answer was cut off; raise max_tokens where a limit did it")
            key = self.request_key(cell.test)
            context = Context(self.suite, cell.test, self.services, number, deadline, key)
            results = [run_assert(item, output, context) for item in self.asserts(cell.test)]
            if cell.test.is_conversation:
                from persona_pipeline.suites.running.conversations import graded_turns

                results += graded_turns(output, context)
            attempt = dataclasses.replace(score_test(results, output, number), cached=cached)
        if made is None:
            return attempt
        kept = self.workspaces.finish(made, cell.test, passed=attempt.verdict is SuiteVerdict.PASS)
        notes += made.notes
        return dataclasses.replace(attempt, workspace_kept=kept)

    def answer(
        self, cell: PlannedTest, number: int, made: "WorkspaceFolder | None" = None, deadline: float | None = None
    ) -> tuple[Output, bool]:
        """Return the output, and whether it is from the cache. ``deadline``: by default the options' time from now."""
        deadline = deadline or time.monotonic() + self.options.timeout
        if self.responses is not None:
            return self.responses.output(cell.test.id, cell.target_name, number, self.request_key(cell.test)), False
        target = cell.target
        assert target is not None
        if target.runs_code and not self.options.allow_code:
            said = f"target {target.name!r} runs a program; pass --allow-code if you trust it"
            raise TargetError("code_not_allowed", said)
        # The test's key includes the text of its files, those of its turns too.
        whole = self.request_key(cell.test)
        asked = whole if cell.asked is None else request_key([whole, cell.asked.input_messages], {})
        key = None
        # A recorded answer cannot repeat changes to a workspace.
        choices = (self.options.cache, cell.test.cache, self.suite.cache)
        cached = next((choice for choice in choices if choice is not None), False)
        if made is None and cached:
            key = self._cache_key(target.name, cell.test, asked, number)
            known = None if key is None else self.cache.get(key)
            if known is not None:
                return known, True
        request = self._request(cell, asked, number, made)
        began = time.monotonic()
        target.prepare()
        deadline += time.monotonic() - began
        most = self.options.max_retries
        output = self._paid(target, cell.test, lambda: ask(target, request, most_retries=most, deadline=deadline))
        if key is not None:
            # The key depends on the files that the target has now opened.
            key = self._cache_key(target.name, cell.test, asked, number)
        if key is not None:
            self.cache.put(key, output)
        return output, False

    def _cache_key(self, target: str, test: Test, asked: str, number: int) -> str | None:
        """Return the key of an answer; None if it depends on files that cannot be read."""
        basis = self.bases.of_answer(target, test)
        if not self.bases.is_seen(basis):
            return None
        return cache_key({"basis": self.bases.digest(basis)}, asked, test_id=test.id, attempt=number)

    def _request(self, cell: PlannedTest, key: str, number: int, made: "WorkspaceFolder | None") -> Request:
        asked = cell.asked or cell.test
        messages = sent_messages(asked, self.files)
        return Request(
            cell.test,
            messages,
            under_roles((message["role"], message["content"]) for message in messages),
            [str(asked.files[part["value"]]) for *_, part in file_parts(asked.input_messages)],
            number,
            str(made.path) if made else None,
            self.options.timeout,
            key,
            cell.turn,
            cell.conversation or uuid.uuid4().hex,
        )

    def _paid(self, target: TargetFields, test: Test, asked: Callable[[], Output]) -> Output:
        """Return an answer and count its cost. Raises ``UngradedError``: the budget is spent."""
        self.judge.require_money()
        with self._recording(target, test):
            output = asked()
        self.judge.spent_by_target(output.cost_usd)
        return output
