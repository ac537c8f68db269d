"""The project's judge, asked from asserts: its cache, recordings, budget and reasons, behind two plain calls.

Asserts run in threads; the judge is asynchronous and serves one thread. So it lives in one event loop of its own.
"""

import threading
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from persona_pipeline.base.calls import BackgroundLoop
from persona_pipeline.judging.open import OpenedJudge
from persona_pipeline.judging.verdict import Answer, Backend, Judge, JudgeRequest, Question, Usage, Verdict
from persona_pipeline.suites.grading.results import UngradedError

Result = TypeVar("Result", Answer, Verdict)


class BackedJudge(Backend, Judge, Protocol):
    """A judge of claims that also answers other questions."""


@dataclass
class SuiteJudge:
    """Asks a judge and waits. ``usage``: what all calls of this run took."""

    judge: BackedJudge
    usage: Usage = field(default_factory=Usage)
    _loop: BackgroundLoop = field(default_factory=lambda: BackgroundLoop("suite-judge"))
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _others: dict[str, Backend] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.judge.name

    def ask(self, question: Question, timeout: float, *, model: str | None = None) -> Mapping[str, Any]:
        """Return the data of an answer.

        ``timeout``: seconds to wait. ``model``: another model than the judge's own, where the judge is live.
        """
        answer = self.answers([question], timeout, model=model)[0]
        if answer.data is None:
            raise UngradedError(str(answer.unscored), answer.detail)
        return answer.data

    def answers(self, questions: Sequence[Question], timeout: float, *, model: str | None = None) -> list[Answer]:
        """Return the answers to questions that are asked at once, in order; a failed one is unscored with its reason."""
        return self._wait(self._asked(model).ask(questions), timeout)

    def verdicts(self, requests: Sequence[JudgeRequest], timeout: float) -> list[Verdict]:
        """Return the verdicts on propositions, in order; a failed one is unscored with its reason."""
        return self._wait(self.judge.judge(requests), timeout)

    def close(self) -> None:
        self._loop.close()

    def _asked(self, model: str | None) -> Backend:
        if model is None or not isinstance(self.judge, OpenedJudge) or self.judge.model in (None, model):
            return self.judge
        with self._lock:
            if model not in self._others:
                self._others[model] = self.judge.with_model(model)
            return self._others[model]

    def _wait(self, work: Coroutine[Any, Any, list[Result]], timeout: float) -> list[Result]:
        try:
            found = self._loop.wait(work, timeout)
        except TimeoutError as error:
            raise UngradedError("timeout", f"the judge did not answer within {timeout:g} s") from error
        with self._lock:
            for item in found:
                self.usage += item.usage
        return found
