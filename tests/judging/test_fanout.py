"""Width and order of many calls, without a network."""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persona_pipeline.judging.pace import AdaptiveWidth, fan_out
from tests.support.clock import LONG


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_calls_throttled_together_narrow_once_and_later_ones_again() -> None:
    clock = Clock()
    width = AdaptiveWidth(16, clock=clock)
    for _ in range(5):
        width.throttled()
    assert width.width == 8
    clock.now = 1.0
    width.throttled()
    assert (width.width, width.narrowed) == (4, 2)


def test_the_width_never_falls_below_one_and_grows_back_to_its_maximum() -> None:
    clock = Clock()
    width = AdaptiveWidth(4, clock=clock)
    for _ in range(10):
        clock.now += 1
        width.throttled()
    assert width.width == 1
    for _ in range(20):
        width.succeeded()
    assert width.width == 4


@given(st.lists(st.booleans(), max_size=200), st.integers(1, 50))
def test_whatever_happens_the_width_stays_between_one_and_its_maximum(events: list[bool], maximum: int) -> None:
    clock = Clock()
    width = AdaptiveWidth(maximum, clock=clock)
    for throttled in events:
        clock.now += 1
        width.throttled() if throttled else width.succeeded()
        assert 1 <= width.width <= maximum


def test_a_slot_is_free_again_when_its_waiter_is_cancelled() -> None:
    async def run() -> list[str]:
        width = AdaptiveWidth(1)
        entered: list[str] = []

        async def work(name: str) -> None:
            async with width.slot():
                entered.append(name)
                await asyncio.sleep(0.01)

        first = asyncio.create_task(work("first"))
        await asyncio.sleep(0)
        second = asyncio.create_task(work("second"))
        await asyncio.sleep(0)
        third = asyncio.create_task(work("third"))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.wait_for(asyncio.gather(first, third), LONG)
        return entered

    assert asyncio.run(run()) == ["first", "third"]


def starts(count: int, late: int) -> list[int]:
    """Return the turn of the event loop in which each of so many calls starts, the first ``late`` turns being long."""

    async def run() -> list[int]:
        clock, turn, started = Clock(), 0, []
        width = AdaptiveWidth(count, work=clock)

        async def work() -> None:
            async with width.slot():
                started.append(turn)

        def tick() -> None:
            nonlocal turn
            turn += 1
            clock.now += 1.0 if turn <= late else 0.0
            asyncio.get_running_loop().call_soon(tick)

        tick()
        await asyncio.gather(*(work() for _ in range(count)))
        return started

    return asyncio.run(run())


def test_calls_with_places_free_start_one_after_another_each_in_a_turn_of_its_own() -> None:
    assert len(set(starts(20, late=0))) == 20


@pytest.mark.parametrize(("late", "first"), [(0, 3), (10, 13), (10_000, 23)])
def test_while_the_loop_has_much_to_read_no_call_starts_but_one_now_and_then(late: int, first: int) -> None:
    turns = starts(3, late=late)
    assert min(late, 20) <= turns[0] <= first
    assert late < 10_000 or turns[1] - turns[0] >= 20


def run_groups(groups: Sequence[Sequence[str]], failing: set[str], lead: bool) -> list[str]:
    """Return starts and ends in the order they came."""
    log: list[str] = []

    async def call(item: str) -> bool:
        log.append(f"+{item}")
        await asyncio.sleep(0.001)
        log.append(f"-{item}")
        return item not in failing

    asyncio.run(fan_out(groups, call, leads=lambda group: lead))
    return log


def test_the_first_call_of_each_group_goes_alone_and_groups_go_side_by_side() -> None:
    log = run_groups([["a1", "a2", "a3"], ["b1", "b2"]], set(), lead=True)
    assert log[:4] == ["+a1", "+b1", "-a1", "-b1"]
    assert sorted(log) == sorted([f"{sign}{item}" for sign in "+-" for item in ("a1", "a2", "a3", "b1", "b2")])


def test_when_the_first_call_fails_the_next_one_leads_and_then_all_go() -> None:
    log = run_groups([["1", "2", "3", "4"]], {"1", "2"}, lead=True)
    assert log[:4] == ["+1", "-1", "+2", "-2"]
    assert log[4:6] == ["+3", "+4"]


@pytest.mark.parametrize("lead", [True, False])
def test_no_groups_and_single_calls_are_fine(lead: bool) -> None:
    assert run_groups([], set(), lead) == []
    assert run_groups([["only"]], {"only"}, lead) == ["+only", "-only"]
