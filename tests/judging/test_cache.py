"""Cached judgments: only valid ones, and damage is a miss, not a number."""

import asyncio
import json
import logging
from dataclasses import replace

import pytest
import sqlalchemy as sa

from persona_pipeline.base.database.engine import Store
from persona_pipeline.base.database.tables import judgments
from persona_pipeline.judging.cache import JudgmentCache
from persona_pipeline.judging.claims import proposition_question
from persona_pipeline.judging.model.asking import ModelBackend, live_judge
from persona_pipeline.judging.providers.base import ModelOptions
from persona_pipeline.judging.verdict import Answer, Unscored, Usage
from tests.support.judging import request
from tests.support.messages_server import MessagesServer, message, status

QUESTION = proposition_question([request()], max_tokens=500)
ITEM = {"proposition_id": "_c1", "evidence": [], "reasoning": "r", "ideas": [], "verdict": "scored", "score": 7}
ANSWER = Answer({"verdicts": [ITEM]}, usage=Usage(10, 5, calls=1, usd=0.1), model="m", prompt_version="1")


@pytest.fixture
def cache(store: Store) -> JudgmentCache:
    return JudgmentCache(store)


def test_an_answer_comes_back_and_costs_nothing_again(cache: JudgmentCache) -> None:
    cache.put("k", QUESTION, ANSWER)
    assert cache.find([("k", QUESTION), ("other", QUESTION)]) == {"k": replace(ANSWER, usage=Usage(), cached=True)}


def test_what_it_cost_and_for_whom_is_on_record(cache: JudgmentCache, store: Store) -> None:
    cache.put("k", QUESTION, ANSWER)
    with store.connect() as connection:
        row = connection.execute(sa.select(judgments)).one()
    assert (row.kind, row.agent_id, row.model, row.usd) == ("proposition", "michael", "m", 0.1)
    assert row.subject_key == request().key
    assert row.token_usage["input_tokens"] == 10


def test_what_a_batch_brought_is_charged_to_whoever_uses_it_first(cache: JudgmentCache) -> None:
    cache.put("called", QUESTION, ANSWER)
    cache.put("batched", QUESTION, ANSWER, batched_as=QUESTION.key)
    assert cache.charge(["called", "batched", "unknown"]) == {"batched": ANSWER.usage}
    assert cache.charge(["called", "batched", "unknown"]) == {}


def test_a_failure_cannot_be_cached(cache: JudgmentCache) -> None:
    with pytest.raises(ValueError, match="only valid answers"):
        cache.put("k", QUESTION, Answer(unscored=Unscored.TIMEOUT))


@pytest.mark.parametrize(
    "fault",
    [status(500), message(None, stop_reason="refusal"), message("{"), message("{", stop_reason="max_tokens")],
    ids=["500", "refusal", "garbage", "truncated"],
)
def test_after_a_failure_the_next_run_asks_again(
    fault: object, server: MessagesServer, options: ModelOptions, store: Store
) -> None:
    server.always(fault)  # pyright: ignore[reportArgumentType]
    judge = live_judge(ModelBackend(options, cache=JudgmentCache(store)))
    (failed,) = asyncio.run(judge.judge([request()]))
    server.always(None)
    (told,) = asyncio.run(judge.judge([request()]))
    assert failed.score is None
    assert told.score is not None


@pytest.mark.parametrize(
    "damaged",
    [
        '{"json": "{\\"verdi',
        '"text"',
        "[]",
        "{}",
        '{"json": "{}", "sha256": "0"}',
        json.dumps({"json": '{"verdicts":[]}', "sha256": "f0" * 32}),
    ],
    ids=["cut off", "text", "a list", "empty", "wrong checksum", "other content"],
)
def test_a_damaged_entry_is_a_miss_and_a_warning(
    damaged: str, cache: JudgmentCache, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    cache.put("k", QUESTION, ANSWER)
    cache.put("sound", QUESTION, ANSWER)
    with store.begin() as connection:
        connection.execute(sa.text("UPDATE judgments SET answer = :damaged WHERE key = 'k'"), {"damaged": damaged})
    with caplog.at_level(logging.WARNING):
        assert set(cache.find([("k", QUESTION), ("sound", QUESTION)])) == {"sound"}
    assert "is ignored and asked again" in caplog.text
    cache.put("k", QUESTION, ANSWER)
    assert set(cache.find([("k", QUESTION)])) == {"k"}


def test_an_entry_that_is_no_answer_to_the_question_is_a_miss(cache: JudgmentCache) -> None:
    cache.put("k", QUESTION, ANSWER)
    other = proposition_question([request(), request("Michael is loud", name="loud")], max_tokens=500)
    assert cache.find([("k", other)]) == {}


def test_hostile_text_is_kept_as_far_as_it_can_be_stored(cache: JudgmentCache) -> None:
    answer = replace(ANSWER, data={"verdicts": [{**ITEM, "reasoning": "nul \x00 lone \ud83d 😀"}]})
    cache.put("k", QUESTION, answer)
    expected = {"verdicts": [{**ITEM, "reasoning": "nul \ufffd lone \ufffd 😀"}]}
    assert cache.find([("k", QUESTION)])["k"].data == expected


def test_thousands_of_keys_are_found_at_once(cache: JudgmentCache) -> None:
    cache.put("7", QUESTION, ANSWER)
    assert set(cache.find((str(index), QUESTION) for index in range(3_000))) == {"7"}


def test_a_database_that_cannot_be_written_costs_a_warning_and_no_verdict(
    server: MessagesServer, options: ModelOptions, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    with store.begin() as connection:
        connection.execute(sa.text("ALTER TABLE judgments DROP COLUMN usd"))
    judge = live_judge(ModelBackend(options, cache=JudgmentCache(store)))
    (told,) = asyncio.run(judge.judge([request()]))
    assert told.score is not None
    assert "was not cached" in caplog.text


def test_a_rejection_is_remembered_per_endpoint_and_model(cache: JudgmentCache) -> None:
    cache.note_rejection("http://here", "m")
    cache.note_rejection("http://here", "m")
    known = [
        cache.rejects_structured_output(*pair) for pair in (("http://here", "m"), ("http://here", "n"), ("x", "m"))
    ]
    assert known == [True, False, False]
