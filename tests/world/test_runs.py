"""Runs as rows: which of an agent's is the newest, and how far back a history is read."""

import operator
import random
import threading
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from persona_pipeline.base.database import tables
from persona_pipeline.base.database.engine import Store, open_store
from persona_pipeline.world.runs import (
    MOST_WINDOWS,
    UNFINISHED,
    RunRows,
    newest_ids,
    newest_run_row,
    summary_rows,
    write_runs,
)

START = datetime(2026, 1, 4, tzinfo=UTC)
AGENTS = [{"id": name, "display_name": name, "persona": "Dry."} for name in ("ann", "bob")]


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    opened = open_store(database_url)
    with opened.begin() as connection:
        connection.execute(sa.insert(tables.agents), AGENTS)
    yield opened
    opened.close()


def _run(agent_id: str, window: int, at: int = 0, **said: Any) -> RunRows:
    end, status = START + timedelta(weeks=window), said.pop("status", "completed")
    done = end + timedelta(hours=at) if status != "running" else None
    row = {"id": uuid.uuid4(), "agent_id": agent_id, "status": status, "dimensions": [], "window_end": end}
    return RunRows({**row, "sample_size": 1, "whole": True, "synthetic": False, "completed_at": done, **said})


def _newest(store: Store) -> set[uuid.UUID]:
    with store.connect() as connection:
        return set(connection.execute(newest_ids()).scalars())


RUNS = st.builds(
    _run,
    agent_id=st.sampled_from(["ann", "bob"]),
    window=st.integers(0, 3),
    at=st.integers(0, 9),
    status=st.sampled_from(["completed", "completed", "failed", "running"]),
    whole=st.booleans(),
    synthetic=st.booleans(),
)


@pytest.fixture(scope="module")
def emptied() -> Iterator[Store]:
    opened = open_store("sqlite://")
    yield opened
    opened.close()


@settings(max_examples=25)
@given(saves=st.lists(st.lists(RUNS, min_size=1, max_size=4), max_size=5))
def test_the_newest_run_is_the_last_whole_one_of_the_newest_window(saves: list[list[RunRows]], emptied: Store) -> None:
    store = emptied
    with store.begin() as connection:
        connection.execute(sa.delete(tables.agents))
        connection.execute(sa.insert(tables.agents), AGENTS)
    said: dict[Any, Any] = {}
    for runs in saves:
        with store.begin() as connection:
            write_runs(connection, runs)
        said |= {item.run["id"]: item.run for item in runs}
        rows = [newest_run_row(store, name) for name in ("ann", "bob")]
        assert _newest(store) == {row.id for row in rows if row is not None}
        # A run counts whatever became of it, and of two on one window the finished one.
        real = [row for row in said.values() if not row["synthetic"]]
        expected = {}
        order = operator.itemgetter("window_end", "whole", "finished", "completed_at", "hex")
        known = [{**row, "finished": row["status"] not in UNFINISHED, "hex": row["id"].hex} for row in real]
        for row in sorted(known, key=order):
            expected[row["agent_id"]] = row["id"]
        assert _newest(store) == set(expected.values())


def test_a_run_that_failed_is_still_the_newest(store: Store) -> None:
    first, second = _run("ann", 1), _run("ann", 2)
    failed = RunRows({**second.run, "status": "failed"})
    made_up = RunRows({**second.run, "synthetic": True})
    for saved, newest in ((first, first), (second, second), (failed, second), (made_up, first)):
        with store.begin() as connection:
            write_runs(connection, [saved])
        assert _newest(store) == {newest.run["id"]}


def test_who_saves_at_the_same_time_agrees_which_is_the_newest(store: Store) -> None:
    runs = [_run(name, window) for window in range(20) for name in ("ann", "bob")]
    random.Random(3).shuffle(runs)
    barrier = threading.Barrier(4)

    def save(own: list[RunRows]) -> None:
        barrier.wait()
        for start in range(0, len(own), 2):
            with store.begin() as connection:
                write_runs(connection, own[start : start + 2])

    threads = [threading.Thread(target=save, args=[runs[part::4]]) for part in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    newest = [newest_run_row(store, name) for name in ("ann", "bob")]
    assert [row.window_end for row in newest if row] == [START + timedelta(weeks=19)] * 2
    assert _newest(store) == {row.id for row in newest if row}


def test_a_history_goes_back_so_many_windows_of_each_agent_and_no_further(store: Store) -> None:
    ann = [_run("ann", window, at, summary={"overall": window}) for window in range(MOST_WINDOWS + 30) for at in (1, 2)]
    bob = [_run("bob", window, summary={"overall": window}) for window in range(5)]
    with store.begin() as connection:
        write_runs(connection, ann)
    assert len(summary_rows(store, ["ann"])) == 2 * MOST_WINDOWS
    early = START + timedelta(weeks=20)
    assert [row.summary["overall"] for row in summary_rows(store, ["ann"], until=early)][::2] == list(range(21))
    with store.begin() as connection:
        write_runs(connection, bob)
    rows = summary_rows(store, ["ann", "bob"])
    assert sum(row.agent_id == "bob" for row in rows) == 5
    assert len({row.window_end for row in rows if row.agent_id == "ann"}) >= MOST_WINDOWS
    assert summary_rows(store, ["nobody"]) == []
