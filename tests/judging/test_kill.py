"""Killed at any moment, a run goes on where it was: what was answered is never paid for again."""

import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from persona_pipeline.base.database.engine import Store
from persona_pipeline.base.database.tables import judgments
from tests.support.clock import LONG
from tests.support.forking import forked_python
from tests.support.messages_server import MessagesServer
from tests.support.waiting import wait_until

NEEDED, WIDTH, KILLS = 60, 5, 10


class Runs:
    """Runs of the same requests against one server and store, each in a process of its own."""

    def __init__(self, server: MessagesServer, store_path: Path) -> None:
        self.process = subprocess.Popen(
            [
                forked_python(),
                "-m",
                "tests.support.judging_process",
                server.url,
                f"sqlite:///{store_path}",
                str(NEEDED),
                str(WIDTH),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        self.line()

    def line(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def start(self) -> int:
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return int(self.line())

    def kill(self, child: int) -> bool:
        """Kill a run with SIGKILL; returns whether it was still running."""
        os.kill(child, signal.SIGKILL)
        return int(self.line()) == signal.SIGKILL

    def finish(self) -> int:
        self.start()
        return int(self.line())


@pytest.fixture
def runs(server: MessagesServer, store_path: Path) -> Iterator[Runs]:
    running = Runs(server, store_path)
    yield running
    assert running.process.stdin
    running.process.stdin.close()
    running.process.wait(LONG)


def committed(store: Store) -> int:
    with store.connect() as connection:
        return connection.execute(sa.select(sa.func.count()).select_from(judgments)).scalar_one()


def wait_for(count: int, store: Store, server: MessagesServer) -> None:
    wait_until(lambda: server.paid == count == committed(store), pause=0.005)


def test_killed_ten_times_with_calls_under_way_a_run_pays_exactly_what_it_needs(
    server: MessagesServer, store: Store, runs: Runs
) -> None:
    chance = random.Random(20260601)
    points = sorted(chance.sample(range(1, NEEDED), KILLS))
    for point in points:
        server.answer_only(point)
        child = runs.start()
        wait_for(point, store, server)
        # Further calls hang at the server now; killed, the run never hears of them.
        assert runs.kill(child)
        server.drop_unanswered()
    server.answer_only(None)
    assert runs.finish() == 0
    assert (server.paid, committed(store)) == (NEEDED, NEEDED)
    assert len(server.calls) > NEEDED


def test_killed_at_any_moment_a_run_loses_no_more_than_answers_it_was_just_reading(
    server: MessagesServer, store: Store, runs: Runs, capsys: pytest.CaptureFixture[str]
) -> None:
    chance = random.Random(20260602)
    server.latency = 0.02
    lost = kills = 0
    while kills < KILLS and committed(store) < NEEDED:
        before = server.paid - committed(store)
        child = runs.start()
        time.sleep(chance.uniform(0.02, 0.12))
        kills += runs.kill(child)
        server.drop_unanswered()
        lost += server.paid - committed(store) - before
    assert runs.finish() == 0
    with capsys.disabled():
        print(f"\n{kills} kills: {server.paid} calls paid, {NEEDED} needed, {lost} answered in the moment of the kill")
    assert committed(store) == NEEDED
    assert server.paid == NEEDED + lost
