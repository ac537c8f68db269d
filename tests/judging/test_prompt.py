"""The wording and form of proposition questions."""

import json
import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from persona_pipeline.judging.claims import PROMPT_VERSION, SCHEMA, plain_json, proposition_question
from tests.support.judging import request, requests
from tests.support.messages_api import check_body

TEXT = st.text(st.characters(exclude_categories=[]))
VERDICT = SCHEMA["properties"]["verdicts"]["items"]


def test_evidence_and_reasons_stand_before_the_score() -> None:
    order = list(VERDICT["properties"])
    assert order == VERDICT["required"]
    assert order.index("evidence") < order.index("reasoning") < order.index("verdict") < order.index("score")


def test_the_score_is_an_enum_from_0_to_9_or_null() -> None:
    assert VERDICT["properties"]["score"]["anyOf"] == [
        {"type": "integer", "enum": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]},
        {"type": "null"},
    ]


def test_the_schema_is_the_same_whatever_is_asked() -> None:
    asked = [
        proposition_question([request()], max_tokens=100),
        proposition_question(requests(3), max_tokens=100),
        proposition_question([request(lists_ideas=True, persona="p")], max_tokens=100),
    ]
    assert all(question.schema is SCHEMA for question in asked)
    assert check_body({"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": []}]}) == []


def test_a_question_has_the_key_of_its_request() -> None:
    one = request(sample=2)
    question = proposition_question([one], max_tokens=100)
    assert question.key == one.key
    assert question.prompt_version == PROMPT_VERSION


def test_only_a_proposition_on_ideas_asks_for_a_list() -> None:
    assert "list_ideas" in proposition_question([request(lists_ideas=True)], max_tokens=9).ask
    assert "list_ideas" not in proposition_question([request()], max_tokens=9).ask


@given(st.dictionaries(TEXT, st.lists(TEXT, max_size=2), max_size=3))
def test_plain_json_reads_back_equal_and_is_sendable(value: Any) -> None:
    text = plain_json(value)
    assert json.loads(text) == value
    assert json.loads(text.encode("utf-8")) == value
    assert not re.search("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\ufeff]", text)


def test_plain_json_shows_letters_and_hides_nothing() -> None:
    assert plain_json("Grüße 東京 a\u200bb \u202e \U000e0041") == '"Grüße 東京 a\\u200bb \\u202e \\udb40\\udc41"'
