"""The judge of a run, opened when the first assert needs it: runs of several suites share one, and with it its budget."""

import dataclasses
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from persona_pipeline.suites.grading.suite_judge import BackedJudge, SuiteJudge


class SharedJudge:
    """A judge, or a function that opens it, for whichever thread needs it first. Whoever makes one closes it."""

    def __init__(self, judge: "Callable[[], BackedJudge | SuiteJudge] | BackedJudge | None") -> None:
        self.given = judge
        self._opened: SuiteJudge | None = None
        self._lock = threading.Lock()

    def get(self) -> "SuiteJudge":
        """Return the judge, opened."""
        from persona_pipeline.suites.grading.suite_judge import SuiteJudge

        with self._lock:
            if self._opened is None:
                given: Any = self.given() if callable(self.given) else self.given
                self._opened = given if isinstance(given, SuiteJudge) else SuiteJudge(given)
            return self._opened

    @property
    def name(self) -> str | None:
        """Who judges; None while nobody was needed."""
        return self._opened.name if self._opened else None

    @property
    def identity(self) -> Any:
        """What makes the judge answer as he does (``JudgeOpener``). One who does not say it is opened, and goes by his name."""
        known = getattr(self.given, "identity", None)
        if known is not None or self.given is None:
            return known
        judge = self.get().judge
        return [getattr(judge, name, None) for name in ("name", "model", "prompt_version")]

    @property
    def recordings(self) -> Path | None:
        """The folder a recorded judge answers from; None of any other."""
        return getattr(self.given, "recordings", None)

    @property
    def usage(self) -> Mapping[str, Any]:
        """What its judgments took so far."""
        return dataclasses.asdict(self._opened.usage) if self._opened else {}

    def usage_since(self, before: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what its judgments took since they had taken ``before``."""
        return {key: value - before.get(key, 0) for key, value in self.usage.items()}

    def close(self) -> None:
        if self._opened:
            self._opened.close()
