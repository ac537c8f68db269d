"""The order of many calls, without a network."""

import asyncio
from collections.abc import Sequence

import pytest

from persona_pipeline.judging.pace import fan_out


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
