"""Judgments and batches on Postgres, where JSON, locks and types differ from SQLite's."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
import sqlalchemy as sa

from persona_pipeline.base.database.engine import Store, open_store
from persona_pipeline.base.database.tables import judgments
from persona_pipeline.judging.batches import Submission, collect_batches, submit_batch
from persona_pipeline.judging.cache import JudgmentCache
from persona_pipeline.judging.claims import questions_of
from persona_pipeline.judging.model.asking import ModelBackend, live_judge
from persona_pipeline.judging.providers.base import ModelOptions
from tests.support.judging import request, requests
from tests.support.messages_server import MessagesServer, Reset, message, verdicts

pytestmark = pytest.mark.xdist_group("postgres")


@pytest.fixture
def store(postgres_url: str) -> Iterator[Store]:
    opened = open_store(postgres_url)
    yield opened
    opened.close()


def test_a_judgment_with_text_that_postgres_cannot_hold_is_kept(
    server: MessagesServer, options: ModelOptions, store: Store
) -> None:
    data = {"reasoning": "nul \x00 lone \ud83d 😀"}

    def handler(call: object) -> object:
        answer = verdicts(server.calls[-1].body)
        answer["verdicts"][0].update(data)
        return message(json.dumps(answer))

    server.handler = handler  # pyright: ignore[reportAttributeAccessIssue]
    for _ in range(2):
        judge = live_judge(ModelBackend(options, cache=JudgmentCache(store)))
        (told,) = asyncio.run(judge.judge([request()]))
        assert told.reasoning == "nul \ufffd lone \ufffd 😀"
    assert server.paid == 1


def test_a_damaged_judgment_is_asked_again(server: MessagesServer, options: ModelOptions, store: Store) -> None:
    judge = live_judge(ModelBackend(options, cache=JudgmentCache(store)))
    asyncio.run(judge.judge(requests(2)))
    with store.begin() as connection:
        damaged = sa.update(judgments).values(answer={"json": "{}", "sha256": "0"})
        connection.execute(damaged.where(judgments.c.subject_key == requests(2)[0].key))
    asyncio.run(judge.judge(requests(2)))
    assert server.paid == 3


def test_a_batch_whose_submission_was_lost_is_found_and_collected(
    server: MessagesServer, options: ModelOptions, store: Store
) -> None:
    questions = [question for _, question in questions_of(requests(3), max_tokens=2048)]
    server.batches.lose_response = Reset()
    assert submit_batch(store, options, questions) == Submission(uncertain=1)
    assert submit_batch(store, options, questions) == Submission(waiting=3)
    (summary,) = collect_batches(store, options)
    assert summary == replace(summary, answered=3, unscored={})
    assert submit_batch(store, options, questions) == Submission(cached=3)
