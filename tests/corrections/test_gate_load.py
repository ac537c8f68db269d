"""More checks than can be judged, an event loop that is late, and agents whose requests the judge refuses."""

import asyncio
import socket
import threading
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
import sqlalchemy as sa

from persona_pipeline.base.calls import AgentBreakers
from persona_pipeline.base.http_server import ARRIVED, ServerLimits, guarded_protocol
from persona_pipeline.corrections.configuration import write_config
from persona_pipeline.corrections.gate import DEADLINE_SECONDS, ActionGate
from persona_pipeline.corrections.judgment import CheckSlots, NotJudgedError
from persona_pipeline.corrections.records import GateDecision
from persona_pipeline.corrections.statistics import correction_statistics
from persona_pipeline.judging.verdict import Answer, Blame, Question, Unscored
from persona_pipeline.world import World
from persona_pipeline.world.messages.store import write_messages
from persona_pipeline.world.models import Message
from tests.corrections.support import GATED, TextBackend
from tests.corrections.test_gate_faults import BREAKER_COOLDOWN, live
from tests.support.clock import LONG, Clock, ended_at, until
from tests.support.messages_server import MessagesServer, status


def test_requests_of_one_agent_that_the_judge_will_not_have_leave_the_others_checked(
    world: World, server: MessagesServer
) -> None:
    write_config(world.store, "bob", GATED)
    answers = server.handler
    server.handler = lambda call: status(400, "invalid_request_error") if "too long" in call.evidence else answers(call)
    gate = ActionGate(world, live(server.url))

    async def run() -> tuple[list[GateDecision], list[GateDecision]]:
        refused, judged = [], []
        async with gate:
            for _ in range(20):
                refused.append(await gate.check("bob", "too long", channel="general"))
                judged.append(await gate.check("ann", "fine 8", channel="general"))
        return refused, judged

    refused, judged = asyncio.run(run())
    assert Counter(item.reason for item in refused) == {"api_error": 5, "circuit_open": 15}
    assert {item.score for item in judged} == {8}


class Slow(TextBackend):
    """A healthy judge that gives so many answers and then takes its time."""

    def __init__(self, answers: int) -> None:
        super().__init__()
        self.left, self.under_way, self.most = answers, 0, 0

    async def ask(self, questions):
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        while not self.left:
            await asyncio.sleep(0.005)
        self.left -= 1
        self.under_way -= 1
        return await super().ask(questions)


def test_load_is_shed_by_a_limit_with_its_own_reason_and_opens_no_breaker(world: World, clock: Clock) -> None:
    backend = Slow(10)
    gate = ActionGate(world, backend, most_at_once=5)

    async def run() -> tuple[list[GateDecision], list[GateDecision]]:
        checks = asyncio.gather(*(gate.check("ann", f"text {n} 8", channel=f"room-{n}") for n in range(60)))
        await until(lambda: (len(backend.questions), backend.under_way) == (10, 5))
        await until(lambda: len(gate._judge._places._waiting) == 45)
        # Who waits for a place is sent away before the time is over, and who has one is judged.
        clock.forward(0.85 * LONG)
        await until(lambda: not gate._judge._places._waiting)
        backend.left = 5
        decisions = await asyncio.wait_for(checks, LONG)
        backend.left = 3
        after = await asyncio.gather(*(gate.check("ann", "text 8", channel=f"room-{n}") for n in range(3)))
        return list(decisions), list(after)

    decisions, after = asyncio.run(run())
    assert Counter(item.reason for item in decisions) == {None: 15, "overload": 45}
    assert backend.most == 5
    assert [item.text for item in decisions] == [f"text {n} 8" for n in range(60)]
    assert {item.reason for item in after} == {None}
    assert gate.flush()
    assert correction_statistics(world.store).total.fail_open_by_reason == {"overload": 45}


def test_a_slow_answer_while_others_are_answered_is_no_outage(world: World, clock: Clock) -> None:
    class Stuck(TextBackend):
        stuck = 0

        async def ask(self, questions: list[Question]) -> list[Answer]:
            if "stuck" in questions[0].evidence:
                self.stuck += 1
                await asyncio.Event().wait()
            return await super().ask(questions)

    backend = Stuck()
    gate = ActionGate(world, backend)

    async def run() -> list[GateDecision]:
        stuck = asyncio.gather(*(gate.check("ann", "stuck", channel=f"room-{n}") for n in range(8)))
        await until(lambda: backend.stuck == 8)
        await gate.check("ann", "fine 8", channel="general")
        given_up = await ended_at(clock, gate.deadline, stuck, waiting=lambda: True)
        assert {item.reason for item in given_up} == {"timeout"}
        return [await gate.check("ann", "fine 8", channel="general") for _ in range(3)]

    assert {item.reason for item in asyncio.run(run())} == {None}


@pytest.mark.parametrize("blame", [Blame.ENDPOINT, None])
def test_an_outage_opens_the_breaker_for_all_and_one_check_probes(
    world: World, clock: Clock, blame: Blame | None
) -> None:
    write_config(world.store, "bob", GATED)
    down = [True]
    backend = TextBackend()
    judged = backend._answer
    failed = Answer(unscored=Unscored.API_ERROR, detail="HTTP 503", blame=blame)
    backend._answer = lambda question: failed if down[0] else judged(question)
    gate = ActionGate(world, backend, breaker_threshold=3)

    async def run() -> list[str | None]:
        reasons = [(await gate.check("ann", "x 8", channel="general")).reason for _ in range(3)]
        reasons.append((await gate.check("bob", "x 8", channel="general")).reason)
        down[0] = False
        clock.forward(BREAKER_COOLDOWN)
        probes = await asyncio.gather(*(gate.check("bob", "x 8", channel=f"room-{n}") for n in range(2)))
        return [*reasons, *sorted((item.reason for item in probes), key=str)]

    reasons = asyncio.run(run())
    assert reasons[:4] == ["api_error"] * 3 + ["circuit_open"]
    assert None in reasons[4:]
    assert len(backend.questions) <= 5


def test_breakers_of_agents_do_not_grow_without_end() -> None:
    breakers = AgentBreakers(threshold=1)
    for number in range(3000):
        breakers.failed(f"agent-{number}", "400")
    assert len(breakers._of) == 1000
    assert breakers.refusal("agent-2999") is not None


def statements(world: World, count: int) -> int:
    """Return how many statements it takes to check so many texts at once, each for a place of its own, all written down."""
    gate, told = ActionGate(world, TextBackend()), []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        told.append(statement)

    async def run() -> list[GateDecision]:
        return await asyncio.gather(*(gate.check("ann", f"{n} fine 8", channel=f"room-{n}") for n in range(count)))

    asyncio.run(gate.check("ann", "fine 8", channel="general"))
    sa.event.listen(world.store.engine, "before_cursor_execute", note)
    try:
        decisions = asyncio.run(run())
        assert gate.flush()
    finally:
        sa.event.remove(world.store.engine, "before_cursor_execute", note)
    assert [item.text for item in decisions] == [f"{n} fine 8" for n in range(count)]
    assert correction_statistics(world.store).total.checks == count + 1
    return len(told)


def test_checks_that_come_at_once_read_what_they_share_once_and_are_written_together(world: World) -> None:
    # Each alone takes seven to read and three to write.
    assert statements(world, 100) < 4 * 100


def test_what_was_said_since_an_earlier_check_is_known_to_the_next(world: World) -> None:
    backend = TextBackend()
    gate = ActionGate(world, backend)

    async def run() -> None:
        for number in range(3):
            await gate.check("ann", "fine 8", channel="general")
            write_messages(
                world.store, [Message(f"m{number}", "ann", f"just said {number}", datetime.now(UTC), "general")]
            )

    asyncio.run(run())
    assert [question.evidence.count("just said") for question in backend.questions] == [0, 1, 2]


class Silent(TextBackend):
    """A judge that hangs."""

    async def ask(self, questions: Sequence[Question]) -> list[Answer]:
        self.questions += questions
        await asyncio.sleep(LONG)
        raise AssertionError


@pytest.mark.parametrize("turn", [0.1, 0.25], ids=lambda turn: f"{turn} s a turn")
def test_28_a_loop_that_is_starved_answers_within_the_deadline(turn: float, world: World, clock: Clock) -> None:
    """Every turn of the loop takes so long: three hundred checks that are ended at once, or a processor that others have."""
    backend = Silent()

    async def starve(until_done: asyncio.Task) -> None:
        while not until_done.done():
            clock.forward(turn)
            await asyncio.sleep(0)

    async def run() -> float:
        gate = ActionGate(world, backend, deadline=DEADLINE_SECONDS, most_at_once=300)
        began = time.monotonic()
        asked = asyncio.ensure_future(gate.check("ann", "hello", channel="general", arrived=began))
        await until(lambda: backend.questions)
        await starve(asked)
        took = time.monotonic() - began
        decision = await asked
        assert (decision.reason, decision.text) == ("timeout", "hello")
        return took

    took = asyncio.run(run())
    print(f"28  a turn of the loop takes {turn} s: answered after {took:.2f} s of the clock")
    assert took <= DEADLINE_SECONDS + 0.25


def test_28_what_waited_for_a_turn_of_the_process_had_arrived_before() -> None:
    """Only that it is not too little is claimed: no machine is too slow for that."""
    stamps: list[tuple[float, float]] = []

    async def app(scope: dict, receive: object, send: object) -> None:
        if scope["type"] == "http":
            stamps.append((scope[ARRIVED], time.monotonic()))
            await send({"type": "http.response.start", "status": 200, "headers": []})  # pyright: ignore
            await send({"type": "http.response.body", "body": b""})  # pyright: ignore

    import uvicorn

    config = uvicorn.Config(
        app, port=0, http=guarded_protocol(ServerLimits()), ws="none", lifespan="off", log_level="error"
    )  # pyright: ignore

    async def run() -> None:
        server = uvicorn.Server(config)
        serving = asyncio.ensure_future(server.serve())
        await until(lambda: server.started)
        with socket.create_connection(server.servers[0].sockets[0].getsockname()) as client:
            client.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
            await until(lambda: len(stamps) == 1)
            client.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
            # The process has no turn, or is at other work.
            threading.Event().wait(0.5)
            await until(lambda: len(stamps) == 2)
        server.should_exit = True
        await serving

    asyncio.run(run())
    arrived, began = stamps[1]
    assert began - arrived >= 0.4


async def take_place(slots: CheckSlots, name: str, found: list[str]) -> None:
    """Wait for a place, and say by whom it was had."""
    async with slots.one(time.monotonic() + LONG):
        found.append(name)


@pytest.mark.parametrize("most", [1, 2])
def test_no_more_are_judged_at_once_than_there_are_places(most: int) -> None:
    async def run() -> None:
        slots, ends = CheckSlots(most), time.monotonic() + LONG
        async with asyncio.TaskGroup() as held:
            leave = asyncio.Event()

            async def hold() -> None:
                async with slots.one(ends):
                    await leave.wait()

            for _ in range(most):
                held.create_task(hold())
            await asyncio.sleep(0)
            with pytest.raises(NotJudgedError):
                async with slots.one(time.monotonic() + 0.01):
                    raise AssertionError("there was a place too many")
            leave.set()
        # All came back.
        async with slots.one(ends):
            pass

    asyncio.run(run())


@pytest.mark.parametrize(
    ("asked", "given_up", "served"),
    [
        pytest.param("ab", "", "ba", id="the newest first"),
        pytest.param("a", "", "a", id="alone"),
        pytest.param("abc", "c", "ba", id="who gave up has none"),
        pytest.param("abc", "a", "cb", id="nor who asked first"),
        pytest.param("ab", "ab", "", id="all gave up"),
    ],
)
def test_a_place_that_is_free_goes_to_who_waits(asked: str, given_up: str, served: str) -> None:
    async def run() -> list[str]:
        slots, ends, found = CheckSlots(1), time.monotonic() + LONG, []
        async with slots.one(ends):
            waiting = {}
            for name in asked:
                waiting[name] = asyncio.ensure_future(take_place(slots, name, found))
                await asyncio.sleep(0)
            for name in given_up:
                waiting[name].cancel()
            await asyncio.sleep(0)
            assert found == []
        await asyncio.wait(waiting.values(), timeout=LONG / 2)
        assert all(task.done() for task in waiting.values())
        # The place is free again.
        async with slots.one(ends):
            return found

    assert "".join(asyncio.run(run())) == served


def test_who_is_given_a_place_as_it_gives_up_hands_it_on() -> None:
    async def run() -> list[str]:
        slots, ends, found = CheckSlots(1), time.monotonic() + LONG, []
        async with slots.one(ends):
            first, last = (asyncio.ensure_future(take_place(slots, name, found)) for name in ("first", "last"))
            await asyncio.sleep(0)
        # The place is the last one's now, which has not come to know of it.
        last.cancel()
        await asyncio.wait({first, last}, timeout=LONG / 2)
        return found

    assert asyncio.run(run()) == ["first"]
