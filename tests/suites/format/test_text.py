import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from persona_pipeline.base.documents.yaml import parse_document, to_yaml
from persona_pipeline.suites.format.text import (
    json_equal,
    parse_float,
    parse_json,
    parse_object,
    stringify,
)

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**6), 10**6)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def test_indented_json_has_two_spaces() -> None:
    assert stringify({"k": [1]}, indent=2) == '{\n  "k": [\n    1\n  ]\n}'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("100", 100.0),
        ("100 USD", None),
        ("nan", None),
        ("", None),
        ("1e999", None),
    ],
)
def test_a_number_is_all_of_its_text(text: str, expected: float | None) -> None:
    assert parse_float(text) == expected


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", "[" * 100_000, "1e999", '{"a": [1, -2E+400]}'])
def test_what_is_no_finite_shallow_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_json(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('Sure: {"a": 1} done', {"a": 1}),
        ("} {", None),
        ('{"a": NaN}', None),
    ],
)
def test_the_object_inside_an_answer(text: str, expected: object) -> None:
    assert parse_object(text) == expected


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (5, 5.0, True),
        (True, 1, False),
        (0, False, False),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ("1", 1, False),
        ({"a": ["caf\u00e9"]}, {"a": ["cafe\u0301"]}, True),
        (None, None, True),
        ({"a": [True]}, {"a": [1]}, False),
    ],
)
def test_json_equality(left: object, right: object, expected: bool) -> None:
    assert json_equal(left, right) is expected


@given(JSON)
def test_stringified_json_reads_back_as_the_same_value(value: object) -> None:
    assert json_equal(json.loads(stringify(value)), value)


ODD_TEXTS = ["- a", "\x85", "a\n b \n", "\ta", "# c", "{{ x }}"]
ODD_TEXTS.extend(
    ["1e3", "0o17", "no", "null", "~", "1:30", "+1", ".5", "0x1F", "=", "<<", ".inf", "2026-01-01", "'", '"']
)
YAML_TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")) | st.sampled_from(ODD_TEXTS)


@settings(max_examples=25, deadline=None)
@given(
    st.recursive(
        YAML_TEXTS | st.integers() | st.booleans(), lambda inner: st.dictionaries(YAML_TEXTS, inner, max_size=4)
    )
)
def test_written_yaml_reads_back_as_the_same(data: object) -> None:
    assert parse_document(to_yaml({"k": data})).data == {"k": data}
