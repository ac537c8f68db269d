from datetime import UTC, date, datetime, timedelta

import pytest
import sqlalchemy as sa

from persona_pipeline.base.database import tables
from persona_pipeline.base.database.engine import SCHEMA
from persona_pipeline.corrections import statistics
from persona_pipeline.corrections.statistics import CheckLatency, CorrectionStatistics, correction_statistics
from persona_pipeline.world import Window, World

MONDAY = datetime(2026, 6, 1, 12, tzinfo=UTC)


def record(world: World, agent: str, action: str, *checks: tuple[str, str | None], day: int = 0, **values) -> None:
    """Write the checks (decision, reason) of one action."""
    for number, (decision, reason) in enumerate(checks, start=1):
        row = {
            "agent_id": agent,
            "action_id": action,
            "attempt_number": number,
            "decision": decision,
            "reason": reason,
            "latency_ms": 100.0 * number,
            "usd": 0.0001,
            "token_usage": {"input_tokens": 10, "output_tokens": 2, "cache_read_tokens": 5},
            "created_at": MONDAY + timedelta(days=day, seconds=number),
        } | values
        with world.store.begin() as connection:
            connection.execute(sa.insert(tables.gate_checks), row)


def record_all(world: World) -> None:
    record(world, "ann", "a", ("commit", None))
    record(world, "ann", "b", ("retry", None), ("commit", None))
    record(world, "ann", "c", ("retry", None), ("retry", None), ("force", None), day=1)
    record(world, "ann", "d", ("commit", "timeout"), usd=None)
    record(world, "ann", "e", ("retry", None), ("commit", "api_error"))
    record(world, "ann", "f", ("retry", None), day=1)
    record(world, "bob", "a", ("commit", None))


@pytest.fixture
def counted(world: World) -> World:
    record_all(world)
    return world


def test_actions_are_counted_and_not_rows(counted: World) -> None:
    ann = correction_statistics(counted.store).agents["ann"]
    assert (ann.actions, ann.checks, ann.rejections) == (6, 10, 5)
    assert (ann.passed, ann.passed_after_retry, ann.forced, ann.fail_open, ann.abandoned) == (1, 1, 1, 2, 1)
    assert ann.corrected == 4
    assert ann.fail_open_by_reason == {"api_error": 1, "timeout": 1}
    assert ann.pass_rate == pytest.approx(2 / 3)
    assert ann.first_pass_rate == pytest.approx(1 / 3)


def test_every_action_ends_in_exactly_one_way(counted: World) -> None:
    for item in (found := correction_statistics(counted.store)).agents.values():
        endings = (item.passed, item.passed_after_retry, item.forced, item.fail_open, item.abandoned)
        assert sum(endings) == item.actions
    assert found.total.actions == sum(item.actions for item in found.agents.values()) == 7


def test_tokens_and_money(counted: World) -> None:
    total = correction_statistics(counted.store).total
    assert (total.input_tokens, total.output_tokens, total.cached_tokens) == (110, 22, 55)
    assert total.usd == pytest.approx(0.001)
    assert total.unpriced_checks == 1
    assert total.usd_per_check == pytest.approx(0.0001)


def test_the_window_and_the_agents_can_be_chosen(counted: World) -> None:
    first_day = Window(MONDAY + timedelta(hours=1), MONDAY - timedelta(hours=1))
    found = correction_statistics(counted.store, first_day, agent_ids=["ann"])
    assert list(found.agents) == ["ann"]
    assert found.total.actions == 4
    assert (found.window_start, found.window_end) == (first_day.start, first_day.end)


def test_an_action_counts_whole_in_the_window_it_began_in(world: World) -> None:
    record(world, "ann", "a", ("retry", None), ("retry", None), ("commit", None))
    for seconds in (1, 2):
        cut = MONDAY + timedelta(seconds=seconds)
        before = correction_statistics(world.store, Window(cut, MONDAY)).total
        after = correction_statistics(world.store, Window(cut + timedelta(hours=1), cut)).total
        assert (before.actions, before.passed_after_retry, before.checks, before.abandoned) == (1, 1, 3, 0)
        assert after.actions == after.checks == 0


def test_days(counted: World) -> None:
    days = correction_statistics(counted.store).days
    assert {day: item.actions for day, item in days.items()} == {date(2026, 6, 1): 5, date(2026, 6, 2): 2}


def test_latency_is_by_nearest_rank(world: World) -> None:
    for n in range(1, 101):
        record(world, "ann", f"a{n}", ("commit", None), latency_ms=float(n))
    assert correction_statistics(world.store).total.latency_ms == CheckLatency(p50=50, p95=95, p99=99, highest=100)


def test_nothing_checked_is_no_rate(world: World) -> None:
    found = correction_statistics(world.store)
    assert found == CorrectionStatistics()
    assert (found.total.pass_rate, found.total.latency_ms, found.total.usd_per_check) == (None, None, None)


def test_it_is_the_same_on_both_databases_and_survives_json(either_world: World) -> None:
    record_all(either_world)
    found = correction_statistics(either_world.store)
    assert (found.total.actions, list(found.days)) == (7, [date(2026, 6, 1), date(2026, 6, 2)])
    assert CorrectionStatistics.model_validate_json(found.model_dump_json()) == found


def test_the_first_check_of_an_action_is_found_by_an_index(counted: World) -> None:
    """Asked for the least time, SQLite read all checks of the agent for each later attempt."""
    query = statistics._sums(statistics._checks(counted.store, None, None))
    with counted.store.connect() as connection:
        said = str(query.compile(connection, compile_kwargs={"literal_binds": True}))
        plan = [row[-1] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {said.replace(f'{SCHEMA}.', '')}")]
    assert any("(agent_id=? AND action_id=?)" in line for line in plan), plan
