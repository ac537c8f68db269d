"""A verdict must stand on the transcript."""

import asyncio
import json
from collections.abc import Callable

import pytest

from persona_pipeline.judging.open import OpenedJudge
from persona_pipeline.judging.verdict import Unscored, quote_health
from tests.support.judging import request, requests
from tests.support.messages_replies import Call, Reply, message, verdicts
from tests.support.messages_server import MessagesServer


def quoting(*quotes: str) -> Callable[[Call], Reply]:
    def reply(call: Call) -> Reply:
        data = verdicts(call.body)
        for item in data["verdicts"]:
            item["evidence"] = [{"message": "m1", "quote": quote} for quote in quotes]
        return message(json.dumps(data))

    return reply


def test_a_verdict_none_of_whose_quotes_was_said_is_asked_once_more_and_then_unscored(
    server: MessagesServer, judge: OpenedJudge
) -> None:
    server.handler = quoting("never said", "nor this")
    (verdict,) = asyncio.run(judge.judge([request()]))
    assert (verdict.score, verdict.unscored) == (None, Unscored.UNSUPPORTED)
    assert len(server.calls) == verdict.usage.calls == 2
    assert "letter for letter" in server.calls[1].body["messages"][-1]["content"][0]["text"]
    assert [quote.quote for quote in verdict.evidence] == ["never said", "nor this"]


def test_the_second_answer_counts_when_it_stands(server: MessagesServer, judge: OpenedJudge) -> None:
    honest = server.handler
    server.handler = lambda call: (honest if call.index else quoting("never said"))(call)
    (verdict,) = asyncio.run(judge.judge([request()]))
    assert verdict.score is not None and verdict.evidence[0].verified
    assert len(server.calls) == 2


@pytest.mark.parametrize(
    "quotes", [(), ("Good morning, everybody!", "never said")], ids=["no quote", "one of two stands"]
)
def test_a_verdict_without_quotes_or_with_one_that_stands_is_not_asked_again(
    quotes: tuple[str, ...], server: MessagesServer, judge: OpenedJudge
) -> None:
    server.handler = quoting(*quotes)
    told = asyncio.run(judge.judge(requests(3)))
    assert all(verdict.score is not None for verdict in told)
    assert len(server.calls) == 3


@pytest.mark.parametrize(
    ("verified", "share", "doubtful"),
    [
        ([], 0.0, False),
        ([[], []], 0.0, False),
        ([[True] * 4, [False]], 0.2, False),
        ([[True, True], [False], []], 1 / 3, True),
    ],
)
def test_the_health_of_a_judge_is_the_share_of_its_quotes_that_fail(
    verified: list[list[bool]], share: float, doubtful: bool
) -> None:
    health = quote_health(verified)
    assert (health.failing_share, health.is_doubtful) == (share, doubtful)
