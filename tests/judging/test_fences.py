"""A judge's answer in a code fence: one object and nothing else is that object, and anything more is unscored with its reason."""

import asyncio
import json

import pytest

from persona_pipeline.judging.claims import InvalidAnswerError, parse_object
from persona_pipeline.judging.open import OpenedJudge
from persona_pipeline.judging.verdict import Unscored
from tests.support.judging import request
from tests.support.messages_replies import message, verdicts
from tests.support.messages_server import MessagesServer

OBJECT = '{"score": 8, "reason": "```json is what it wrote"}'
WHOLE = {
    "bare": "{}",
    "blank space": " \n\t{}\n\n",
    "byte order mark": "\ufeff{}",
    "json": "```json\n{}\n```",
    "JSON": "```JSON\n{}\n```",
    "no language": "```\n{}\n```",
    "tildes": "~~~json\n{}\n~~~",
    "on one line": "```json{}```",
    "on one line with blanks": "``` json {} ```",
    "carriage returns": "```json\r\n{}\r\n```\r\n",
    "four backticks": "````json\n{}\n````",
    "byte order mark and blank space": "\ufeff \n```json\n\n{}\n\n```  \n\n",
}
MORE = {
    "prose before": "Here it is:\n```json\n{}\n```",
    "prose after": "```json\n{}\n```\nI hope this helps.",
    "not closed": "```json\n{}",
    "two fences": "```json\n{}\n```\n```json\n{}\n```",
    "prose inside": "```json\nThe verdict: {}\n```",
    "other fence at the end": "```json\n{}\n~~~",
}


@pytest.mark.parametrize("shape", WHOLE.values(), ids=WHOLE)
def test_one_fenced_object_and_nothing_else_is_that_object(shape: str) -> None:
    assert parse_object(shape.replace("{}", OBJECT)) == json.loads(OBJECT)


@pytest.mark.parametrize("shape", MORE.values(), ids=MORE)
def test_a_fence_and_more_is_refused_with_a_reason_that_says_so(shape: str) -> None:
    with pytest.raises(InvalidAnswerError, match="in a code fence"):
        parse_object(shape.replace("{}", OBJECT))


def test_a_list_in_a_fence_is_refused() -> None:
    with pytest.raises(InvalidAnswerError, match="a JSON list, not an object"):
        parse_object("```json\n[]\n```")


def test_a_judge_with_structured_output_may_answer_in_a_fence(server: MessagesServer, judge: OpenedJudge) -> None:
    server.handler = lambda call: message(f"```json\n{json.dumps(verdicts(call.body))}\n```")
    (fenced,) = asyncio.run(judge.judge([request()]))
    server.handler = lambda call: message(f"Sure:\n```json\n{json.dumps(verdicts(call.body))}\n```")
    (chatty,) = asyncio.run(judge.judge([request("Michael is loud", "loud")]))
    assert fenced.score is not None
    assert chatty.unscored is Unscored.INVALID_OUTPUT
    assert "in a code fence" in chatty.detail
