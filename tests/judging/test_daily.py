"""Dollars a day, over all who share a store."""

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from persona_pipeline.base.database import tables
from persona_pipeline.base.database.engine import Store, open_store
from persona_pipeline.base.settings import Settings
from persona_pipeline.judging.model.asking import ModelBackend, live_judge
from persona_pipeline.judging.money import Budget, DailyLimit
from persona_pipeline.judging.open import JudgeOptions, open_judge
from persona_pipeline.judging.providers.base import ModelOptions
from persona_pipeline.judging.verdict import Unscored
from persona_pipeline.world import World
from tests.support.judging import requests, trajectory
from tests.support.messages_server import MessagesServer


def test_hosts_that_take_at_once_never_take_more_than_there_is(database_url: str) -> None:
    open_store(database_url).close()
    taken: list[float] = []
    failed: list[BaseException] = []
    start = threading.Barrier(4)

    def work() -> None:
        # A pool of its own is what another host has.
        store = open_store(database_url)
        limit = DailyLimit(store, 1.0)
        try:
            start.wait()
            for _ in range(20):
                day = limit.take(0.03)
                if day:
                    taken.append(0.03)
                    limit.settle(day, 0.03, 0.03)
        except BaseException as error:
            failed.append(error)
        finally:
            store.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert sum(taken) == pytest.approx(0.99)
    store = open_store(database_url)
    assert DailyLimit(store, 1.0).remaining == pytest.approx(0.01)
    store.close()


def test_a_day_is_spent_in_calls_of_several_judges_and_the_next_one_is_new(
    server: MessagesServer, options: ModelOptions, store: Store
) -> None:
    limit = DailyLimit(store, 0.004)
    spent = 0.0
    stopped = []
    for number in range(2):
        judge = live_judge(ModelBackend(options, budget=Budget(None, limit)))
        told = asyncio.run(judge.judge(requests(60, trajectory=trajectory(f"talk {number}", length=40))))
        stopped += [verdict for verdict in told if verdict.unscored is Unscored.BUDGET]
        spent += judge.backend.spent.usd or 0.0
    assert 0 < len(stopped) < 120
    assert server.paid == 120 - len(stopped)
    assert spent == pytest.approx(0.004 - limit.remaining)
    assert spent <= 0.004
    assert "limit of 0.004 dollars a day (PERSONA_DAILY_USD)" in stopped[0].detail
    with store.begin() as connection:
        yesterday = datetime.now(UTC).date() - timedelta(days=1)
        connection.execute(sa.update(tables.spending_days).values(day=yesterday))
    assert limit.remaining == 0.004


def test_what_was_set_aside_by_who_was_killed_counts_as_spent(store: Store) -> None:
    assert DailyLimit(store, 1.0).take(0.8)
    again = DailyLimit(store, 1.0)
    assert again.take(0.3) is None
    assert again.take(0.2)
    assert again.take(0.001) is None


def test_the_limit_of_the_settings_holds_for_every_live_judge(
    server: MessagesServer, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
    world, settings = World(tmp_path, store), Settings.model_validate({"daily_usd": 0.5})
    for max_usd in (None, 0.2):
        budget = open_judge("anthropic", world, JudgeOptions(max_usd), settings=settings).budget
        assert budget is not None
        assert budget.remaining == pytest.approx(max_usd or 0.5)
    assert open_judge("anthropic", world, settings=Settings.model_validate({"daily_usd": ""})).budget is None
