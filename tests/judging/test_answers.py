"""Strict reading of answers: exactly one verdict for each proposition asked, or none counts."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persona_pipeline.judging.claims import SCHEMA, InvalidAnswerError, checked_quote, parse_object, proposition_problem
from persona_pipeline.judging.verdict import schema_problem
from persona_pipeline.world.models import Entry, Trajectory

IDS = st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=5, unique=True)
# NUL is read as U+FFFD.
TEXT = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=10,
)
OBJECT = st.dictionaries(TEXT, JSON, max_size=4)


def verdict(name: str, **changes: Any) -> dict[str, Any]:
    item = {"proposition_id": name, "evidence": [], "reasoning": "r", "ideas": [], "verdict": "scored", "score": 5}
    return {**item, **changes}


@given(ids=IDS, data=st.data())
def test_verdicts_in_any_order_are_valid(ids: list[str], data: st.DataObject) -> None:
    order = data.draw(st.permutations(ids))
    assert proposition_problem({"verdicts": [verdict(name) for name in order]}, ids) is None


@given(
    ids=st.lists(st.sampled_from("abc"), min_size=1, unique=True),
    given_ids=st.lists(st.sampled_from("abc"), max_size=4),
)
def test_any_other_set_of_ids_is_invalid(ids: list[str], given_ids: list[str]) -> None:
    problem = proposition_problem({"verdicts": [verdict(name) for name in given_ids]}, ids)
    assert (problem is None) == (sorted(given_ids) == sorted(ids))


@given(JSON)
def test_no_other_json_passes_for_an_answer(data: Any) -> None:
    assert proposition_problem(data, ["a"]) is not None
    assert proposition_problem({"verdicts": [data]}, ["a"]) is not None


@given(name=st.sampled_from(sorted(verdict("a"))), value=JSON)
def test_a_changed_field_is_valid_only_if_the_schema_and_the_rules_allow_it(name: str, value: Any) -> None:
    data = {"verdicts": [verdict("a", **{name: value})]}
    if proposition_problem(data, ["a"]) is None:
        assert schema_problem(SCHEMA, data) is None
        assert data["verdicts"][0]["score"] in range(10)


@pytest.mark.parametrize("spelled", ["not_applicable", "NOT_APPLICABLE", "Not_Applicable", "no_evidence"])
def test_the_case_of_a_verdict_does_not_matter(spelled: str) -> None:
    assert proposition_problem({"verdicts": [verdict("a", verdict=spelled, score=None)]}, ["a"]) is None


@given(OBJECT)
def test_an_object_is_read_as_it_was_written(data: dict[str, Any]) -> None:
    assert parse_object(json.dumps(data)) == data


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_what_is_no_finite_number_is_refused(number: str) -> None:
    with pytest.raises(InvalidAnswerError, match=number):
        parse_object(f'{{"score": {number}}}')


@given(st.text())
def test_text_is_read_as_an_object_or_refused(text: str) -> None:
    try:
        assert isinstance(parse_object(text), dict)
    except InvalidAnswerError as error:
        assert "\n" not in str(error)


def test_a_quote_is_found_however_its_letters_are_composed() -> None:
    for written, quoted in (("One cafe\u0301, please.", "caf\u00e9"), ("One caf\u00e9, please.", "cafe\u0301")):
        quote = checked_quote(Trajectory((Entry("Ann", written, "x1"),)), "m1", quoted)
        assert quote.verified and quote.quote == "caf\u00e9"
