"""The project's judge, asked from asserts: its cache, recordings, budget and reasons, behind two plain calls.

Asserts run in threads; the judge is asynchronous and serves one thread. So it lives in one event loop of its own.
"""

import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from persona_pipeline.background_loop import BackgroundLoop
from persona_pipeline.judging.backend import AnthropicBackend
from persona_pipeline.judging.questions import Answer, Backend, Question
from persona_pipeline.judging.verdict import JudgeRequest, Usage, Verdict
from persona_pipeline.suites.grading.grades import UngradedError

Result = TypeVar("Result")


class BackedJudge(Protocol):
    """A judge of propositions that also answers other questions."""

    @property
    def name(self) -> str: ...

    @property
    def live(self) -> bool: ...

    @property
    def backend(self) -> Backend: ...

    async def judge(self, requests: Sequence[JudgeRequest]) -> list[Verdict]: ...


@dataclass
class SuiteJudge:
    """Asks a judge and waits.

    Attributes:
        record: called with every question and what came of it; None: nothing is recorded.
        usage: what all calls of this run took.
    """

    judge: BackedJudge
    record: Callable[[Sequence[Question], Sequence[Answer]], None] | None = None
    record_verdicts: Callable[[Sequence[JudgeRequest], Sequence[Verdict]], None] | None = None
    usage: Usage = field(default_factory=Usage)
    _loop: BackgroundLoop = field(default_factory=lambda: BackgroundLoop("suite-judge"))
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _backends: dict[str, Backend] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.judge.name

    def ask(self, question: Question, timeout: float, *, model: str | None = None) -> Mapping[str, Any]:
        """Return the data of an answer.

        Args:
            timeout: seconds to wait.
            model: another model than the judge's own, where the judge is live.

        Raises:
            UngradedError: there is no valid answer; its reason is the judge's.
        """
        answer = self.answers([question], timeout, model=model)[0]
        if answer.data is None:
            raise UngradedError(str(answer.unscored), answer.detail)
        return answer.data

    def answers(self, questions: Sequence[Question], timeout: float, *, model: str | None = None) -> list[Answer]:
        """Return the answers to questions that are asked at once, in order; a failed one is unscored with its reason.

        Raises:
            UngradedError: they took too long.
        """
        answers = self._wait(self._backend(model).ask(questions), timeout)
        for answer in answers:
            self._spent(answer.usage)
        if self.record:
            self.record(questions, answers)
        return answers

    def verdicts(self, requests: Sequence[JudgeRequest], timeout: float) -> list[Verdict]:
        """Return the verdicts on propositions, in order; a failed one is unscored with its reason."""
        verdicts = self._wait(self.judge.judge(requests), timeout)
        for verdict in verdicts:
            self._spent(verdict.usage)
        if self.record_verdicts:
            self.record_verdicts(requests, verdicts)
        return verdicts

    def close(self) -> None:
        """End the event loop."""
        self._loop.close()

    def _spent(self, usage: Usage) -> None:
        with self._lock:
            self.usage += usage

    def _backend(self, model: str | None) -> Backend:
        backend = self.judge.backend
        if model is None or not isinstance(backend, AnthropicBackend) or backend.options.model == model:
            return backend
        with self._lock:
            if model not in self._backends:
                options = replace(backend.options, model=model)
                self._backends[model] = AnthropicBackend(options, cache=backend.cache, budget=backend.budget)
            return self._backends[model]

    def _wait(self, work: Coroutine[Any, Any, Result], timeout: float) -> Result:
        try:
            return self._loop.wait(work, timeout)
        except TimeoutError as error:
            raise UngradedError("timeout", f"the judge did not answer within {timeout:g} s") from error
