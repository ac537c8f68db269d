"""JSON that says two things at once says nothing."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persona_pipeline.base.documents.json import JsonError, strict_json

VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"score": 1, "score": 9}', "the key 'score' stands twice"),
        ('[{"a": {"b": 1, "b": 1}}]', "the key 'b' stands twice"),
        ('{"a": NaN}', "NaN is not JSON"),
        ('{"a": -Infinity}', "-Infinity is not JSON"),
        ('{"a": 1e999}', "1e999 is not JSON"),
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
def test_all_other_json_is_read_as_ever(value: object) -> None:
    assert strict_json(json.dumps(value)) == value
