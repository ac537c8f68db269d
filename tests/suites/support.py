"""Small suites for tests: text in, suite or result out."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field

from persona_pipeline.judging.verdict import Answer, JudgeRequest, Question, Unscored, Usage, Verdict
from persona_pipeline.suites import (
    Context,
    Grade,
    Output,
    RunOptions,
    Services,
    Suite,
    SuiteResult,
    load_suite,
    read_responses,
    run_suite,
)
from persona_pipeline.suites.answering.base import TargetFields
from persona_pipeline.suites.answering.output import parse_output
from persona_pipeline.suites.grading.results import AssertResult, Failure, SuiteVerdict, verdict_of
from persona_pipeline.suites.grading.suite_judge import SuiteJudge
from persona_pipeline.suites.running.plan import Targets
from persona_pipeline.suites.targets import Request


def write(folder: Path, files: Mapping[str, str]) -> None:
    """Write files below a folder."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def load(folder: Path, text: str, **files: str) -> Suite:
    """Load a suite from its text; ``files`` maps names (``__`` for ``/``, ``_dot_`` for ``.``) to text beside it."""
    write(folder, {name.replace("__", "/").replace("_dot_", "."): content for name, content in files.items()})
    path = folder / "suite.eval.yaml"
    path.write_text(text, encoding="utf-8")
    return load_suite(path)


def suite_of(folder: Path, *asserts: Mapping[str, Any], **test: Any) -> Suite:
    """Load a suite of one test, ``t``, with these asserts."""
    entry = {"id": "t", "input": "hi", "criteria": "be good", "assert": [dict(item) for item in asserts], **test}
    return load(folder, yaml.safe_dump({"tests": [entry]}, sort_keys=False))


def grade(
    folder: Path, item: Mapping[str, Any], output: Any, *, services: Services | None = None, **test: Any
) -> Grade:
    """Grade one output with one assert, written as a suite would write it."""
    suite = suite_of(folder, item, **test)
    parsed = output if isinstance(output, Output) else parse_output(output)
    only = suite.tests[0]
    only.asserts[0].require_evidence(parsed)
    return only.asserts[0].grade(parsed, Context(suite, only, services or Services()))


def assert_result(score: float | None, weight: float = 1.0, required: bool | float = False) -> AssertResult:
    """The result of an assert with this score, an error for None."""
    error = Failure("timeout", "") if score is None else None
    verdict = SuiteVerdict.ERROR if score is None else verdict_of(score)
    return AssertResult("a", "x", score, weight, verdict, required, error=error)


def run(suite: Suite, responses: Mapping[str, Any] | None = None, **options: Any) -> SuiteResult:
    """Grade recorded answers without a judge."""
    return run_suite(suite, responses=read_responses(responses or {}), options=RunOptions(**options))


def calls(*tools: Any, text: str = "done") -> dict[str, Any]:
    """An answer with tool calls: names, or (name, input) pairs."""
    made = [{"tool": tool} if isinstance(tool, str) else {"tool": tool[0], "input": tool[1]} for tool in tools]
    return {"output_messages": [{"role": "assistant", "content": text, "tool_calls": made}]}


@dataclass
class ScriptedBackend:
    """Answers questions with what ``reply`` returns for them: data, or a reason there is none. Keeps what it was asked."""

    reply: Callable[[Question], Mapping[str, Any] | Unscored]
    name: str = "scripted"
    live: bool = False
    asked: list[Question] = field(default_factory=list)

    async def ask(self, questions: Sequence[Question]) -> list[Answer]:
        self.asked += questions
        return [self._answer(question) for question in questions]

    def _answer(self, question: Question) -> Answer:
        data = self.reply(question)
        if isinstance(data, Unscored):
            return Answer(unscored=data, detail="scripted")
        problem = question.check(data) if question.check else None
        if problem:
            return Answer(unscored=Unscored.INVALID_OUTPUT, detail=problem)
        return Answer(data=data, model="scripted", usage=Usage(input_tokens=10, output_tokens=2, calls=1, usd=0.001))


@dataclass
class ScriptedSuiteJudge:
    """A judge whose propositions score what ``score`` says and whose other questions go to a scripted backend."""

    backend: ScriptedBackend
    score: Callable[[JudgeRequest], int | Unscored] = lambda request: 9
    name: str = "scripted"
    live: bool = False
    requests: list[JudgeRequest] = field(default_factory=list)

    async def ask(self, questions: Sequence[Question]) -> list[Answer]:
        return await self.backend.ask(questions)

    async def judge(self, requests: Sequence[JudgeRequest]) -> list[Verdict]:
        self.requests += requests
        found = [(request, self.score(request)) for request in requests]
        return [
            Verdict(request.proposition_id, unscored=value, detail="scripted")
            if isinstance(value, Unscored)
            else Verdict(request.proposition_id, score=value, reasoning=f"because {value}")
            for request, value in found
        ]


@contextmanager
def judging(
    reply: Callable[[Question], Mapping[str, Any] | Unscored] = lambda question: Unscored.UNRECORDED,
    score: Callable[[JudgeRequest], int | Unscored] = lambda request: 9,
    **services: Any,
) -> Iterator[tuple[Services, ScriptedSuiteJudge]]:
    """Services with a scripted judge, and the judge."""
    judge = ScriptedSuiteJudge(ScriptedBackend(reply), score)
    opened = SuiteJudge(judge)
    try:
        yield Services(judge=opened, **services), judge
    finally:
        opened.close()


def judged(
    folder: Path, item: Mapping[str, Any], reply: Any, output: Any = "x", **test: Any
) -> tuple[Grade, list[Question]]:
    """Grade one output with a judge; return the grade and what was asked. ``reply``: the answer to all, or a function."""
    with judging(reply if callable(reply) else lambda question: reply) as (services, judge):
        return grade(folder, item, output, services=services, **test), judge.backend.asked


class Answering(TargetFields):
    """A target that answers with a function and counts how often it is asked."""

    name: str = "default"
    provider: str = "test"
    answer: Callable[[Request], Any] = lambda request: "ok"
    asked: list[str] = Field(default_factory=list)
    version: int = 1

    def respond(self, request: Request) -> Output:
        self.asked.append(f"{request.test.id}#{request.attempt}")
        value = self.answer(request)
        if isinstance(value, Exception):
            raise value
        return parse_output(value)

    def fingerprint(self) -> Mapping[str, Any]:
        return {"provider": "test", "version": self.version}


@dataclass
class Given(Targets):
    """Targets made in a test."""

    path: str = "targets.yaml"
    entries: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, *targets: Answering) -> "Given":
        return cls(_opened={target.name: target for target in targets})


def target(answer: Callable[[Request], Any] = lambda request: "ok", **fields: Any) -> Answering:
    return Answering(answer=answer, asked=[], **fields)


def three(folder: Path, head: str = "") -> Suite:
    return load(
        folder,
        head
        + """
tests:
  - {id: sum-1, input: one, assert: [{type: contains, value: ok}], metadata: {tags: [fast]}}
  - {id: sum-2, input: two, assert: [{type: contains, value: ok}]}
  - {id: other, input: three, assert: [{type: contains, value: ok}]}
""",
    )


def verdicts(result: SuiteResult) -> dict[str, str]:
    return {test.id: test.verdict.value for test in result.tests}
