"""Places for checks: as many at once as there are, and the next when one is free."""

import asyncio
import time

import pytest

from persona_pipeline.corrections.judgment import CheckSlots, NotJudgedError
from tests.support.clock import LONG


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
