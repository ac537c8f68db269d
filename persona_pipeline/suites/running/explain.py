"""What a run would do, before it does it: which asserts, from where, with what weight, and what they need."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from persona_pipeline.suites.asserts.agent_judge import AgentJudge
from persona_pipeline.suites.asserts.pairwise import Pairwise
from persona_pipeline.suites.asserts.registry import default_assert
from persona_pipeline.suites.format.models import AssertFields, Suite, Test
from persona_pipeline.suites.grading.grades import gate_of
from persona_pipeline.suites.running.plan import DEFAULT_TARGET, RunOptions, targets_of
from persona_pipeline.suites.running.targets_file import Targets


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


@dataclass(frozen=True)
class ExplainedTest:
    """One test: who answers, how often, and the asserts. ``needs``: what the answer itself needs, before anything is graded."""

    id: str
    place: str | None
    targets: tuple[str, ...]
    attempts: int
    strategy: str | None
    needs: tuple[str, ...]
    asserts: tuple[ExplainedAssert, ...]


def explain(suite: Suite, tests: Sequence[Test], targets: Targets | None = None) -> list[ExplainedTest]:
    """Return what will be asked and checked for each test. ``targets``: those a run would choose from, None when there are none."""
    return [_test(suite, test, targets) for test in tests]


def _test(suite: Suite, test: Test, targets: Targets | None) -> ExplainedTest:
    trials = suite.trials_of(test)
    named = test.targets or suite.targets or ((suite.target,) if suite.target else (DEFAULT_TARGET,))
    if targets is not None:
        named = tuple(name for name in targets_of(suite, test, RunOptions(), targets, None) if name)
    asserts = test.asserts or (default_assert(suite.evaluator),)
    total = sum(item.weight for item in asserts)
    return ExplainedTest(
        test.id,
        _place(test.entry),
        tuple(named),
        trials.count if trials else 1,
        trials.strategy if trials else None,
        tuple(_needs(test, named, targets)),
        tuple(_assert(item, test, total, targets, fallback=not test.asserts) for item in asserts),
    )


def _needs(test: Test, named: Sequence[str], targets: Targets | None) -> Iterator[str]:
    for name in named:
        yield from _target_needs(name, targets)
    if test.workspace is not None and test.workspace.hooks:
        yield "code (workspace hooks)"


def _target_needs(name: str, targets: Targets | None) -> Iterator[str]:
    runs_code = targets is not None and targets.runs_code(name)
    if runs_code is None:
        yield f"target {name} (there is none)"
    elif runs_code:
        yield f"code (target {name})"
    if targets is None:
        return
    if targets.asks_network(name):
        yield f"a server (target {name}; --allow-targets)"
    for variable in targets.reads(name):
        yield f"the environment variable {variable} (target {name}; --allow-env {variable})"


def _assert(
    item: AssertFields, test: Test, total: float, targets: Targets | None, *, fallback: bool
) -> ExplainedAssert:
    needs = [word for word, needed in (("judge", item.needs_judge), ("code", item.needs_code)) if needed]
    if isinstance(item, Pairwise) and item.asked is not None:
        needs += _target_needs(item.asked, targets)
    elif isinstance(item, AgentJudge) and item.target is not None:
        needs += _target_needs(item.target, targets)
    elif isinstance(item, AgentJudge) and test.workspace is None:
        needs.append("workspace (there is none)")
    return ExplainedAssert(
        item.name,
        item.type,
        "fallback" if fallback else "test" if _within(item, test) else "suite",
        item.weight,
        item.weight / total if total else None,
        gate_of(item.required),
        tuple(needs),
        _place(item.entry),
    )


def _within(item: AssertFields, test: Test) -> bool:
    """Whether an assert was written inside the test."""
    own, outer = item.entry, test.entry
    if own is None or outer is None or own.source != outer.source:
        return False
    return own.location[: len(outer.location)] == outer.location


def _place(entry: Any) -> str | None:
    if entry is None:
        return None
    problem = entry.problem("")
    return f"{problem.path}:{problem.line}"
