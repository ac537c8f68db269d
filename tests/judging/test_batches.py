"""Message batches: submitted once, collected in any order, and what failed can be submitted again."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import anthropic
import pytest
import sqlalchemy as sa

from persona_pipeline.base.database.engine import Store
from persona_pipeline.base.database.tables import judge_batches
from persona_pipeline.judging import batches
from persona_pipeline.judging.batches import CollectedBackend, Submission, collect_batches, submit_batch
from persona_pipeline.judging.cache import JudgmentCache
from persona_pipeline.judging.claims import questions_of
from persona_pipeline.judging.model.asking import ModelBackend, live_judge
from persona_pipeline.judging.model.messages import RequestStyle
from persona_pipeline.judging.providers.base import ModelOptions
from persona_pipeline.judging.verdict import JudgeRequest, Question, Unscored
from persona_pipeline.scoring.messages.reading import read_messages
from tests.scoring.messages.test_reading import calls, talk
from tests.scoring.messages.test_reading import said as messages_of
from tests.support.judging import requests, trajectory
from tests.support.messages_server import Cut, MessagesServer, Reply, Reset, message, status

ASKED = requests(4)


def questions(asked: Sequence[JudgeRequest] = ASKED, grouping: int = 1) -> list[Question]:
    return [question for _, question in questions_of(asked, max_tokens=2048, grouping=grouping)]


def submitted(store: Store, options: ModelOptions) -> Submission:
    return submit_batch(store, options, questions())


def rows(store: Store) -> list[sa.Row]:
    with store.connect() as connection:
        return list(connection.execute(sa.select(judge_batches).order_by(judge_batches.c.created_at)))


def age(store: Store, minutes: float) -> None:
    """Let every record on file have been made so long ago."""
    with store.begin() as connection:
        connection.execute(sa.update(judge_batches).values(created_at=datetime.now(UTC) - timedelta(minutes=minutes)))


def test_a_batch_is_answered_at_half_the_price_and_not_asked_for_again(
    server: MessagesServer, options: ModelOptions, store: Store
) -> None:
    assert submitted(store, options) == Submission(batch_ids=("msgbatch_0000",), submitted=4)
    (summary,) = collect_batches(store, options)
    assert (summary.answered, summary.unscored) == (4, {})

    live = live_judge(ModelBackend(options, cache=JudgmentCache(store)))
    told = asyncio.run(live.judge(ASKED))
    assert [verdict.score is not None for verdict in told] == [True] * 4
    assert server.paid == 0


def test_the_price_is_half(server: MessagesServer, options: ModelOptions, store: Store) -> None:
    short = requests(1)
    submit_batch(store, options, questions(short))
    (summary,) = collect_batches(store, options)
    (verdict,) = asyncio.run(live_judge(ModelBackend(options)).judge(short))
    assert summary.usd == pytest.approx((verdict.usage.usd or 0) / 2)


def test_what_is_answered_or_under_way_is_not_submitted_again(
    server: MessagesServer, options: ModelOptions, store: Store
) -> None:
    submitted(store, options)
    assert submitted(store, options) == Submission(waiting=4)
    collect_batches(store, options)
    more = submit_batch(store, options, questions(requests(6)))
    assert (more.cached, more.submitted) == (4, 2)
    assert [len(body) for body in server.batches.created.values()] == [4, 2]


def test_a_batch_that_has_not_ended_is_left_alone(server: MessagesServer, options: ModelOptions, store: Store) -> None:
    submitted(store, options)
    server.batches.ended = False
    assert collect_batches(store, options) == []
    server.batches.ended = True
    assert len(collect_batches(store, options)) == 1
    assert collect_batches(store, options) == []
    assert rows(store)[0].status == "collected"


@pytest.mark.parametrize(
    ("outcome", "reason", "said"),
    [
        ("errored", Unscored.API_ERROR, "invalid_request_error"),
        ("expired", Unscored.TIMEOUT, "expired"),
        ("canceled", Unscored.API_ERROR, "cancelled"),
    ],
)
def test_what_ended_badly_is_unscored_and_can_be_submitted_again(
    outcome: str, reason: Unscored, said: str, server: MessagesServer, options: ModelOptions, store: Store
) -> None:
    submitted(store, options)
    (body,) = server.batches.created.values()
    server.batches.outcomes[body[1]["custom_id"]] = outcome
    (summary,) = collect_batches(store, options)
    assert (summary.answered, summary.reasons) == (3, {reason: 1})

    told = asyncio.run(live_judge(CollectedBackend(store, options)).judge(ASKED))
    failed = [verdict for verdict in told if verdict.score is None]
    assert [verdict.unscored for verdict in failed] == [reason]
    assert said in failed[0].detail
    assert "submit it again" in failed[0].detail

    server.batches.outcomes.clear()
    assert submitted(store, options).submitted == 1
    collect_batches(store, options)
    told = asyncio.run(live_judge(CollectedBackend(store, options)).judge(ASKED))
    assert [verdict.score is not None for verdict in told] == [True] * 4


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (message("babble"), Unscored.INVALID_OUTPUT),
        (message(None, stop_reason="refusal"), Unscored.REFUSAL),
        (message("{", stop_reason="max_tokens"), Unscored.TRUNCATED),
    ],
)
def test_an_answer_that_is_not_valid_is_no_number(
    outcome: Reply, reason: Unscored, server: MessagesServer, options: ModelOptions, store: Store
) -> None:
    server.always(outcome)
    submitted(store, options)
    (summary,) = collect_batches(store, options)
    assert (summary.answered, summary.reasons) == (0, {reason: 4})


def test_requests_without_a_result_are_unscored(server: MessagesServer, options: ModelOptions, store: Store) -> None:
    submitted(store, options)
    (body,) = server.batches.created.values()
    del body[2:]
    (summary,) = collect_batches(store, options)
    assert (summary.answered, summary.reasons) == (2, {Unscored.API_ERROR: 2})


def test_before_it_is_collected_a_judgment_is_waiting_and_before_it_is_submitted_unknown(
    server: MessagesServer, options: ModelOptions, store: Store
) -> None:
    submitted(store, options)
    waiting, unknown = asyncio.run(
        live_judge(CollectedBackend(store, options)).judge([ASKED[0], *requests(1, persona="else")])
    )
    assert "has not been collected yet" in waiting.detail
    assert "has not been submitted" in unknown.detail
    assert {waiting.score, unknown.score} == {None}


@pytest.mark.parametrize("lost", [Reset(), status(500), status(529), status(504)], ids=repr)
def test_a_submission_whose_response_is_lost_is_found_and_not_repeated(
    lost: object, server: MessagesServer, options: ModelOptions, store: Store
) -> None:
    server.batches.lose_response = lost
    assert submitted(store, options) == Submission(uncertain=1)
    assert submitted(store, options) == Submission(waiting=4)
    assert len(server.batches.created) == 1
    (summary,) = collect_batches(store, options)
    assert summary.answered == 4


def test_a_process_killed_between_submission_and_its_record_does_not_pay_twice(
    server: MessagesServer, options: ModelOptions, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(batches, "_update", killed)
        with pytest.raises(KeyboardInterrupt):
            submitted(store, options)
    assert [row.status for row in rows(store)] == ["submitting"]
    assert submitted(store, options) == Submission(waiting=4)
    assert len(server.batches.created) == 1
    assert collect_batches(store, options)[0].answered == 4


def test_a_submission_that_never_arrived_is_sent_again_after_a_while(
    server: MessagesServer, options: ModelOptions, store: Store
) -> None:
    server.batches.lose_response = Reset()
    server.batches.forget_next = True
    assert submitted(store, options) == Submission(uncertain=1)
    assert submitted(store, options) == Submission(waiting=4)
    age(store, 11)
    assert submitted(store, options).submitted == 4
    assert [row.status for row in rows(store)] == ["failed", "submitted"]


def test_a_refused_submission_raises_and_leaves_nothing_waiting(
    server: MessagesServer, options: ModelOptions, store: Store
) -> None:
    server.batches.refuse = status(403, "permission_error")
    with pytest.raises(anthropic.PermissionDeniedError):
        submitted(store, options)
    assert rows(store)[0].status == "failed"
    assert submitted(store, options).submitted == 4


def add_stranger(server: MessagesServer, options: ModelOptions) -> None:
    """Somebody else in the workspace submits a batch of the same size."""
    style = RequestStyle(options.model)
    bodies = [style.body(question) for question in questions(requests(4, persona="else"))]
    server.batches.create([{"custom_id": f"other-{index}", "params": body} for index, body in enumerate(bodies)])


def test_somebody_elses_batch_of_the_same_size_is_not_taken_for_ours(
    server: MessagesServer, options: ModelOptions, store: Store
) -> None:
    server.batches.lose_response = Reset()
    server.batches.forget_next = True
    submitted(store, options)
    add_stranger(server, options)
    assert submitted(store, options) == Submission(waiting=4)
    assert collect_batches(store, options) == []
    assert submitted(store, options) == Submission(waiting=4)
    age(store, 11)
    assert submitted(store, options).submitted == 4
    assert collect_batches(store, options)[0].answered == 4


def test_ours_is_found_behind_somebody_elses(server: MessagesServer, options: ModelOptions, store: Store) -> None:
    add_stranger(server, options)
    server.batches.lose_response = Reset()
    submitted(store, options)
    assert collect_batches(store, options) == []
    assert collect_batches(store, options)[0].answered == 4
    assert len(server.batches.created) == 2


def test_results_cut_off_by_the_network_are_collected_by_the_next_attempt(
    server: MessagesServer, options: ModelOptions, store: Store
) -> None:
    submitted(store, options)
    server.batches.break_results = lambda reply: Cut(reply, 0.6)
    with pytest.raises(Exception, match="peer closed connection"):
        collect_batches(store, options)
    assert rows(store)[0].status == "submitted"
    server.batches.break_results = None
    (summary,) = collect_batches(store, options)
    assert summary == replace(summary, answered=4, unscored={})


def test_large_runs_are_split(
    server: MessagesServer, options: ModelOptions, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "MAX_REQUESTS", 3)
    assert submitted(store, options).batch_ids == ("msgbatch_0000", "msgbatch_0001")
    monkeypatch.setattr(batches, "MAX_BYTES", 1)
    more = submit_batch(store, options, questions(requests(2, persona="else")))
    assert len(more.batch_ids) == 2
    assert len(collect_batches(store, options)) == 4


def test_grouped_questions_go_through_batches_too(server: MessagesServer, options: ModelOptions, store: Store) -> None:
    submit_batch(store, options, questions(grouping=3))
    collect_batches(store, options)
    told = asyncio.run(live_judge(CollectedBackend(store, options), grouping=3).judge(ASKED))
    assert [verdict.score is not None for verdict in told] == [True] * 4


def test_verdicts_on_messages_go_through_batches(server: MessagesServer, options: ModelOptions, store: Store) -> None:
    asked, collected = calls(messages_of(talk(50))), CollectedBackend(store, options)
    assert submit_batch(store, options, [call.question for call in asked]).submitted == len(asked) == 2
    (waiting,) = asyncio.run(read_messages([(asked, 0)], collected.ask))
    assert not waiting.verdicts and waiting.unscored == {Unscored.TIMEOUT: 50}
    collect_batches(store, options)
    (found,) = asyncio.run(read_messages([(asked, 0)], CollectedBackend(store, options).ask))
    assert len(found.verdicts) == 50 and server.paid == 0


def test_a_shared_prefix_is_cached_for_an_hour(server: MessagesServer, options: ModelOptions, store: Store) -> None:
    submit_batch(store, options, questions(requests(2, trajectory=trajectory(length=80))))
    (body,) = server.batches.created.values()
    assert [item["params"]["messages"][3]["content"][0]["cache_control"]["ttl"] for item in body] == ["1h", "1h"]
