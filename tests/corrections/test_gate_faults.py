"""On any fault, of the judge, the database, threads, processes or callers, the message goes out once and in time."""

import asyncio
import contextlib
import inspect
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest
from pydantic import SecretStr

from persona_pipeline.base.database.engine import Store, open_store
from persona_pipeline.corrections import gate as gate_module
from persona_pipeline.corrections.configuration import write_config
from persona_pipeline.corrections.gate import DEADLINE_SECONDS, ActionGate, gate_backend
from persona_pipeline.corrections.interventions import Interventions
from persona_pipeline.corrections.records import Action, CheckRecord, GateDecision, Outcome, write_checks
from persona_pipeline.corrections.statistics import correction_statistics
from persona_pipeline.judging.model.asking import ModelBackend
from persona_pipeline.judging.providers.base import ModelOptions
from persona_pipeline.judging.verdict import Answer, Question
from persona_pipeline.world import World
from tests.corrections.support import GATED, TextBackend, spoil_settings
from tests.support.clock import LONG, Clock, ended_at, held, until
from tests.support.messages_server import Hang, MessagesServer, Reply, Reset, Trickle, message, status

# As it is before tests take it off.
DEFAULT_DEADLINE = inspect.signature(ActionGate).parameters["deadline"].default
BREAKER_COOLDOWN = 30.0


def live(url: str) -> ModelBackend:
    return gate_backend(options=ModelOptions(base_url=url, api_key=SecretStr("test-key")))


def send(gate: ActionGate, text: str = "bad 0") -> GateDecision:
    """Check a text as a tool handler does."""

    async def run() -> GateDecision:
        async with gate, asyncio.timeout(LONG):
            return await gate.check("ann", text, channel="general")

    return asyncio.run(run())


def given_up(gate: ActionGate, clock: Clock, *, waiting: Callable[[], object]) -> GateDecision:
    """Check a text of which nothing is heard until the deadline."""

    async def run() -> GateDecision:
        check = gate.check("ann", "bad 0", channel="general")
        return await ended_at(clock, gate.deadline, check, waiting=waiting)

    return asyncio.run(run())


def garbage(text: str | None) -> Reply:
    return message(text)


GARBAGE = {
    "HTML instead of JSON": Reply(b"<html>502</html>"),
    "no JSON in the answer": garbage("I would say 9."),
    "no text in the answer": garbage(None),
    "a score of 10": garbage(json.dumps({"verdicts": [{"id": "c1", "reason": "", "score": 10}]})),
    "NaN": garbage('{"verdicts": [{"id": "c1", "reason": "", "score": NaN}]}'),
    "a list": garbage("[]"),
    "deep nesting": garbage("[" * 5000),
    "a refusal": message("No.", stop_reason="refusal"),
    "a connection that breaks": Reset(),
    "status 400": status(400, "invalid_request_error"),
    "status 500": status(500),
}


@pytest.mark.parametrize("outcome", GARBAGE.values(), ids=GARBAGE.keys())
def test_garbage_from_the_judge(world: World, server: MessagesServer, outcome: Reply) -> None:
    server.always(outcome)
    decision = send(ActionGate(world, live(server.url)))
    assert (decision.action, decision.outcome, decision.text) == (Action.COMMIT, Outcome.FAIL_OPEN, "bad 0")
    assert decision.score is None
    assert decision.reason != "timeout"
    assert correction_statistics(world.store).total.fail_open_by_reason == {decision.reason: 1}


@pytest.mark.parametrize("outcome", [Hang(), Trickle(message("{}"), interval=0.05)], ids=["hang", "trickle"])
def test_a_judge_that_does_not_finish(
    world: World, server: MessagesServer, clock: Clock, outcome: Hang | Trickle
) -> None:
    server.always(outcome)
    decision = given_up(ActionGate(world, live(server.url)), clock, waiting=lambda: server.calls)
    assert (decision.action, decision.reason) == (Action.COMMIT, "timeout")


def test_there_is_a_deadline_where_none_is_set() -> None:
    assert DEFAULT_DEADLINE == DEADLINE_SECONDS == 5.0


def test_a_backend_that_ignores_its_cancellation_is_left_behind(world: World, clock: Clock) -> None:
    class Deaf(TextBackend):
        async def ask(self, questions: list[Question]) -> list[Answer]:  # pyright: ignore[reportIncompatibleMethodOverride]
            self.questions += questions
            while not left:
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(0.01)
            return []

    async def run() -> GateDecision:
        check = gate.check("ann", "bad 0", channel="general")
        try:
            return await ended_at(clock, gate.deadline, check, waiting=lambda: backend.questions)
        finally:
            left.append(True)

    left: list[bool] = []
    backend = Deaf()
    gate = ActionGate(world, backend)
    assert asyncio.run(run()).reason == "timeout"


def unreachable(store_url: str) -> Store:
    return open_store(store_url, migrate=False)


@contextlib.contextmanager
def silent_server() -> Iterator[tuple[int, list[socket.socket]]]:
    """A port that takes connections and never says a word, and the connections."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        kept: list[socket.socket] = []

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    kept.append(listening.accept()[0])

        threading.Thread(target=accept, daemon=True).start()
        yield listening.getsockname()[1], kept
        for connection in kept:
            connection.close()


def test_the_database_is_down(world: World) -> None:
    world = replace(world, store=unreachable("postgresql://nobody@127.0.0.1:1/none"))
    decision = send(ActionGate(world, TextBackend()))
    assert (decision.action, decision.reason, decision.text) == (Action.COMMIT, "database", "bad 0")


def test_the_database_takes_connections_and_never_answers(world: World, clock: Clock) -> None:
    with silent_server() as (port, kept):
        store = unreachable(f"postgresql://nobody@127.0.0.1:{port}/none?connect_timeout={4 * LONG:.0f}")
        gate = ActionGate(replace(world, store=store), TextBackend())
        decision = given_up(gate, clock, waiting=lambda: kept)
        assert (decision.action, decision.reason) == (Action.COMMIT, "database")


def test_a_database_locked_by_another_writer(world: World, clock: Clock) -> None:
    gate = ActionGate(world, TextBackend())

    async def run() -> GateDecision:
        check = gate.check("ann", "good 8", channel="general")
        return await ended_at(clock, LONG, check, waiting=lambda: not gate.flush(0.0))

    with world.store.begin():
        assert asyncio.run(run()).outcome is Outcome.PASSED
        assert not gate.flush(0.05)
    assert gate.flush()
    assert correction_statistics(world.store).total.passed == 1


def test_a_table_that_is_gone(world: World) -> None:
    with world.store.begin() as connection:
        connection.exec_driver_sql("DROP TABLE gate_checks")
    assert send(ActionGate(world, TextBackend()), "good 8").outcome is Outcome.PASSED


def test_a_database_that_comes_back_is_used_again(world: World, clock: Clock) -> None:
    gate = ActionGate(world, TextBackend(), breaker_threshold=2)

    async def run() -> list[str | None]:
        reasons = []
        with held(world.store, lambda statement: "agent_evaluation_config" in statement) as store:
            for times in (1, 2):
                check = gate.check("ann", "good 8", channel="general")
                waiting = lambda times=times: store.waiting == times  # noqa: E731
                reasons.append((await ended_at(clock, gate.deadline, check, waiting=waiting)).reason)
            reasons.append((await gate.check("ann", "good 8", channel="general")).reason)
        clock.forward(BREAKER_COOLDOWN)
        return [*reasons, (await gate.check("ann", "good 8", channel="general")).reason]

    assert asyncio.run(run()) == ["database", "database", "database", None]


def test_a_caller_that_gives_up_is_not_held(world: World, server: MessagesServer) -> None:
    server.always(Hang())
    gate = ActionGate(world, live(server.url), settings=GATED)

    async def run() -> bool:
        check = asyncio.create_task(gate.check("ann", "bad 0", channel="general"))
        await until(lambda: server.calls)
        check.cancel()
        await asyncio.wait({check}, timeout=LONG / 4)
        return check.cancelled()

    assert asyncio.run(run())


def checks(gate: ActionGate, *texts: str, agent_id: str = "ann") -> list[GateDecision]:
    async def run() -> list[GateDecision]:
        return [await gate.check(agent_id, text, channel="general") for text in texts]

    return asyncio.run(run())


def test_an_observer_hears_of_every_decision_and_may_fail(world: World) -> None:
    def hear(agent: str, decision: GateDecision) -> None:
        heard.append((agent, decision.outcome))
        raise RuntimeError("no")

    heard: list[tuple[str, Outcome]] = []
    gate = ActionGate(world, TextBackend(), observer=hear)
    (decision,) = checks(gate, "bad 1")
    checks(gate, "x", agent_id="bob")
    assert decision.action is Action.RETRY and heard == [("ann", Outcome.CORRECTED), ("bob", Outcome.DISABLED)]
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
    decisions = checks(ActionGate(world, backend), "x" * 1_000_001, "bad 1")
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
