"""Faults around the gate rather than in the judge or the database: threads, processes, other agents, other callers."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence

import pytest

from persona_pipeline.base.database.engine import Store
from persona_pipeline.corrections import gate as gate_module
from persona_pipeline.corrections.configuration import write_config
from persona_pipeline.corrections.gate import ActionGate
from persona_pipeline.corrections.interventions import Interventions
from persona_pipeline.corrections.records import Action, CheckRecord, GateDecision, Outcome, write_checks
from persona_pipeline.corrections.statistics import correction_statistics
from persona_pipeline.world import World
from tests.corrections.support import GATED, TextBackend, spoil_settings
from tests.support.clock import LONG


def checks(gate: ActionGate, *texts: str, agent_id: str = "ann") -> list[GateDecision]:
    async def run() -> list[GateDecision]:
        return [await gate.check(agent_id, text, channel="general") for text in texts]

    return asyncio.run(run())


def test_an_observer_hears_of_every_decision(world: World) -> None:
    heard: list[tuple[str, Outcome]] = []
    gate = ActionGate(world, TextBackend(), observer=lambda agent, decision: heard.append((agent, decision.outcome)))
    checks(gate, "bad 1")
    checks(gate, "x", agent_id="bob")
    assert heard == [("ann", Outcome.CORRECTED), ("bob", Outcome.DISABLED)]


def test_an_observer_that_fails_changes_nothing(world: World) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no")

    (decision,) = checks(ActionGate(world, TextBackend(), observer=fail), "bad 1")
    assert decision.action is Action.RETRY
    assert correction_statistics(world.store).total.rejections == 1


@pytest.mark.parametrize(
    ("threads", "reason"), [("gate-", "database"), ("gate-write", None)], ids=["none", "no writer"]
)
def test_a_system_without_threads_to_spare(
    world: World, monkeypatch: pytest.MonkeyPatch, threads: str, reason: str | None
) -> None:
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith(threads):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    gate = ActionGate(world, TextBackend())
    (decision,) = checks(gate, "fine 8")
    assert (decision.action, decision.reason) == (Action.COMMIT, reason)
    assert gate.flush(0.1)
    monkeypatch.undo()
    assert checks(gate, "fine 8")[0].outcome is Outcome.PASSED


def test_without_a_thread_for_its_loop_a_text_goes_out(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    gate = ActionGate(world, TextBackend())
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        decision = gate.check_sync("ann", "bad 1", channel="general")
    assert (decision.action, decision.text, decision.reason) == (Action.COMMIT, "bad 1", "internal_error")
    assert gate.check_sync("ann", "bad 1", channel="general").action is Action.RETRY


def test_a_loop_that_is_stuck_does_not_hold_a_caller_without_one(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = ActionGate(world, TextBackend())
    assert gate.check_sync("ann", "fine 8", channel="general").outcome is Outcome.PASSED
    loop, released = gate._own_loop()._loop, threading.Event()
    assert loop is not None
    loop.call_soon_threadsafe(released.wait, LONG)
    gate.deadline = 0.2
    monkeypatch.setattr(gate_module, "_LOOP_GRACE_SECONDS", 0.1)
    decision = gate.check_sync("ann", "bad 1", channel="general")
    assert (decision.action, decision.reason) == (Action.COMMIT, "internal_error")
    released.set()


def in_a_fork(work: Callable[[], bool]) -> int | None:
    """Return the exit code of a forked process, 0 if ``work`` was true; None when it hung."""
    child = os.fork()
    if child == 0:
        os._exit(0 if work() else 1)
    deadline = time.monotonic() + LONG
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_gate_that_was_used_before_a_fork_works_after_it(world: World) -> None:
    gate, look = ActionGate(world, TextBackend()), Interventions(world)
    assert gate.check_sync("ann", "fine 8", channel="general").outcome is Outcome.PASSED
    assert not look.before_turn_sync("ann", channel="general").failed

    def work() -> bool:
        decision = gate.check_sync("ann", "bad 1", channel="general")
        return decision.action is Action.RETRY and not look.before_turn_sync("ann", channel="general").failed

    assert in_a_fork(work) == 0
    assert gate.check_sync("ann", "bad 1", channel="general").action is Action.RETRY


def test_an_agent_with_settings_that_are_not_valid_is_no_outage_for_the_others(world: World) -> None:
    write_config(world.store, "bob", GATED)
    spoil_settings(world, "bob")
    gate = ActionGate(world, TextBackend())
    assert [item.reason for item in checks(gate, *["x 1"] * 6, agent_id="bob")] == ["configuration"] * 6
    assert checks(gate, "bad 1")[0].action is Action.RETRY
    look = Interventions(world)
    assert [look.before_turn_sync("bob").failed for _ in range(6)] == [True] * 6
    assert not look.before_turn_sync("ann").failed


def test_more_text_than_a_judge_can_read_is_not_asked_about(world: World) -> None:
    backend = TextBackend()
    decisions = checks(ActionGate(world, backend), "x" * 20_000_000, "bad 1")
    assert [(item.action, item.reason) for item in decisions] == [(Action.COMMIT, "too_long"), (Action.RETRY, None)]
    assert len(backend.questions) == 1


def test_decisions_are_counted_in_their_order_however_late_they_are_written(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[CheckRecord] = []

    def write(store: Store, records: Sequence[CheckRecord]) -> None:
        held.extend(records)
        if len(held) == 2:
            write_checks(store, held[::-1])

    monkeypatch.setattr(gate_module, "write_checks", write)
    gate = ActionGate(world, TextBackend())

    async def run() -> None:
        first = await gate.check("ann", "bad 1", channel="general")
        await gate.check("ann", "good 8", channel="general", attempt=2, action_id=first.action_id)

    asyncio.run(run())
    assert gate.flush()
    total = correction_statistics(world.store).total
    assert (total.actions, total.passed_after_retry, total.abandoned) == (1, 1, 0)


def test_an_attempt_delivered_twice_is_judged_and_counted_once(world: World) -> None:
    backend = TextBackend()
    heard: list[int] = []
    gate = ActionGate(world, backend, observer=lambda _, decision: heard.append(decision.attempt))

    async def run() -> list[GateDecision]:
        first = await gate.check("ann", "bad 1", channel="general")
        again = [
            await gate.check("ann", f"bad {attempt}", channel="general", attempt=attempt, action_id=first.action_id)
            for attempt in (2, 2, 3, 3)
        ]
        return [first, *again]

    decisions = asyncio.run(run())
    assert decisions[1] == decisions[2]
    assert decisions[3] == decisions[4]
    assert [item.action for item in decisions[::2]] == [Action.RETRY, Action.RETRY, Action.FORCE]
    assert len(backend.questions) == 3
    assert heard == [1, 2, 3]
    assert gate.flush()
    total = correction_statistics(world.store).total
    assert (total.actions, total.checks, total.rejections, total.forced) == (1, 3, 2, 1)


def test_a_first_attempt_with_an_id_of_the_callers_own_is_recognized_too(world: World) -> None:
    backend = TextBackend()
    gate = ActionGate(world, backend)

    async def run() -> list[GateDecision]:
        return [await gate.check("ann", "good 8", channel="general", action_id="message-17") for _ in range(2)]

    first, again = asyncio.run(run())
    assert first == again
    assert len(backend.questions) == 1


@pytest.mark.parametrize("attempt", [1, 2])
def test_an_agent_that_never_counts_and_never_changes_its_text_gets_it_out(world: World, attempt: int) -> None:
    gate = ActionGate(world, TextBackend())

    async def run() -> int:
        decision = await gate.check("ann", "bad 1", channel="general")
        for number in range(2, 20):
            if decision.sends:
                return number - 1
            decision = await gate.check(
                "ann", "bad 1", channel="general", attempt=attempt, action_id=decision.action_id
            )
        return 99

    assert asyncio.run(run()) <= 4
