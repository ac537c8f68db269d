"""Time that a test drives by hand, deadlines nobody is to meet by accident, and a database that does not answer."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest
import sqlalchemy as sa

from persona_pipeline.base.database.engine import Store

# Seconds no machine is too slow for.
LONG = 120.0

Value = TypeVar("Value")


class Clock:
    """``time.monotonic`` of this process, its event loops included, which can be put forward.

    ``forward`` is for the thread of the loop whose timers are to go off.
    """

    def __init__(self) -> None:
        self._real = time.monotonic
        self._ahead = 0.0

    def __call__(self) -> float:
        return self._real() + self._ahead

    def forward(self, seconds: float) -> None:
        self._ahead += seconds

    @classmethod
    def take_over(cls, monkeypatch: pytest.MonkeyPatch) -> "Clock":
        """Return a clock that everybody looks at until the test is over."""
        from persona_pipeline.base.calls import Breaker
        from persona_pipeline.judging.pace import Pacer

        clock = cls()
        monkeypatch.setattr(time, "monotonic", clock)
        for kind in (Breaker, Pacer):
            monkeypatch.setitem(kind.__init__.__kwdefaults__, "clock", clock)
        return clock


def take_deadlines_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the corrections wait for has ``LONG``, unless a test says otherwise."""
    from persona_pipeline.corrections.configuration import StoredSettings
    from persona_pipeline.corrections.gate import ActionGate
    from persona_pipeline.corrections.interventions import Interventions
    from persona_pipeline.corrections.service.app import create_app

    for function, name in (
        (ActionGate.__init__, "deadline"),
        (Interventions.__init__, "deadline"),
        (StoredSettings.__init__, "seconds"),
        (create_app, "deadline"),
    ):
        assert name in function.__kwdefaults__
        monkeypatch.setitem(function.__kwdefaults__, name, LONG)
    monkeypatch.setattr(ActionGate.flush, "__defaults__", (LONG,))
    for name in (
        "persona_pipeline.corrections.gate._RECORD_WAIT_SECONDS",
        "persona_pipeline.corrections.gate._LOOP_GRACE_SECONDS",
        "persona_pipeline.corrections.gate.DEADLINE_SECONDS",
        "persona_pipeline.corrections.service.app._STORE_SECONDS",
        "persona_pipeline.corrections.service.app._HEALTH_SECONDS",
    ):
        monkeypatch.setattr(name, LONG)


async def until(condition: Callable[[], object]) -> None:
    """Return when a condition holds, which other tasks or threads bring about.

    Raises:
        TimeoutError: it does not.
    """
    async with asyncio.timeout(LONG / 2):
        while not condition():
            await asyncio.sleep(0.005)


async def ended_at(clock: Clock, seconds: float, work: Awaitable[Value], *, waiting: Callable[[], object]) -> Value:
    """Return the result of work that ends when so many seconds have passed, and does not much earlier.

    Args:
        seconds: from now.
        waiting: whether the work has come to where it waits.
    """
    task = asyncio.ensure_future(work)
    try:
        await until(waiting)
        clock.forward(0.4 * seconds)
        await asyncio.sleep(0.01)
        assert not task.done(), "it ends before its time"
        clock.forward(0.6 * seconds)
        done, _ = await asyncio.wait({task}, timeout=LONG / 4)
        assert done, "it does not end in time"
        return task.result()
    finally:
        task.cancel()


class Held:
    """Statements that do not return. ``waiting``: how many have begun to wait; ``released``: whether they may go on."""

    def __init__(self) -> None:
        self.waiting, self.released = 0, threading.Event()


@contextmanager
def held(store: Store, when: Callable[[str], bool] = lambda statement: True) -> Iterator[Held]:
    """Every statement that fits waits until the block ends."""
    state = Held()

    def wait(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if not state.released.is_set() and when(statement):
            state.waiting += 1
            state.released.wait(LONG)

    sa.event.listen(store.engine, "before_cursor_execute", wait)
    try:
        yield state
    finally:
        state.released.set()
