"""The project's judge for asserts, with its cache, recordings and budget.

Asserts run in threads, but the judge is asynchronous and serves one thread, so it has a separate event loop.
"""

import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar

from persona_pipeline.base.calls import BackgroundLoop
from persona_pipeline.judging.verdict import Answer, Backend, Judge, JudgeRequest, Question, Usage, Verdict
from persona_pipeline.suites.grading.results import UngradedError

Result = TypeVar("Result", Answer, Verdict)


class BackedJudge(Backend, Judge, Protocol):
    """A judge of claims that also answers other questions."""


GivenJudge: TypeAlias = Callable[[], BackedJudge] | BackedJudge | None


class SuiteJudge:
    """Asks a judge and waits. The first thread that needs it opens it; the code that makes one closes it."""

    def __init__(
        self,
        given: GivenJudge,
        identity: Callable[[], Any] | None = None,
        recordings: Path | None = None,
        max_usd: float | None = None,
    ) -> None:
        """Take a judge, or a function that opens it.

        ``identity``: returns all that its answers depend on, as JSON; None: the judge is opened and its name is used.
        ``recordings``: folder of a recorded judge. ``max_usd``: limit in US dollars for the judge and the targets of a run.
        """
        self.given, self.recordings, self.max_usd = given, recordings, max_usd
        # Reported cost of targets, and whether one of them reported none.
        self.targets_usd, self.uncounted = 0.0, False
        self._identity = identity
        self._opened: BackedJudge | None = None
        self._usage = Usage()
        self._loop = BackgroundLoop("suite-judge")
        self._lock = threading.Lock()
        self._others: dict[str, Backend] = {}

    @property
    def judge(self) -> BackedJudge:
        """The judge itself."""
        with self._lock:
            found: Any = self._opened or (self.given() if callable(self.given) else self.given)
            self._opened = found
            return found

    @property
    def name(self) -> str | None:
        """Name of the judge; None: it has not been opened."""
        return self._opened.name if self._opened else None

    @property
    def identity(self) -> Any:
        """All that the judge's answers depend on."""
        if self._identity is not None:
            return self._identity()
        return self.given and [getattr(self.judge, name, None) for name in ("name", "model", "prompt_version")]

    @property
    def usage(self) -> Mapping[str, Any]:
        """Tokens and cost of its judgments."""
        return dict(vars(self._usage)) if self._opened else {}

    def spent_by_target(self, usd: float | None) -> None:
        """Add the cost of a target's answer; None: not reported."""
        with self._lock:
            self.targets_usd += usd or 0.0
            self.uncounted = self.uncounted or usd is None

    def require_money(self) -> None:
        """Raise ``UngradedError`` if targets and judge have spent the limit."""
        spent = self.targets_usd + (self._usage.usd or 0.0)
        if self.max_usd is not None and spent >= self.max_usd:
            said = f"targets and judge have cost ${spent:.4f} of ${self.max_usd:g}; raise --max-usd"
            raise UngradedError("budget", said)

    def ask(self, question: Question, timeout: float, *, model: str | None = None) -> Mapping[str, Any]:
        """Return the data of an answer.

        ``timeout``: in seconds. ``model``: instead of the judge's own, for a live judge.
        """
        answer = self.answers([question], timeout, model=model)[0]
        if answer.data is None:
            raise UngradedError(str(answer.unscored), answer.detail)
        return answer.data

    def answers(self, questions: Sequence[Question], timeout: float, *, model: str | None = None) -> list[Answer]:
        """Return the answers to questions, in order; a failed one is unscored with its reason."""
        return self._wait(self._asked(model).ask(questions), timeout)

    def verdicts(self, requests: Sequence[JudgeRequest], timeout: float) -> list[Verdict]:
        """Return the verdicts on propositions, in order; a failed one is unscored with its reason."""
        return self._wait(self.judge.judge(requests), timeout)

    def close(self) -> None:
        self._loop.close()

    def _asked(self, model: str | None) -> Backend:
        from persona_pipeline.judging.open import OpenedJudge

        judge = self.judge
        if model is None or not isinstance(judge, OpenedJudge) or judge.model in (None, model):
            return judge
        with self._lock:
            if model not in self._others:
                self._others[model] = judge.with_model(model)
            return self._others[model]

    def _wait(self, work: Coroutine[Any, Any, list[Result]], timeout: float) -> list[Result]:
        try:
            self.require_money()
        except UngradedError:
            work.close()
            raise
        try:
            found = self._loop.wait(work, timeout)
        except TimeoutError as error:
            raise UngradedError("timeout", f"the judge did not answer within {timeout:g} s") from error
        with self._lock:
            for item in found:
                self._usage += item.usage
        return found
