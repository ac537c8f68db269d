"""An event loop that comes round late: the deadline holds all the same, and counts from when a request's bytes came."""

import asyncio
import socket
import threading
import time
from collections.abc import Sequence

import pytest

from persona_pipeline.base.http_server import ARRIVED, ServerLimits, guarded_protocol
from persona_pipeline.corrections.gate import DEADLINE_SECONDS, ActionGate
from persona_pipeline.judging.verdict import Answer, Question
from persona_pipeline.world import World
from tests.corrections.support import TextBackend
from tests.support.clock import LONG, Clock, until


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
