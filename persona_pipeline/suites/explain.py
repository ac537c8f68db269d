"""What a run would do, before it does it: which asserts, from where, with what weight, and what they need."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from persona_pipeline.suites.asserts.base import Assert
from persona_pipeline.suites.models import Suite, Test
from persona_pipeline.suites.registry import default_assert


@dataclass(frozen=True)
class ExplainedAssert:
    """One assert that will run.

    Attributes:
        origin: ``test`` (its own), ``suite`` (inherited), or ``fallback`` (the test has none).
        share: its part in the score, 0-1; None when all weights are 0.
        place: ``file:line``, None for what nobody wrote.
    """

    name: str
    type: str
    origin: str
    weight: float
    share: float | None
    gate: float | None
    needs: tuple[str, ...]
    place: str | None

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "needs": list(self.needs)}


@dataclass(frozen=True)
class ExplainedTest:
    """One test: who answers, how often, and the asserts."""

    id: str
    place: str | None
    targets: tuple[str, ...]
    attempts: int
    strategy: str | None
    asserts: tuple[ExplainedAssert, ...]

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "targets": list(self.targets), "asserts": [item.to_dict() for item in self.asserts]}


def explain(suite: Suite, tests: Sequence[Test]) -> list[ExplainedTest]:
    """Return what will be asked and checked for each test."""
    return [_test(suite, test) for test in tests]


def _test(suite: Suite, test: Test) -> ExplainedTest:
    trials = test.trials or suite.trials
    own = test.targets or suite.targets or ((suite.target,) if suite.target else ("default",))
    asserts = test.asserts or (default_assert(suite.evaluator),)
    total = sum(item.weight for item in asserts)
    return ExplainedTest(
        test.id,
        _place(test.entry),
        tuple(own),
        trials.count if trials else 1,
        trials.strategy if trials else None,
        tuple(_assert(item, test, total, fallback=not test.asserts) for item in asserts),
    )


def _assert(item: Assert, test: Test, total: float, *, fallback: bool) -> ExplainedAssert:
    needs = [word for word, needed in (("judge", item.needs_judge), ("code", item.needs_code)) if needed]
    if item.type == "agent_judge" and test.workspace is None:
        needs.append("workspace (there is none)")
    gate = (0.8 if item.required else None) if isinstance(item.required, bool) else item.required
    return ExplainedAssert(
        item.name,
        item.type,
        "fallback" if fallback else "test" if _within(item, test) else "suite",
        item.weight,
        item.weight / total if total else None,
        gate,
        tuple(needs),
        _place(item.entry),
    )


def _within(item: Assert, test: Test) -> bool:
    """Whether an assert was written inside the test."""
    if item.entry is None or test.entry is None or item.entry.source.path != test.entry.source.path:
        return False
    return (
        item.entry.source == test.entry.source
        and item.entry.location[: len(test.entry.location)] == test.entry.location
    )


def _place(entry: Any) -> str | None:
    if entry is None:
        return None
    problem = entry.problem("")
    return f"{problem.path}:{problem.line}"
