"""Keeping to a server's limits a minute."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from persona_pipeline.base.settings import Settings
from persona_pipeline.judging.model.asking import ModelBackend, live_judge
from persona_pipeline.judging.money import Budget
from persona_pipeline.judging.pace import Admission, Limit, Pacer
from persona_pipeline.judging.providers.base import ModelOptions
from persona_pipeline.judging.verdict import Unscored, Verdict
from tests.support.clock import LONG, Clock, until
from tests.support.judging import requests
from tests.support.messages_server import ANSWER, MessagesServer, status
from tests.support.rate_limits import RateLimits

ONE = {Limit.REQUESTS: 1.0}


class Moment:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def told(limit: int, remaining: int, kind: str = "requests", **more: str) -> Mapping[str, str]:
    said = {f"anthropic-ratelimit-{kind}-limit": str(limit), f"anthropic-ratelimit-{kind}-remaining": str(remaining)}
    return said | {name.replace("_", "-"): value for name, value in more.items()}


def openai(limit: int, remaining: int, reset: str = "", kind: str = "requests") -> Mapping[str, str]:
    said = {"limit": str(limit), "remaining": str(remaining), "reset": reset}
    return {f"x-ratelimit-{name}-{kind}": value for name, value in said.items() if value}


def pacer_that_heard(*heard: tuple[float, int, Mapping[str, str]], **known: float) -> tuple[Pacer, Moment]:
    """Return a pacer that sent a request at each moment and heard its answer at once."""
    clock = Moment()
    pacer = Pacer({Limit(kind.replace("_", "-")): value for kind, value in known.items()}, clock=clock)
    for moment, code, headers in heard:
        clock.now = moment
        pacer.heard(taken(pacer), code, headers)
    return pacer, clock


def taken(pacer: Pacer) -> Admission:
    return asyncio.run(pacer.turn(ONE))


@pytest.mark.parametrize(
    ("heard", "known", "cost", "seconds"),
    [
        ([], {}, ONE, 0.0),
        ([(0.0, 200, {})], {}, ONE, 0.0),
        ([(0.0, 200, told(60, 0))], {}, ONE, 1.0),
        ([(0.0, 200, told(60, 5))], {}, ONE, 0.0),
        ([(0.0, 200, told(600, 100, "input-tokens"))], {}, {Limit.INPUT_TOKENS: 300.0}, 20.0),
        # More than ever fits takes all there is.
        ([(0.0, 200, told(600, 600, "input-tokens"))], {}, {Limit.INPUT_TOKENS: 9000.0}, 0.0),
        ([(0.0, 429, {"retry-after": "7"})], {}, ONE, 7.0),
        ([(0.0, 429, {"retry-after-ms": "250"})], {}, ONE, 0.25),
        # An overloaded server: the same pauses; it is chance, and no reason to go slower, until it is refused again.
        ([(0.0, 529, {"retry-after": "7"})], {}, ONE, 7.0),
        ([(0.0, 529, {})], {}, ONE, 1.0),
        ([(0.0, 529, {}), (10.0, 529, {}), (20.0, 529, {})], {}, ONE, 4.0),
        ([(2.0 * n, 200, {}) for n in range(11)] + [(20.0, 529, {"retry-after": "0"})], {}, ONE, 0.0),
        (
            [(2.0 * n, 200, {}) for n in range(11)] + [(20.0, 529, {"retry-after": "0"})] * 2,
            {},
            ONE,
            1 / (0.7 * 11 / 20),
        ),
        # It is slower than the limits it names.
        (
            [(2.0 * n, 200, told(600, 600)) for n in range(11)] + [(20.0, 529, {"retry-after": "0"})] * 2,
            {},
            ONE,
            1 / (0.7 * 11 / 20),
        ),
        # No word how long: twice as long each time.
        ([(0.0, 429, {})], {}, ONE, 1.0),
        ([(0.0, 429, {}), (10.0, 429, {}), (20.0, 429, {})], {}, ONE, 4.0),
        # Half a request a second was borne, seven tenths of that are tried.
        ([(2.0 * n, 200, {}) for n in range(11)] + [(20.0, 429, {"retry-after": "0"})], {}, ONE, 1 / (0.7 * 11 / 20)),
        # The lower of what is set and what is said.
        ([(0.0, 200, told(600, 600))], {"requests": 60.0}, ONE, 0.0),
        ([(0.0, 200, told(600, 0))], {"requests": 60.0}, ONE, 1.0),
        ([(0.0, 200, told(60, 0)), (30.0, 500, {})], {}, ONE, 0.0),
        ([(0.0, 200, {"anthropic-ratelimit-requests-limit": "many"})], {}, ONE, 0.0),
        # Other names: input and output together, and how long until all is there again.
        ([(0.0, 200, openai(60, 0))], {}, ONE, 1.0),
        ([(0.0, 200, openai(600, 100, kind="tokens"))], {}, {Limit.TOKENS: 300.0}, 20.0),
        ([(0.0, 200, openai(5000, 4999, "12ms"))], {}, ONE, 0.0),
        ([(0.0, 200, openai(60, 0, "soon"))], {}, ONE, 1.0),
        # A limit of a day: two hundred in 24 hours, none left.
        ([(0.0, 200, openai(200, 0, "24h0m0s"))], {}, ONE, 432.0),
        ([(0.0, 200, openai(200, 190, "1h12m0s"))], {}, ONE, 0.0),
        ([(0.0, 200, openai(10000, 0, "1d"))], {}, ONE, 8.64),
        ([(0.0, 200, openai(100, 0, "360"))], {}, ONE, 3.6),
        ([(0.0, 200, openai(200, 0, "24h0m0s"))], {"requests": 0.05}, {Limit.REQUESTS: 0.05}, 60.0),
    ],
)
def test_how_long_a_request_waits(
    heard: list[tuple[float, int, Mapping[str, str]]],
    known: Mapping[str, float],
    cost: Mapping[Limit, float],
    seconds: float,
) -> None:
    pacer, _ = pacer_that_heard(*heard, **known)
    assert pacer.wait(cost) == pytest.approx(seconds)


def test_what_was_sent_since_is_taken_off_what_an_answer_says_remains() -> None:
    pacer, clock = pacer_that_heard((0.0, 200, told(60, 50)))
    first = taken(pacer)
    for _ in range(9):
        taken(pacer)
    clock.now = 3.25
    # When the first came in there were 49; nine more are on their way, and three came back in three seconds.
    pacer.heard(first, 200, told(60, 49))
    for _ in range(43):
        assert pacer.wait(ONE) == 0.0
        taken(pacer)
    assert pacer.wait(ONE) == pytest.approx(1.0)


def test_a_guess_is_widened_while_nothing_is_refused() -> None:
    pacer, clock = pacer_that_heard(*((float(n), 200, {}) for n in range(10)), (10.0, 429, {"retry-after": "0"}))
    first = pacer.wait(ONE)
    clock.now = 70.0
    assert pacer.wait(ONE) == 0.0
    for _ in range(84):
        taken(pacer)
    assert pacer.wait(ONE) < first


def test_requests_that_were_under_way_together_are_refused_once() -> None:
    clock = Moment()
    pacer = Pacer(clock=clock)
    together = [taken(pacer) for _ in range(20)]
    for turn in together:
        clock.now += 0.001
        pacer.heard(turn, 529, {})
    assert pacer.wait(ONE) == pytest.approx(1.0)
    assert pacer.refused == 20


def test_a_guess_of_long_ago_is_no_limit() -> None:
    pacer, clock = pacer_that_heard(*((float(n), 200, {}) for n in range(10)), (10.0, 429, {"retry-after": "0"}))
    for weeks in (1, 2, 2):
        clock.now = weeks * 604_800.0
        assert pacer.wait(ONE) == 0.0


def test_a_server_with_limits_refuses_nothing(server: MessagesServer, options: ModelOptions) -> None:
    server.limits = RateLimits({"requests": 1200}, left={"requests": 10})
    backend = ModelBackend(replace(options, width=5, patience=LONG))
    answers = asyncio.run(live_judge(backend).judge(requests(30)))
    assert all(verdict.score is not None for verdict in answers)
    # On a machine that is busy a request may come in late enough to find another one before it.
    assert server.limits.refused <= 5
    assert len(server.calls) == 30 + server.limits.refused


def test_waiting_for_leave_takes_nothing_off_a_calls_deadline(
    server: MessagesServer, options: ModelOptions, clock: Clock
) -> None:
    per_minute = {Limit.REQUESTS: 60 / (3 * options.deadline)}
    backend = ModelBackend(replace(options, width=1, per_minute=per_minute, patience=9 * options.deadline))

    async def run() -> Sequence[Verdict]:
        judging = asyncio.create_task(live_judge(backend).judge(requests(3)))
        for answered in (1, 2):
            await until(lambda answered=answered: backend.spent.calls == answered)
            await asyncio.sleep(0.02)
            assert len(server.calls) == answered
            clock.forward(3 * options.deadline)
        return await judging

    assert [verdict.unscored for verdict in asyncio.run(run())] == [None] * 3


@pytest.mark.parametrize("limit", ["requests", "input-tokens"])
def test_what_was_refused_is_asked_again_and_no_call_fails(
    limit: str, server: MessagesServer, options: ModelOptions
) -> None:
    per_minute = {"requests": 1200.0, "input-tokens": 600_000.0}[limit]
    server.limits = RateLimits({limit: per_minute}, told=False, left={limit: per_minute / 120}, still=True)
    backend = ModelBackend(replace(options, width=10, max_retries=3, patience=LONG))
    answers = asyncio.run(live_judge(backend).judge(requests(16)))
    assert all(verdict.score is not None for verdict in answers)
    assert server.limits.refused == backend.pacer.refused > 0
    assert backend.spent.usd == pytest.approx(sum(v.usage.usd or 0 for v in answers))


def test_a_setting_holds_without_a_word_of_the_server(server: MessagesServer, options: ModelOptions) -> None:
    per_minute = ModelOptions.from_settings(Settings(judge_requests_per_minute=5.0)).per_minute
    backend = ModelBackend(replace(options, per_minute=per_minute, run_deadline=11.0))
    answers = asyncio.run(live_judge(backend).judge(requests(8)))
    assert [verdict.unscored for verdict in answers] == [None] * 5 + [Unscored.TIMEOUT] * 3
    assert "the server's limits leave no room before the run's deadline of 11 s" in answers[-1].detail
    assert len(server.calls) == 5


def test_a_refusal_costs_and_reserves_nothing(server: MessagesServer, options: ModelOptions, clock: Clock) -> None:
    backend = ModelBackend(replace(options, width=1, patience=2 * LONG), budget=Budget(1.0))
    assert backend.budget is not None
    free: list[float] = []

    def refused_first(call: object) -> object:
        if len(server.calls) == 1:
            return status(429, "rate_limit_error", retry_after=f"{LONG:.0f}")
        return ANSWER

    server.handler = refused_first  # pyright: ignore[reportAttributeAccessIssue]

    async def run() -> None:
        async with asyncio.TaskGroup() as tasks:
            judging = tasks.create_task(live_judge(backend).judge(requests(1)))
            await until(lambda: backend.pacer.refused)
            await asyncio.sleep(0.05)
            assert backend.budget is not None
            free.append(backend.budget.remaining)
            clock.forward(LONG)
            answers.extend(await judging)

    answers: list[object] = []
    asyncio.run(run())
    assert free == [1.0]
    assert backend.budget.spent == pytest.approx(backend.spent.usd)


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({"retry_after": "30"}, "the server asks to wait for 30 s"),
        ({"retry_after_ms": "20"}, "HTTP 429 rate_limit_error"),
    ],
)
def test_a_server_that_only_refuses_is_given_up(
    headers: dict[str, str], said: str, server: MessagesServer, options: ModelOptions
) -> None:
    server.always(status(429, "rate_limit_error", **headers))
    answers = asyncio.run(live_judge(ModelBackend(replace(options, patience=0.2))).judge(requests(12)))
    assert {verdict.unscored for verdict in answers} == {Unscored.API_ERROR}
    assert "HTTP 429" in answers[0].detail
    assert said in answers[-1].detail
    assert sum(verdict.usage.usd or 0 for verdict in answers) == 0
