"""Whatever breaks, the message goes through once, in time, and the reason is counted."""

import asyncio
import contextlib
import inspect
import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from pydantic import SecretStr

from persona_pipeline.base.database.engine import Store, open_store
from persona_pipeline.corrections.gate import DEADLINE_SECONDS, ActionGate, gate_backend
from persona_pipeline.corrections.records import Action, GateDecision, Outcome
from persona_pipeline.corrections.statistics import correction_statistics
from persona_pipeline.judging.model.asking import ModelBackend
from persona_pipeline.judging.providers.base import ModelOptions
from persona_pipeline.judging.verdict import Answer, Question
from persona_pipeline.world import World
from tests.corrections.support import GATED, TextBackend
from tests.support.clock import LONG, Clock, ended_at, held, until
from tests.support.messages_server import Cut, Hang, MessagesServer, Reply, Reset, Trickle, message, status

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
    "no verdict": garbage('{"verdicts": []}'),
    "two verdicts": garbage(json.dumps({"verdicts": [{"id": "c1", "reason": "", "score": 9}] * 2})),
    "a score of 10": garbage(json.dumps({"verdicts": [{"id": "c1", "reason": "", "score": 10}]})),
    "a score of true": garbage(json.dumps({"verdicts": [{"id": "c1", "reason": "", "score": True}]})),
    "NaN": garbage('{"verdicts": [{"id": "c1", "reason": "", "score": NaN}]}'),
    "verdicts that are no list": garbage('{"verdicts": 9}'),
    "a list": garbage("[]"),
    "deep nesting": garbage("[" * 5000),
    "a refusal": message("No.", stop_reason="refusal"),
    "a connection that breaks": Reset(),
    "half a response": Cut(message("{}")),
    "status 400": status(400, "invalid_request_error"),
    "status 401": status(401, "authentication_error"),
    "status 500": status(500),
    "status 529": status(529, "overloaded_error"),
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


def test_nobody_listens_at_the_judges_address(world: World) -> None:
    decision = send(ActionGate(world, live("http://127.0.0.1:1")))
    assert (decision.action, decision.reason) == (Action.COMMIT, "api_error")


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


def test_a_slow_database(world: World, clock: Clock) -> None:
    with held(world.store) as store:
        decision = given_up(ActionGate(world, TextBackend()), clock, waiting=lambda: store.waiting)
        assert (decision.action, decision.reason) == (Action.COMMIT, "database")


def test_a_database_too_slow_to_write_does_not_change_the_decision(world: World, clock: Clock) -> None:
    gate = ActionGate(world, TextBackend())

    async def run() -> GateDecision:
        check = gate.check("ann", "bad 1", channel="general")
        return await ended_at(clock, LONG, check, waiting=lambda: store.waiting)

    with held(world.store, lambda statement: statement.startswith("INSERT")) as store:
        assert asyncio.run(run()).action is Action.RETRY
    assert gate.flush()
    assert correction_statistics(world.store).total.rejections == 1


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


def test_after_five_failures_nobody_waits_for_the_judge_until_it_is_tried_again(
    world: World, server: MessagesServer, clock: Clock
) -> None:
    server.always(Hang())
    gate = ActionGate(world, live(server.url))

    async def run() -> list[str | None]:
        reasons = []
        for calls in range(1, 6):
            check = gate.check("ann", "good 8", channel="general")
            done = await ended_at(clock, gate.deadline, check, waiting=lambda calls=calls: len(server.calls) == calls)
            reasons.append(done.reason)
        server.always(None)
        reasons += [(await gate.check("ann", "good 8", channel="general")).reason for _ in range(2)]
        assert len(server.calls) == 5
        clock.forward(BREAKER_COOLDOWN)
        return [*reasons, (await gate.check("ann", "good 8", channel="general")).reason]

    assert asyncio.run(run()) == ["timeout"] * 5 + ["circuit_open"] * 2 + [None]


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


def test_two_hundred_messages_past_a_hanging_judge_all_go_out_in_time(
    world: World, server: MessagesServer, clock: Clock
) -> None:
    server.always(Hang())
    gate = ActionGate(world, live(server.url))

    async def run() -> list[GateDecision]:
        async with gate:
            checks = asyncio.gather(*(gate.check("ann", f"text {n}", channel=f"room-{n}") for n in range(200)))
            waiting = lambda: len(server.calls) + len(gate._judge._places._waiting) == 200  # noqa: E731
            return await ended_at(clock, gate.deadline, checks, waiting=waiting)

    decisions = asyncio.run(run())
    assert [item.text for item in decisions] == [f"text {n}" for n in range(200)]
    assert {item.action for item in decisions} == {Action.COMMIT}
    assert {item.reason for item in decisions} <= {"timeout", "circuit_open", "overload"}


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
