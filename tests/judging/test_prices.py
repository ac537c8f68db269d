"""Prices against figures worked out by hand, and the budget that is kept with them."""

import asyncio

import genai_prices
import pytest
from genai_prices.data import providers
from hypothesis import given
from hypothesis import strategies as st

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.settings import get_settings
from persona_pipeline.judging import money
from persona_pipeline.judging.model.messages import read_usage, traits_of
from persona_pipeline.judging.money import Budget, estimated_tokens, model_name, price
from persona_pipeline.judging.verdict import Usage

HAIKU = "claude-haiku-5-5"


@pytest.mark.parametrize(
    ("usage", "model", "arguments", "usd"),
    [
        (Usage(50_000, 100), HAIKU, {}, 0.00505),
        (Usage(10_000, 100, 0, 40_000), HAIKU, {}, 0.00145),
        (Usage(0, 0, 40_000, 0), HAIKU, {}, 0.005),
        (Usage(0, 0, 40_000, 0), HAIKU, {"hour_cache_tokens": 40_000}, 0.008),
        (Usage(0, 0, 40_000, 0), HAIKU, {"hour_cache_tokens": 10_000}, 0.00575),
        (Usage(110_000, 100), HAIKU, {}, 0.05525),
        (Usage(10_000, 100, 0, 100_000), HAIKU, {}, 0.01025),
        (Usage(50_000, 100), HAIKU, {"batch": True}, 0.002525),
        (Usage(1_000, 60), "claude-haiku-4-5-20251001", {}, 0.0013),
        (Usage(1_000, 60), "unheard-of", {"requested_model": HAIKU}, 0.00013),
    ],
    ids=[
        "plain",
        "read from the cache",
        "written to the cache",
        "written for an hour",
        "partly for an hour",
        "beyond 100,000 tokens",
        "beyond 100,000 tokens with cached ones",
        "in a batch",
        "a dated model",
        "a model only known as it was asked for",
    ],
)
def test_prices(usage: Usage, model: str, arguments: dict, usd: float) -> None:
    assert price(usage, model, **arguments) == pytest.approx(usd)


@given(
    usage=st.builds(Usage, *[st.integers(0, 20_000)] * 4),
    model=st.sampled_from([HAIKU, "claude-haiku-4-5", "gpt-5-mini", "gemini-2.5-pro", "gemini-2.5-flash"]),
)
def test_a_short_prompt_has_the_price_of_the_public_table(usage: Usage, model: str) -> None:
    vendor = next(vendor for vendor, names in money._VENDORS.items() if names.match(model))
    writes = {"cache_write_tokens": usage.cache_creation_tokens} if usage.cache_creation_tokens else {}
    priced = genai_prices.Usage(
        input_tokens=usage.input_tokens + usage.cache_creation_tokens + usage.cache_read_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        output_tokens=usage.output_tokens,
        **writes,
    )
    listed = genai_prices.calc_price(priced, model, provider_id=vendor)
    assert price(usage, model) == pytest.approx(float(listed.total_price))


def test_no_tier_of_the_public_table_begins_with_a_shorter_prompt() -> None:
    models = [model for vendor in providers for model in vendor.models]
    listed = [
        prices for model in models for prices in (model.prices if isinstance(model.prices, list) else [model.prices])
    ]
    found = [value for prices in listed for value in vars(getattr(prices, "prices", prices)).values()]
    starts = [tier.start for value in found for tier in getattr(value, "tiers", ())]
    assert starts and min(starts) >= money._SMALLEST_TIER


def test_a_model_without_a_price_has_an_unknown_one() -> None:
    assert price(Usage(1_000, 60), "gemma3") is None
    # Weights that anybody may serve cost what it costs to serve them.
    assert price(Usage(1_000, 60), "openai/gpt-oss-20b") is None


@pytest.mark.parametrize(
    ("spelled", "name", "factor"),
    [
        ("anthropic/claude-haiku-5-5", HAIKU, 1.0),
        ("openrouter/anthropic/claude-haiku-5.5:beta", HAIKU, 1.0),
        ("bedrock/us.anthropic.claude-haiku-5-5-20260101-v1:0", HAIKU, 1.1),
        ("us.anthropic.claude-haiku-5-5-20260101-v1:0", HAIKU, 1.1),
        ("anthropic.claude-haiku-5-5-v1", HAIKU, 1.1),
        ("global.anthropic.claude-haiku-5-5-20260101-v1:0", HAIKU, 1.0),
        ("arn:aws:bedrock:eu-west-1:1:inference-profile/eu.anthropic.claude-haiku-5-5-20260101-v1:0", HAIKU, 1.1),
        ("claude-haiku-5-5@20260101", HAIKU, 1.0),
        ("vertex_ai/claude-haiku-5-5@default", HAIKU, 1.0),
        ("publishers/anthropic/models/claude-haiku-5-5", HAIKU, 1.0),
        ("openai/gpt-5-mini", "gpt-5-mini", 1.0),
        ("Azure/GPT-5-mini", "gpt-5-mini", 1.0),
    ],
)
def test_a_model_is_known_however_it_is_spelled(spelled: str, name: str, factor: float) -> None:
    usage = Usage(50_000, 100)
    assert model_name(spelled) == name
    assert traits_of(spelled) is traits_of(name)
    assert price(usage, spelled) == pytest.approx(factor * (price(usage, name) or 0))
    # The answer names the model without its region.
    assert price(usage, name, spelled) == price(usage, spelled)


@pytest.mark.parametrize(
    ("spelled", "name"),
    [("ollama/gemma3:4b", "gemma3:4b"), ("claude-haiku-5-55", "claude-haiku-5-55"), ("gpt-4o-2024-05-13",) * 2],
)
def test_what_tells_models_apart_stays(spelled: str, name: str) -> None:
    assert model_name(spelled) == name


def test_a_price_that_is_set_counts_before_the_public_one() -> None:
    own = "home/Gemma3:4b = 0.1/0.4, claude-haiku-5-5=1/2/3/4,"
    usage = Usage(1_000_000, 100_000, 10_000, 1_000)
    assert price(usage, "gemma3:4b", prices=own) == pytest.approx(0.1 + 0.04 + 0.001 + 0.0001)
    assert price(usage, "us.anthropic.claude-haiku-5-5-20260101-v1:0", prices=own) == pytest.approx(
        1 + 0.2 + 0.03 + 0.004
    )
    assert price(usage, "served-under-another-name", "gemma3:4b", prices=own, batch=True) == pytest.approx(0.1411 / 2)
    assert Budget(1.0).worst_price("word", 10, "gemma3:4b", own) > 0
    assert read_usage({"input_tokens": 10, "output_tokens": 0}, "gemma3:4b", prices=own).usd == pytest.approx(1e-6)
    assert price(usage, "gemma3:27b", prices=own) is None


@pytest.mark.parametrize(
    "written",
    ["gemma3", "gemma3=1", "gemma3=1/2/3", "=1/2", "g=-1/2", "g=nan/2", "g=inf/1", "g=1/2/3/4/5", "g=1/2,g=1/2"],
)
def test_a_price_that_cannot_be_read_is_an_error(written: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERSONA_JUDGE_PRICES", written)
    get_settings.cache_clear()
    with pytest.raises(ConfigError, match=r"PERSONA_JUDGE_PRICES .*(is no price|has two prices)"):
        get_settings()


@pytest.mark.parametrize(
    "reported",
    [
        None,
        {},
        {"input_tokens": 5},
        {"output_tokens": 5},
        {"input_tokens": -1, "output_tokens": 5},
        "5",
        {"input_tokens": "5", "output_tokens": 5},
    ],
)
def test_usage_that_is_missing_or_odd_has_an_unknown_price(reported: object) -> None:
    usage = read_usage(reported, HAIKU)
    assert (usage.calls, usage.usd) == (1, None)
    assert (Usage(calls=1, usd=1.0) + usage).usd is None


def test_cache_writes_for_an_hour_are_priced_as_such() -> None:
    reported = {
        "input_tokens": 0,
        "output_tokens": 0,
        "cache_creation_input_tokens": 40_000,
        "cache_read_input_tokens": None,
        "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 40_000},
        "service_tier": "batch",
    }
    assert read_usage(reported, HAIKU).usd == pytest.approx(0.004)


def test_estimates_count_bytes_so_that_other_scripts_count_more() -> None:
    assert estimated_tokens("a" * 31) == 11
    assert estimated_tokens("東" * 31) > estimated_tokens("a" * 31)
    assert estimated_tokens("a" * 31, upper_bound=True) == 16


@pytest.mark.parametrize("limit", [0, -1, float("nan"), float("inf")])
def test_a_limit_is_a_positive_finite_number(limit: float) -> None:
    with pytest.raises(ConfigError, match="give a positive number"):
        Budget(limit)


@given(
    limit=st.floats(0.01, 10),
    calls=st.lists(st.tuples(st.floats(0.001, 3), st.floats(0, 1)), max_size=30),
)
def test_what_is_spent_never_exceeds_the_limit(limit: float, calls: list[tuple[float, float]]) -> None:
    budget = Budget(limit)

    async def call(worst: float, share: float) -> None:
        reservation = await budget.reserve(worst)
        if reservation:
            await asyncio.sleep(0)
            reservation.settle(worst * share)

    async def run() -> None:
        await asyncio.gather(*(call(worst, share) for worst, share in calls))

    asyncio.run(run())
    assert budget.spent <= limit + 1e-9
    assert budget.remaining == pytest.approx(limit - budget.spent)


def test_what_is_left_of_sums_of_fractions_is_no_call_under_way() -> None:
    async def run() -> None:
        budget = Budget(0.31)
        under_way = [await budget.reserve(0.1), await budget.reserve(0.2)]
        for reservation in under_way:
            assert reservation
            reservation.settle(0.0)
        assert budget.remaining == 0.31
        # It waited for ever, for a call that had come back.
        last = asyncio.create_task(budget.reserve(0.31))
        await asyncio.sleep(0)
        assert last.done()

    asyncio.run(run())


def test_a_call_waits_for_what_others_give_back_and_is_refused_when_nobody_can() -> None:
    async def run() -> tuple[bool, bool]:
        budget = Budget(1.0)
        first = await budget.reserve(0.9)
        assert first
        waiting = asyncio.create_task(budget.reserve(0.8))
        await asyncio.sleep(0)
        assert not waiting.done()
        first.settle(0.1)
        second = await waiting
        assert second
        second.settle(None)
        return second is not None, await budget.reserve(0.2) is None

    assert asyncio.run(run()) == (True, True)


def test_a_reservation_counts_once() -> None:
    budget = Budget(1.0)
    reservation = asyncio.run(budget.reserve(0.5))
    assert reservation
    reservation.settle(0.2)
    reservation.settle(0.2)
    assert budget.spent == 0.2


def test_the_worst_price_is_more_than_any_call_costs() -> None:
    assert Budget(1.0).worst_price("word " * 2_000, 500, HAIKU) > (price(Usage(2_000, 500), HAIKU) or 0)
