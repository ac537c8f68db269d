"""Width, deadlines, budget, and stopping early."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.judging.model.asking import ModelBackend, live_judge
from persona_pipeline.judging.money import Budget
from persona_pipeline.judging.open import OpenedJudge
from persona_pipeline.judging.providers.base import ModelOptions
from persona_pipeline.judging.verdict import Unscored, Verdict
from tests.support.clock import LONG, Clock, ended_at, until
from tests.support.judging import request, requests, trajectory
from tests.support.messages_server import ANSWER, Hang, MessagesServer, message, status, verdicts

WHOLE_DAY = trajectory(length=110)


def test_no_more_calls_are_under_way_than_the_width(server: MessagesServer, options: ModelOptions) -> None:
    judge = live_judge(ModelBackend(replace(options, width=3)))
    # The first goes alone.
    server.answer_only(1)

    async def run() -> None:
        judging = asyncio.create_task(judge.judge(requests(12)))
        await until(lambda: server.busiest == 3)
        await asyncio.sleep(0.05)
        server.answer_only(None)
        await judging

    asyncio.run(run())
    assert server.busiest == 3


def test_a_server_that_takes_few_at_once_is_asked_slower_and_answers_all(
    server: MessagesServer, options: ModelOptions
) -> None:
    server.latency, server.throttle_above = 0.02, 3
    backend = ModelBackend(replace(options, width=6, max_retries=4, patience=LONG))
    told = asyncio.run(live_judge(backend).judge(requests(8, trajectory=trajectory("short"))))
    assert [verdict.unscored for verdict in told] == [None] * 8
    assert 0 < backend.pacer.refused == len(server.calls) - server.paid <= 3 * 6


def test_an_overloaded_server_is_left_alone_as_long_as_it_asks(
    server: MessagesServer, options: ModelOptions, clock: Clock
) -> None:
    server.script(status(529, "overloaded_error", retry_after=f"{LONG:.0f}"))
    backend = ModelBackend(replace(options, width=1, patience=2 * LONG))

    async def run() -> Sequence[Verdict]:
        judging = live_judge(backend).judge(requests(4, trajectory=trajectory("short")))
        return await ended_at(clock, LONG, judging, waiting=lambda: backend.pacer.refused == 1)

    told = asyncio.run(run())
    assert [verdict.unscored for verdict in told] == [Unscored.API_ERROR, None, None, None]
    assert len(server.calls) == 4


def test_a_call_ends_at_its_deadline_though_the_server_keeps_hanging(
    server: MessagesServer, options: ModelOptions, clock: Clock
) -> None:
    server.always(Hang())
    judge = live_judge(ModelBackend(replace(options, width=4, breaker_threshold=99)))

    async def run() -> Sequence[Verdict]:
        judging = judge.judge([request(trajectory=trajectory(f"short {n}")) for n in range(4)])
        return await ended_at(clock, options.deadline, judging, waiting=lambda: len(server.calls) == 4)

    told = asyncio.run(run())
    assert {verdict.unscored for verdict in told} == {Unscored.TIMEOUT}
    assert told[0].usage.usd is None


def test_the_run_ends_at_its_deadline(server: MessagesServer, options: ModelOptions, clock: Clock) -> None:
    judge = live_judge(ModelBackend(replace(options, run_deadline=LONG, deadline=2 * LONG, width=1)))
    server.answer_only(2)

    async def run() -> Sequence[Verdict]:
        return await ended_at(clock, LONG, judge.judge(requests(20)), waiting=lambda: len(server.calls) == 3)

    told = asyncio.run(run())
    assert [verdict.unscored for verdict in told] == [None] * 2 + [Unscored.TIMEOUT] * 18
    assert len(server.calls) == 3
    assert all(f"the run's deadline of {LONG:g} s has passed" in verdict.detail for verdict in told[3:])


def test_cancelling_the_run_stops_it(server: MessagesServer, judge: OpenedJudge) -> None:
    server.always(Hang())

    async def run() -> None:
        async with asyncio.timeout(0.2):
            await judge.judge(requests(3))

    with pytest.raises(TimeoutError):
        asyncio.run(run())


@pytest.mark.parametrize(
    ("code", "kind", "more", "calls", "said"),
    [
        (401, "authentication_error", {}, 3, "HTTP 401 authentication_error"),
        (402, "billing_error", {}, 3, "HTTP 402 billing_error"),
        (403, "permission_error", {}, 3, "HTTP 403 permission_error"),
        (404, "not_found_error", {}, 3, "HTTP 404 not_found_error"),
        (429, "rate_limit_error", {"error_code": "enforced_spend_limit_reached"}, 3, "enforced_spend_limit_reached"),
        (500, "api_error", {}, 5, "identical failures in a row: HTTP 500"),
    ],
)
def test_errors_that_no_call_survives_or_that_repeat_stop_the_run(
    code: int, kind: str, more: dict, calls: int, said: str, server: MessagesServer, options: ModelOptions
) -> None:
    server.always(status(code, kind, **more))
    judge = live_judge(ModelBackend(replace(options, width=2, breaker_threshold=4)))
    told = asyncio.run(judge.judge(requests(30)))
    assert len(server.calls) <= calls
    assert {verdict.unscored for verdict in told} == {Unscored.API_ERROR}
    assert said in told[-1].detail


def test_failures_that_alternate_with_answers_stop_nothing(server: MessagesServer, options: ModelOptions) -> None:
    server.handler = lambda call: status(500) if call.index % 2 else ANSWER
    judge = live_judge(ModelBackend(replace(options, width=1, breaker_threshold=2)))
    asyncio.run(judge.judge(requests(20)))
    assert len(server.calls) == 20


def test_a_budget_stops_calls_before_they_are_sent(server: MessagesServer, options: ModelOptions) -> None:
    budget = Budget(0.003)
    judge = live_judge(ModelBackend(options, budget=budget))
    told = asyncio.run(judge.judge(requests(60, trajectory=WHOLE_DAY)))
    stopped = [verdict for verdict in told if verdict.unscored is Unscored.BUDGET]
    assert 0 < len(stopped) < 60
    assert server.paid == 60 - len(stopped)
    assert budget.stopped == len(stopped)
    assert budget.spent == pytest.approx(judge.backend.spent.usd)
    assert budget.spent <= 0.003
    assert "limit of 0.003 dollars" in stopped[0].detail


@pytest.mark.parametrize(("length", "marked"), [(110, True), (60, False)])
def test_a_mark_is_placed_generously(length: int, marked: bool, server: MessagesServer, options: ModelOptions) -> None:
    """The guess of the first prefix is a little below what the model caches, and that of the second far below."""
    backend = ModelBackend(replace(options, model="claude-haiku-4-5"))
    asyncio.run(live_judge(backend).judge(requests(2, trajectory=trajectory(length=length))))
    assert ["cache_control" in call.raw.decode() for call in server.calls] == [marked] * 2


def test_calls_that_fit_the_budget_one_after_another_wait_for_one_another(
    server: MessagesServer, options: ModelOptions
) -> None:
    server.latency = 0.01
    judge = live_judge(ModelBackend(options, budget=Budget(0.004)))
    told = asyncio.run(judge.judge(requests(8)))
    assert [verdict.unscored for verdict in told] == [None] * 8
    assert server.busiest < 8


def test_a_budget_needs_a_model_with_a_price(options: ModelOptions) -> None:
    with pytest.raises(ConfigError, match="no price is known for judge model 'home-grown'"):
        ModelBackend(replace(options, model="home-grown"), budget=Budget(1.0))


def test_an_answer_of_unknown_price_uses_up_all_that_was_reserved(
    server: MessagesServer, options: ModelOptions
) -> None:
    server.handler = lambda call: message(json.dumps(verdicts(call.body)), usage=None)
    budget = Budget(1.0)
    asyncio.run(live_judge(ModelBackend(options, budget=budget)).judge([request()]))
    assert budget.spent > 0.001
