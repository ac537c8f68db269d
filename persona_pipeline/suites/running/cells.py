"""One test with one target: ask, grade, repeat."""

import contextlib
import dataclasses
import hashlib
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.suites.answering.base import (
    OutputCache,
    PromptFiles,
    Request,
    Responses,
    TargetError,
    TargetFields,
    ask,
    cache_key,
    file_parts,
    request_key,
)
from persona_pipeline.suites.answering.conversation import (
    hold_conversation,
    recorded_conversation,
    turns_with_input,
    user_messages,
)
from persona_pipeline.suites.answering.output import Output
from persona_pipeline.suites.asserts.registry import default_assert
from persona_pipeline.suites.format.files import FileError, ReasonedError, state_folder
from persona_pipeline.suites.format.models import Suite, Test
from persona_pipeline.suites.format.tests import under_roles
from persona_pipeline.suites.grading.base import Assert, Context, Services, run_assert
from persona_pipeline.suites.grading.results import (
    AssertResult,
    Attempt,
    Failure,
    SuiteVerdict,
    TestResult,
    UngradedError,
)
from persona_pipeline.suites.grading.suite_judge import SuiteJudge
from persona_pipeline.suites.running.plan import PlannedTest, RunOptions, Targets
from persona_pipeline.suites.running.trials import run_trials, score_test

if TYPE_CHECKING:
    from persona_pipeline.suites.running.basis import Bases
    from persona_pipeline.suites.sandbox.workspaces import WorkspaceFolder, Workspaces


@dataclass(frozen=True)
class AskedTurn:
    """A turn of a conversation: a test whose input is the conversation so far, its number, and the conversation's name."""

    test: Test
    number: int
    conversation: str


def _graded_turns(output: Output, context: Context) -> Iterator[AssertResult]:
    """Yield the results of asserts for single turns, then for every turn, where the worst turn counts."""
    test = context.test
    graded: list[list[AssertResult]] = [[] for _ in test.each_turn]
    for number, (turn, answer) in enumerate(turns_with_input(test, output), start=1):
        own = dataclasses.replace(context, test=turn)
        if number <= len(test.turns):
            for item in cast(Sequence[Assert], turn.asserts):
                yield dataclasses.replace(result := run_assert(item, answer, own), name=f"turn {number}: {result.name}")
        for item, found in zip(cast(Sequence[Assert], test.each_turn), graded, strict=True):
            found.append(dataclasses.replace(result := run_assert(item, answer, own), name=f"turn {number}"))
    for item, found in zip(test.each_turn, graded, strict=True):
        yield _worst(f"each turn: {item.name}", found)


def _worst(name: str, turns: Sequence[AssertResult]) -> AssertResult:
    """Return one result for a list of turns: a missed gate, else an error, else the worst."""
    gate = next((item for item in turns if item.gate_failed), None)
    worst = gate or min(turns, key=lambda item: -1.0 if item.score is None else item.score)
    misses = [f"{item.name}: {text}" for item in turns for text in item.misses]
    hits = [f"{len(turns)} turns"] if not misses and worst.error is None else []
    return dataclasses.replace(worst, name=name, hits=hits, misses=misses, children=tuple(turns), details=None)


@dataclass
class CellRunner:
    """Runs cells; all threads of a run share it. ``keyed``: results have the digest that lets a later run keep them."""

    suite: Suite
    options: RunOptions
    services: Services
    judge: SuiteJudge
    responses: Responses | None = None
    targets: Targets | None = None
    keyed: bool = True

    def __post_init__(self) -> None:
        self.services = dataclasses.replace(self.services, answer=self._answer_of)
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
    def files(self) -> PromptFiles:
        return PromptFiles(self.suite)

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
                requests = [self._request(cell.test, self.request_key(cell.test), 0, None) for cell in own]
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
            for reference in file_parts(test):
                try:
                    raw = self.files.read(reference, test).encode("utf-8", "surrogatepass")
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
                output, cached = self._converse(cell, number, made, held)
                # The turns had their own time; so has grading.
                deadline = time.monotonic() + self.options.timeout
            else:
                output, cached = self._answer(cell, number, made, deadline)
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
            if output.left_out:
                told = ", ".join(output.left_out)
                notes.append(f"attempt {number + 1}: {told} of the answer cannot be and count as not reported")
            key = self.request_key(cell.test)
            context = Context(self.suite, cell.test, self.services, number, deadline, key)
            results = [run_assert(item, output, context) for item in self.asserts(cell.test)]
            if cell.test.is_conversation:
                results += _graded_turns(output, context)
            attempt = dataclasses.replace(score_test(results, output, number), cached=cached)
        if made is None:
            return attempt
        kept = self.workspaces.finish(made, cell.test, passed=attempt.verdict is SuiteVerdict.PASS)
        notes += made.notes
        return dataclasses.replace(attempt, workspace_kept=kept)

    def _converse(
        self, cell: PlannedTest, number: int, made: "WorkspaceFolder | None", held: list[Output]
    ) -> tuple[Output, bool]:
        """Hold a conversation, or read a recorded one. ``held``: collects answers, so that they survive a failure."""
        test = cell.test
        if self.responses is not None or (cell.target and cell.target.is_recorded):
            output, _ = self._answer(cell, number, made, time.monotonic() + self.options.timeout)
            source = self.responses.source if self.responses is not None else f"target {cell.target_name!r}"
            return recorded_conversation(test, output, source), False
        name, known = uuid.uuid4().hex, []

        def answer(turn: Test, index: int) -> Output:
            deadline = time.monotonic() + self.options.timeout
            output, cached = self._answer(cell, number, made, deadline, AskedTurn(turn, index, name))
            known.append(cached)
            return output

        held.extend(hold_conversation(test, answer, lambda said: self._ask_user(cell, number, said)))
        if not held:
            raise TargetError("empty", f"target {test.user and test.user.target!r} said nothing as the user")
        return Output.of_turns(held), all(known)

    def _ask_user(self, cell: PlannedTest, number: int, said: Sequence[dict[str, Any]]) -> Output:
        """Return the next line of the target that plays the user."""
        from persona_pipeline.suites.targets.persona import agent_prompt

        user = cell.test.user
        assert user is not None and self.targets is not None
        try:
            target = self.targets.open(user.target)
            root = self.options.world_root
            if user.agent is not None and root is None:
                raise ConfigError("user.agent needs a world; set PERSONA_ROOT")
            character = agent_prompt(root(), user.agent, self.targets.grants.within) if user.agent and root else ""
        except ConfigError as problem:
            raise TargetError("no_target", str(problem)) from problem
        messages = user_messages(user, character, said)
        playing = dataclasses.replace(cell, target_name=user.target, target=target)
        turn = AskedTurn(dataclasses.replace(cell.test, input_messages=tuple(messages)), len(said), "user")
        return self._answer(playing, number, None, time.monotonic() + self.options.timeout, turn)[0]

    def _answer(
        self,
        cell: PlannedTest,
        number: int,
        made: "WorkspaceFolder | None",
        deadline: float,
        turn: AskedTurn | None = None,
    ) -> tuple[Output, bool]:
        """Return the output, and whether it is from the cache."""
        if self.responses is not None:
            return self.responses.output(cell.test.id, cell.target_name, number, self.request_key(cell.test)), False
        target = cell.target
        assert target is not None
        if target.runs_code and not self.options.allow_code:
            said = f"target {target.name!r} runs a program; pass --allow-code if you trust it"
            raise TargetError("code_not_allowed", said)
        # The test's key includes the text of its files, those of its turns too.
        whole = self.request_key(cell.test)
        asked = whole if turn is None else request_key([whole, turn.test.input_messages], {})
        key = None
        # A recorded answer cannot repeat changes to a workspace.
        choices = (self.options.cache, cell.test.cache, self.suite.cache)
        cached = next((choice for choice in choices if choice is not None), False)
        # A killed run does not repeat a long conversation.
        kept = turn is not None and bool(self.options.written)
        if made is None and (cached or kept):
            key = self._cache_key(target.name, cell.test, asked, number)
            known = self.cache.get(key) if key is not None and (cached or self.options.resume) else None
            if known is not None:
                return known, True
        request = self._request(cell.test, asked, number, made, turn)
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

    def _request(
        self, test: Test, key: str, number: int, made: "WorkspaceFolder | None", turn: AskedTurn | None = None
    ) -> Request:
        asked = turn.test if turn else test
        messages = self.files.messages(asked)
        return Request(
            test,
            messages,
            under_roles((message["role"], message["content"]) for message in messages),
            [str(self.files.find(reference, asked)) for reference in file_parts(asked)],
            number,
            str(made.path) if made else None,
            self.options.timeout,
            key,
            turn.number if turn else 0,
            turn.conversation if turn else uuid.uuid4().hex,
        )

    def _paid(self, target: TargetFields, test: Test, asked: Callable[[], Output]) -> Output:
        """Return an answer and count its cost. Raises ``UngradedError``: the budget is spent."""
        self.judge.require_money()
        with self._recording(target, test):
            output = asked()
        self.judge.spent_by_target(output.cost_usd)
        return output

    def _answer_of(self, name: str, context: Context) -> Output:
        """Return another target's answer to the same test."""
        test = context.test
        if test.is_conversation:
            said = "answers to a whole conversation are not compared; compare those to a turn"
            raise UngradedError("conversation", said)
        if test.workspace is not None:
            said = f"target {name!r} would need a workspace of its own; compare with recorded answers (responses)"
            raise UngradedError("no_workspace", said)
        if self.responses is not None and f"{test.id}@{name}" not in self.responses.answers:
            raise UngradedError("no_response", f"{self.responses.source} has no answer for '{test.id}@{name}'")
        try:
            target = None if self.responses is not None or self.targets is None else self.targets.open(name)
        except ConfigError as problem:
            raise UngradedError("no_target", str(problem)) from problem
        if target is None and self.responses is None:
            raise UngradedError("no_target", f"there are no targets to ask for {name!r}")
        cell = PlannedTest(test.id, test, name, target)
        return self._answer(cell, context.attempt, None, time.monotonic() + context.time_left())[0]
