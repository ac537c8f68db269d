"""Whatever breaks, the message goes through once, in time, and the reason is counted."""

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import sqlalchemy as sa
from pydantic import SecretStr

from persona_pipeline.corrections.backend import gate_backend
from persona_pipeline.corrections.decision import Action, GateDecision, Outcome
from persona_pipeline.corrections.gate import DEADLINE_SECONDS, ActionGate
from persona_pipeline.corrections.statistics import correction_statistics
from persona_pipeline.judging.backend import AnthropicBackend
from persona_pipeline.judging.options import AnthropicOptions
from persona_pipeline.judging.questions import Answer, Question
from persona_pipeline.store import Store, open_store
from persona_pipeline.testing.messages_server import Cut, Hang, MessagesServer, Reply, Reset, Trickle, message, status
from persona_pipeline.world import World
from tests.corrections.support import GATED, TextBackend

GIVEN_UP_AFTER = 0.6


def live(url: str) -> AnthropicBackend:
    return gate_backend(options=AnthropicOptions(base_url=url, api_key=SecretStr("test-key")))


def send(gate: ActionGate, text: str = "bad 0") -> tuple[GateDecision, float]:
    """Check a text as a tool handler does; return the decision and the seconds it took."""

    async def run() -> tuple[GateDecision, float]:
        async with gate:
            started = time.monotonic()
            decision = await gate.check("ann", text, channel="general")
            return decision, time.monotonic() - started

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
    gate = ActionGate(world, live(server.url), deadline=1.5)
    decision, seconds = send(gate)
    assert (decision.action, decision.outcome, decision.text) == (Action.COMMIT, Outcome.FAIL_OPEN, "bad 0")
    assert decision.score is None
    assert seconds < 1.6
    assert correction_statistics(world.store).total.fail_open_by_reason == {decision.reason: 1}


@pytest.mark.parametrize("outcome", [Hang(), Trickle(message("{}"), interval=0.05)], ids=["hang", "trickle"])
def test_a_judge_that_does_not_finish(world: World, server: MessagesServer, outcome: Hang | Trickle) -> None:
    server.always(outcome)
    decision, seconds = send(ActionGate(world, live(server.url), deadline=GIVEN_UP_AFTER))
    assert (decision.action, decision.reason) == (Action.COMMIT, "timeout")
    assert seconds < GIVEN_UP_AFTER + 0.05


def test_nobody_listens_at_the_judges_address(world: World) -> None:
    decision, seconds = send(ActionGate(world, live("http://127.0.0.1:1")))
    assert (decision.action, decision.reason) == (Action.COMMIT, "api_error")
    assert seconds < 6


def test_the_default_deadline_holds(world: World, server: MessagesServer) -> None:
    server.always(Hang())
    decision, seconds = send(ActionGate(world, live(server.url)))
    assert decision.reason == "timeout"
    assert DEADLINE_SECONDS - 0.1 < seconds < DEADLINE_SECONDS + 0.05


def test_a_backend_that_ignores_its_cancellation_is_left_behind(world: World) -> None:
    class Deaf(TextBackend):
        async def ask(self, questions: list[Question]) -> list[Answer]:  # pyright: ignore[reportIncompatibleMethodOverride]
            for _ in range(30):
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(0.05)
            return []

    async def run() -> float:
        started = time.monotonic()
        decision = await gate.check("ann", "bad 0", channel="general")
        assert decision.reason == "timeout"
        return time.monotonic() - started

    gate = ActionGate(world, Deaf(), deadline=0.3)
    assert asyncio.run(run()) < 0.4


def unreachable(store_url: str) -> Store:
    return open_store(store_url, migrate=False)


@contextlib.contextmanager
def silent_server() -> Iterator[int]:
    """A port that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        kept: list[socket.socket] = []

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    kept.append(listening.accept()[0])

        threading.Thread(target=accept, daemon=True).start()
        yield listening.getsockname()[1]
        for connection in kept:
            connection.close()


def test_the_database_is_down(world: World) -> None:
    world = replace(world, store=unreachable("postgresql://nobody@127.0.0.1:1/none"))
    decision, seconds = send(ActionGate(world, TextBackend()))
    assert (decision.action, decision.reason, decision.text) == (Action.COMMIT, "database", "bad 0")
    assert seconds < 6


def test_the_database_takes_connections_and_never_answers(world: World) -> None:
    with silent_server() as port:
        world = replace(world, store=unreachable(f"postgresql://nobody@127.0.0.1:{port}/none"))
        decision, seconds = send(ActionGate(world, TextBackend(), deadline=GIVEN_UP_AFTER))
    assert (decision.action, decision.reason) == (Action.COMMIT, "database")
    assert seconds < GIVEN_UP_AFTER + 0.05


@contextlib.contextmanager
def slowed(store: Store, seconds: float, when: Callable[[str], bool] = lambda _: True) -> Iterator[None]:
    """Every statement that fits takes so many seconds more."""

    def wait(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if when(statement):
            time.sleep(seconds)

    sa.event.listen(store.engine, "before_cursor_execute", wait)
    yield
    sa.event.remove(store.engine, "before_cursor_execute", wait)


def test_a_slow_database(world: World) -> None:
    with slowed(world.store, 1.0):
        decision, seconds = send(ActionGate(world, TextBackend(), deadline=GIVEN_UP_AFTER))
    assert (decision.action, decision.reason) == (Action.COMMIT, "database")
    assert seconds < GIVEN_UP_AFTER + 0.05


def test_a_database_too_slow_to_write_does_not_change_the_decision(world: World) -> None:
    gate = ActionGate(world, TextBackend())

    async def run() -> tuple[GateDecision, float]:
        started = time.monotonic()
        return await gate.check("ann", "bad 1", channel="general"), time.monotonic() - started

    with slowed(world.store, 0.8, lambda statement: statement.startswith("INSERT")):
        decision, seconds = asyncio.run(run())
        assert decision.action is Action.RETRY
        assert seconds < 0.5
        assert gate.flush(5)
    assert correction_statistics(world.store).total.rejections == 1


def test_a_database_locked_by_another_writer(world: World) -> None:
    gate = ActionGate(world, TextBackend())

    async def run() -> GateDecision:
        return await gate.check("ann", "good 8", channel="general")

    with world.store.begin():
        started = time.monotonic()
        assert asyncio.run(run()).outcome is Outcome.PASSED
        assert time.monotonic() - started < 1
        assert not gate.flush(0.05)
    assert gate.flush(5)
    assert correction_statistics(world.store).total.passed == 1


def test_a_table_that_is_gone(world: World) -> None:
    with world.store.begin() as connection:
        connection.exec_driver_sql("DROP TABLE gate_checks")
    decision, _ = send(ActionGate(world, TextBackend()), "good 8")
    assert decision.outcome is Outcome.PASSED


def test_after_five_failures_nobody_waits_for_the_judge_until_it_is_tried_again(
    world: World, server: MessagesServer
) -> None:
    server.always(Hang())
    gate = ActionGate(world, live(server.url), deadline=0.5, breaker_cooldown=0.5)

    async def run() -> list[GateDecision]:
        decisions = [await gate.check("ann", "good 8", channel="general") for _ in range(7)]
        server.always(None)
        await asyncio.sleep(0.5)
        return [*decisions, await gate.check("ann", "good 8", channel="general")]

    decisions = asyncio.run(run())
    assert [item.reason for item in decisions] == ["timeout"] * 5 + ["circuit_open"] * 2 + [None]
    assert decisions[6].latency_ms < 100


def test_a_database_that_comes_back_is_used_again(world: World) -> None:
    gate = ActionGate(world, TextBackend(), deadline=0.2, breaker_threshold=2, breaker_cooldown=0.3)

    async def run() -> list[str | None]:
        with slowed(world.store, 0.4):
            reasons = [(await gate.check("ann", "good 8", channel="general")).reason for _ in range(3)]
        await asyncio.sleep(1.0)
        return [*reasons, (await gate.check("ann", "good 8", channel="general")).reason]

    assert asyncio.run(run()) == ["database", "database", "database", None]


def test_two_hundred_messages_past_a_hanging_judge_all_go_out_in_time(world: World, server: MessagesServer) -> None:
    server.always(Hang())
    gate = ActionGate(world, live(server.url), deadline=2.0)

    async def run() -> tuple[list[GateDecision], float]:
        async with gate:
            started = time.monotonic()
            checks = (gate.check("ann", f"text {n}", channel=f"room-{n}") for n in range(200))
            return await asyncio.gather(*checks), time.monotonic() - started

    decisions, seconds = asyncio.run(run())
    assert [item.text for item in decisions] == [f"text {n}" for n in range(200)]
    assert {item.action for item in decisions} == {Action.COMMIT}
    assert {item.reason for item in decisions} <= {"timeout", "circuit_open", "overload"}
    assert seconds < 3


def test_a_caller_that_gives_up_is_not_held(world: World, server: MessagesServer) -> None:
    server.always(Hang())
    gate = ActionGate(world, live(server.url), settings=GATED)

    async def run() -> float:
        started = time.monotonic()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.2):
                await gate.check("ann", "bad 0", channel="general")
        return time.monotonic() - started

    assert asyncio.run(run()) < 0.5
