"""Places for checks: as many at once as there are, and the next when one is free."""

import asyncio
import time

import pytest

from persona_pipeline.corrections.judgment import CheckSlots, NotJudgedError
from tests.support.clock import LONG


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
