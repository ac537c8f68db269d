"""What a run would cost, before it is paid for."""

import asyncio
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace

import pytest
from pydantic import SecretStr

from persona_pipeline.base.database.engine import Store
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.base.settings import Settings
from persona_pipeline.evaluation.estimate import RunEstimate, estimate_run, missing_text
from persona_pipeline.judging.cache import JudgmentCache
from persona_pipeline.judging.estimate import Estimate, estimate
from persona_pipeline.judging.model.asking import ModelBackend, live_judge
from persona_pipeline.judging.open import JudgeOptions, OpenedJudge, open_judge
from persona_pipeline.judging.providers.base import ModelOptions, find_provider
from persona_pipeline.judging.synthetic import SAMPLE_PROMPTS
from persona_pipeline.judging.verdict import JudgeRequest, Unscored, Usage, Verdict
from persona_pipeline.world import World
from tests.support.evaluating import planned
from tests.support.judging import request, requests, trajectory
from tests.support.messages_server import MessagesServer

NO_KEY = ModelOptions()
LONG = trajectory(length=110)


def test_without_a_key_tokens_are_guessed_and_it_says_so() -> None:
    expected = estimate(requests(10, trajectory=LONG), options=NO_KEY)
    assert not expected.counted
    assert expected.usage.calls == 10
    assert expected.usage.cache_read_tokens == 9 * expected.usage.cache_creation_tokens > 0
    assert expected.usage.usd and expected.worst_usd and expected.usage.usd < expected.worst_usd
    assert "guessed from the length of the text" in str(expected)
    assert "10 calls to claude-haiku-5-5" in str(expected)


def test_a_count_that_fails_becomes_a_guess(options: ModelOptions, caplog: pytest.LogCaptureFixture) -> None:
    with MessagesServer() as gone:
        nowhere = replace(options, base_url=gone.url)
    assert not estimate(requests(2), options=nowhere).counted
    assert "they are guessed" in caplog.text


def test_with_a_server_tokens_are_counted_by_it_inside_an_event_loop_too(
    server: MessagesServer, options: ModelOptions
) -> None:
    async def run() -> Estimate:
        return estimate(requests(10, trajectory=LONG), options=options)

    expected = asyncio.run(run())
    assert expected.counted and "counted by the API" in str(expected)
    assert server.requests == [("POST", "/v1/messages/count_tokens")]


def test_the_estimate_is_near_what_the_run_then_takes(server: MessagesServer, options: ModelOptions) -> None:
    asked = requests(10, trajectory=LONG)
    expected = estimate(asked, options=options)
    judge = live_judge(ModelBackend(options))
    asyncio.run(judge.judge(asked))
    taken = judge.backend.spent
    assert expected.usage.cache_read_tokens == pytest.approx(taken.cache_read_tokens, rel=0.1)
    assert expected.usage.calls == taken.calls
    assert taken.usd and expected.worst_usd and taken.usd < expected.worst_usd


def test_a_batch_is_half_the_price() -> None:
    expected = estimate(requests(3), options=NO_KEY)
    assert expected.usd and expected.usd / 2 <= expected.batch_usd < expected.usd


def test_batches_have_a_price_only_where_the_provider_has_them() -> None:
    others = replace(NO_KEY, provider=find_provider("openai"), model="gpt-5.2", prices="gpt-5.2=1/8")
    expected = estimate(requests(3), options=others)
    assert expected.usd and expected.worst_usd and expected.batch_usd is None
    assert "message batches" not in str(expected) and ", at most $" in str(expected)
    assert "as message batches" in str(estimate(requests(3), options=NO_KEY))


@pytest.mark.parametrize(
    ("settings", "is_refused"),
    [
        pytest.param({"judge_model": "gpt-5.2"}, True, id="another vendor's model"),
        pytest.param({"judge_model": "claude-sonnet-4-5"}, False, id="one of its own"),
        pytest.param({"judge": "openai", "judge_model": "gpt-5.2"}, False, id="the vendor whose it is"),
    ],
)
def test_a_model_that_the_judge_does_not_have_has_no_price(
    small_world: World, settings: Mapping[str, str], is_refused: bool
) -> None:
    environment = Settings.model_validate({"root": small_world.root, **settings})
    world = World(small_world.root, small_world.store, environment=environment)
    with pytest.raises(ConfigError, match="PERSONA_JUDGE to the provider that has it") if is_refused else nullcontext():
        estimate_run(world, EvaluationRequest(), world.settings.judge, count=False)


def test_what_the_store_holds_costs_nothing(server: MessagesServer, options: ModelOptions, store: Store) -> None:
    asked = requests(25, trajectory=LONG)
    asyncio.run(live_judge(ModelBackend(options, cache=JudgmentCache(store))).judge(asked))
    known = estimate(asked, options=options, store=store)
    assert (known.usage.calls, known.known, known.worst_usd) == (0, 25, 0.0)
    assert str(known) == "nothing to judge: $0 (all 25 judgments are in the store)"


def test_a_server_that_counts_no_tokens_is_said_in_words(server: MessagesServer, options: ModelOptions) -> None:
    server.counts_tokens = False
    said = str(estimate(requests(2), options=options))
    assert f"guessed from the length of the text: {server.url} does not count tokens (HTTP 404)" in said


def test_grouped_claims_take_fewer_calls() -> None:
    assert estimate(requests(9), options=NO_KEY, grouping=4).usage.calls == 3


def test_a_model_without_a_price_has_none() -> None:
    options = ModelOptions(model="gemma3", base_url="http://127.0.0.1:9", api_key=SecretStr("x"), max_retries=0)
    expected = estimate([request()], options=options)
    assert (expected.usage.usd, expected.worst_usd, expected.batch_usd) == (None, None, None)
    assert "no price is known for gemma3" in str(expected)


def test_what_needs_no_call_takes_none() -> None:
    empty = estimate([request(trajectory=replace(LONG, items=()))], options=NO_KEY)
    assert (empty.usage.calls, empty.usage.usd) == (0, 0.0)
    assert str(empty) == "nothing to judge: $0"


def asked_of(world: World, **asked: object) -> list[JudgeRequest]:
    plans = planned(world, EvaluationRequest.model_validate(asked))
    return [item for plan in plans for item in plan.requests]


@pytest.fixture
def keyed(server: MessagesServer, monkeypatch: pytest.MonkeyPatch) -> MessagesServer:
    """The server, to which the environment points."""
    monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
    return server


@pytest.mark.parametrize("fresh", [False, True])
def test_what_is_recorded_or_in_the_store_costs_a_run_nothing_unless_it_is_asked_anew(
    sample_world: World, keyed: MessagesServer, fresh: bool
) -> None:
    asked = asked_of(sample_world, agents=["jim"], dimensions=["adherence"])
    (sample_world.root / "recordings" / "jim" / "fluency.jsonl").unlink()
    stored = asked_of(sample_world, agents=["jim"], dimensions=["fluency"])
    options = ModelOptions.from_settings(sample_world.settings, "anthropic")
    asyncio.run(live_judge(ModelBackend(options, cache=JudgmentCache(sample_world.store))).judge(stored))
    request = EvaluationRequest(agents=["jim"], dimensions=["adherence", "fluency"], confirm=False)
    found = estimate_run(sample_world, request, "anthropic", JudgeOptions(fresh=fresh), count=False)
    every = len(asked) + len(stored)
    expected = (every, 0, 0) if fresh else (0, len(stored), len(asked))
    assert (found.judging.usage.calls, found.judging.known, found.recorded) == expected
    assert (found.usd, found.worst_usd) == (found.judging.usd, found.judging.worst_usd), "no more than judging"


def test_conversations_that_are_to_be_generated_cost_what_saying_and_judging_them_takes(small_world: World) -> None:
    plain = estimate_run(small_world, EvaluationRequest(), "anthropic", count=False)
    found = estimate_run(small_world, EvaluationRequest(synthetic=True, samples=2), "anthropic", count=False)
    # Consistency needs an earlier window, which generated conversations do not have.
    turns, claims = sum(map(len, SAMPLE_PROMPTS)), 4
    assert (plain.generated, found.generated) == (0, 2 * turns)
    assert found.judging.usage.calls == 2 * (turns + 2 * claims) and found.usd and found.worst_usd
    assert 0 < found.usd < found.worst_usd
    assert f"{found.generated} of these calls generate conversations" in str(found)


@pytest.mark.parametrize(
    ("values", "last"),
    [
        ({}, "at most $3.00"),
        ({"confirming": 8}, "all of it"),
        ({"generated": 3}, "3 of these calls"),
    ],
)
def test_of_what_comes_beside_judging_the_whole_is_told(values: Mapping[str, object], last: str) -> None:
    usage = Usage(calls=2, input_tokens=10, usd=1.0)
    judging = Estimate("m", usage, 3.0, None, counted=True)
    found = RunEstimate(judging, **{"worst_usd": 9.0, **values})  # pyright: ignore[reportArgumentType]
    *_, told = str(found).splitlines()
    assert last in told and ("at most $9.00" in told) is (last == "all of it"), str(found)


@pytest.mark.parametrize(("grouping", "dearest"), [(None, True), (4, False)])
def test_what_nobody_answered_is_told_with_what_asking_again_costs_as_it_was_asked(
    sample_world: World, keyed: MessagesServer, grouping: int | None, dearest: bool
) -> None:
    judging = open_judge("anthropic", sample_world, JudgeOptions(record=True))
    assert isinstance(judging, OpenedJudge) and judging.writer is not None
    asking = None if grouping is None else JudgeOptions(grouping=grouping)
    assert missing_text(sample_world, judging, "again", "anthropic", asking) == ""
    asked = asked_of(sample_world)
    judging.writer.record(asked, [Verdict(item.proposition_id, unscored=Unscored.TIMEOUT) for item in asked])
    told = missing_text(sample_world, judging, "again", "anthropic", asking)
    count = len(asked)
    assert told.startswith(f"{count} of {count} judgments failed ({count} timeout); `again` asks them again, about $")
    alone = estimate(asked, options=ModelOptions.from_settings(sample_world.settings, "anthropic"), count=False)
    assert told.endswith(f"${alone.usage.usd:.2f}") is dearest
