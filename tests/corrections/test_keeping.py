"""Upkeep: texts that are old lose their words, bypasses are counted in few rows."""

from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from persona_pipeline.base.database import tables
from persona_pipeline.base.database.engine import open_store
from persona_pipeline.corrections.records import Bypasses
from persona_pipeline.corrections.statistics import (
    correction_statistics,
    forget_bypasses,
    forget_texts,
)
from persona_pipeline.world import World
from tests.corrections.support import bypass_counts
from tests.support.waiting import wait_until

NOW = datetime(2026, 6, 30, 12, tzinfo=UTC)


def log(world: World, days_ago: float) -> None:
    row = {
        "agent_id": "ann",
        "original_text": "secret words",
        "corrected_text": "better words",
        "score": 3.0,
        "threshold": 5.0,
        "reasoning": "it says secret words",
        "attempt_number": 1,
        "outcome": "corrected",
        "created_at": NOW - timedelta(days=days_ago),
    }
    with world.store.begin() as connection:
        connection.execute(sa.insert(tables.correction_logs), row)


def check(world: World, number: int, moment: datetime, **values: object) -> None:
    row = {"agent_id": "ann", "action_id": f"a{number}", "attempt_number": 1, "decision": "commit", "latency_ms": 5.0}
    with world.store.begin() as connection:
        connection.execute(sa.insert(tables.gate_checks), row | {"created_at": moment} | values)


def test_texts_that_are_old_lose_their_words_and_nothing_else(either_world: World) -> None:
    for days in (1, 29, 31, 300):
        log(either_world, days)
    assert forget_texts(either_world.store, 30, now=NOW) == 2
    assert forget_texts(either_world.store, 30, now=NOW) == 0
    with either_world.store.connect() as connection:
        rows = connection.execute(sa.select(tables.correction_logs).order_by("created_at")).all()
    assert [(row.original_text, row.corrected_text, row.reasoning, row.score) for row in rows] == [
        ("", None, "", 3.0),
        ("", None, "", 3.0),
        ("secret words", "better words", "it says secret words", 3.0),
        ("secret words", "better words", "it says secret words", 3.0),
    ]


def test_bypasses_are_few_rows_whatever_names_are_made_up(either_world: World) -> None:
    heard: list[str] = []
    bypasses = Bypasses(either_world.store, observer=heard.append)
    for number in range(1000):
        bypasses.count("disabled", f"made-up-{number}\x00")
    bypasses.count("too_large")
    bypasses.flush()
    bypasses.flush()
    assert bypass_counts(either_world.store) == {"disabled": 1000, "too_large": 1}
    with either_world.store.connect() as connection:
        assert connection.execute(sa.select(sa.func.count()).select_from(tables.gate_bypasses)).scalar_one() <= 202
    assert len(heard) == 1001
    assert forget_bypasses(either_world.store, 90) == 0
    later = datetime.now(UTC) + timedelta(days=91)
    assert forget_bypasses(either_world.store, 90, now=later) > 0


def test_bypasses_wait_for_a_store_that_is_down(world: World) -> None:
    down = open_store("postgresql://nobody@127.0.0.1:1/none", migrate=False)
    bypasses = Bypasses(down)
    bypasses.count("too_large")
    bypasses.flush()
    bypasses._store = world.store
    bypasses.count("too_large")
    bypasses.flush()
    assert bypass_counts(world.store) == {"too_large": 2}


def test_bypasses_that_could_not_be_written_are_written_by_themselves(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    bypasses = Bypasses(open_store("postgresql://nobody@127.0.0.1:1/none", migrate=False), seconds=0.01)
    bypasses.count("too_large")
    wait_until(lambda: "1 bypasses are not written down yet" in caplog.text)
    bypasses._store = world.store
    wait_until(lambda: bypass_counts(world.store) == {"too_large": 1})


@pytest.mark.parametrize("late", [timedelta(0), timedelta(days=3)], ids=["in time", "days late"])
def test_a_check_that_is_written_late_counts_where_it_belongs(either_world: World, late: timedelta) -> None:
    check(either_world, 1, NOW)
    assert correction_statistics(either_world.store).total.actions == 1
    check(either_world, 2, NOW - late)
    found = correction_statistics(either_world.store)
    assert (found.total.actions, found.days[(NOW - late).date()].actions) == (2, 1 if late else 2)
