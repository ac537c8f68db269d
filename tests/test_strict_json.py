"""JSON that says two things at once says nothing."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persona_pipeline.base.documents.json import JsonError, strict_array, strict_json
from persona_pipeline.base.text import storable_data

VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    # Of two keys that only differ in what cannot be stored, one would be lost.
    lambda inner: st.lists(inner) | st.dictionaries(st.text().filter(lambda key: "\x00" not in key), inner),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"score": 1, "score": 9}', "the key 'score' stands twice"),
        ('[{"a": {"b": 1, "b": 1}}]', "the key 'b' stands twice"),
        ('{"a": NaN}', "NaN is not JSON"),
        ('{"a": -Infinity}', "-Infinity is not JSON"),
        ('{"a": 1e999}', "1e999 is too large"),
        ("[" * 100_000, "nested too deeply"),
        ("1" * 5000, "too many digits"),
        ("{", "Expecting property name"),
        ("", "Expecting value"),
    ],
)
def test_what_is_not_said_once_is_refused(text: str, said: str) -> None:
    with pytest.raises(JsonError, match=said):
        strict_json(text)


@given(VALUE)
def test_all_other_json_is_read_with_storable_text(value: object) -> None:
    assert strict_json(json.dumps(value)) == storable_data(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r'"\\ud83d"', r"\ud83d"),
        (r'"\\\ud83d"', "\\\ufffd"),
        (r'"\ud83d\ude00 \ud83d\u0041 \ude00\ud83d"', "😀 \ufffdA \ufffd\ufffd"),
        (r'"\uD83D\uDE00 \uDBFF \u0000"', "😀 \ufffd \ufffd"),
        (r'{"\ud83d": ["\u0000"]}', {"\ufffd": ["\ufffd"]}),
    ],
)
def test_half_a_character_and_nul_become_the_replacement_character(text: str, value: object) -> None:
    assert strict_json(text) == value
    assert list(strict_array(f"[{text}]")) == [(1, value)]


@pytest.mark.parametrize(
    "text",
    [r'"\ud8zz"', r'"\u000"', '"\x00"', r'"\ud83d\ude0"', r'{"\ud83d": 1, "\ud83e": 2}'],
    ids=ascii,
)
def test_a_broken_escape_stays_an_error(text: str) -> None:
    with pytest.raises(JsonError):
        strict_json(text)
