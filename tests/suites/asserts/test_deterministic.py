"""Asserts that compute: text, structure, tool calls, metrics."""

from pathlib import Path
from typing import Any

import pytest

from persona_pipeline.suites.answering.output import Output
from tests.suites.support import calls, grade

DRAFT_7 = "http://json-schema.org/draft-07/schema#"


@pytest.mark.parametrize(
    ("item", "answer", "score"),
    [
        # Letters may be composed otherwise.
        ({"type": "contains", "value": "é"}, "e\u0301", 1),
        ({"type": "contains", "value": "DENIED", "ignore_case": True}, "Status: denied.", 1),
        ({"type": "icontains", "value": "STRAßE"}, "Eine Straße", 1),
        # Letter by letter.
        ({"type": "icontains", "value": "STRASSE"}, "Eine Straße", 0),
        ({"type": "icontains", "value": "ΣΑΣ"}, "σας", 1),
        ({"type": "contains", "value": ["a", "b"]}, "b", 0),
        ({"type": "contains-all", "value": ["a", "b"]}, "ba", 1),
        ({"type": "contains_any", "value": ["a", "b"]}, "b", 1),
        ({"type": "contains-any", "value": ["a", "b"]}, "B", 0),
        ({"type": "icontains-any", "value": ["a", "b"]}, "B", 1),
        ({"type": "icontains_all", "value": ["a", "b"]}, "B", 0),
        ({"type": "starts-with", "value": "Dear"}, "\n Dear Sir", 1),
        ({"type": "starts-with", "value": " Dear"}, "Dear Sir", 1),
        ({"type": "starts-with", "value": "Dear", "trim": False}, "\n Dear Sir", 0),
        ({"type": "starts-with", "value": " Dear", "trim": False}, " Dear Sir", 1),
        ({"type": "starts_with", "value": "Dear"}, "My Dear", 0),
        ({"type": "starts_with", "value": ["Dear", "Hi"], "of": "any"}, "Hi you", 1),
        ({"type": "ends-with", "value": "regards"}, "Best regards\n", 1),
        ({"type": "contains", "value": "regards", "at": "end"}, "regards, me", 0),
        ({"type": "equals", "value": "4"}, "4.", 0),
        ({"type": "equals", "value": "4", "trim": False}, "4\n", 0),
        ({"type": "equals", "value": "4\n", "trim": False}, "4\n", 1),
        ({"type": "regex", "value": "^a$"}, "a\n", 1),
        ({"type": "regex", "value": "(?m)^a$"}, "b\na\nc", 1),
        ({"type": "regex", "value": "[0-9]+"}, "in 2025", 1),
        ({"type": "is_json", "schema": {"required": ["a"]}}, '{"a": 1}', 1),
        ({"type": "is_json", "schema": {"required": ["a"]}}, '{"b": 1}', 0),
        ({"type": "is_json", "schema": {"required": ["a"]}}, "prose", 0),
        ({"type": "is_json", "schema": {"format": "email"}}, '"ada@example.com"', 1),
        ({"type": "is_json", "schema": {"format": "email"}}, '"ada@example"', 0),
        ({"type": "is_json", "schema": {"format": "email"}}, "5", 1),
        ({"type": "is_json", "schema": {"$schema": DRAFT_7, "items": [{"type": "string"}]}}, "[1]", 0),
        ({"type": "is_json", "schema": {"$schema": DRAFT_7, "items": [{"type": "string"}]}}, '["a", 1]', 1),
        ({"type": "is_json", "schema": {"$schema": DRAFT_7, "dependencies": {"a": ["b"]}}}, '{"a": 1}', 0),
        ({"type": "is_json", "schema": {"pattern": "^.$"}}, '"😀"', 1),
        ({"type": "is_json", "schema": {"pattern": r"^\p{Lu}$"}}, '"É"', 1),
        ({"type": "is_json", "schema": {"format": "date-time"}}, '"soon"', 0),
        ({"type": "is_json", "schema": {"format": "date-time"}}, '"2026-06-01T08:00:00Z"', 1),
        ({"type": "is_json", "schema": {"format": "uri"}}, '"not a uri"', 0),
        ({"type": "is_json", "schema": {"const": {"format": {}}}}, '{"format": {}}', 1),
        # Infinite in JavaScript.
        ({"type": "is_json", "schema": {}}, "1e999", 1),
        ({"type": "is_json", "schema": {"pattern": "^(a+)+$"}}, '"' + "a" * 40 + '!"', 0),
        ({"type": "contains-json"}, 'Here:\n```json\n{"a": [1]}\n```', 1),
        ({"type": "contains-json"}, "no {braces} of [that kind", 0),
        ({"type": "contains_json"}, "[NaN]", 0),
        ({"type": "contains-json", "schema": {"required": ["a"]}}, 'first {"b": 1}, then {"a": 1}', 1),
        ({"type": "is_json", "anywhere": True, "schema": {"type": "array"}}, 'only {"b": [1]}', 0),
    ],
)
def test_text(tmp_path: Path, item: dict[str, Any], answer: str, score: float) -> None:
    found = grade(tmp_path, item, answer)
    assert found.score == score
    assert (len(found.hits), len(found.misses)) == ((1, 0) if score else (0, 1))


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    found = grade(tmp_path, {"type": "icontains-all", "value": ["one", "two"]}, "ONE")
    assert list(found.misses) == ["The answer does not contain all of 'one', 'two', capitals aside: 'two' missing."]
    found = grade(tmp_path, {"type": "starts-with", "value": "one"}, "one")
    assert list(found.hits) == ["The answer starts with 'one'."]


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([{"role": "assistant", "content": "a"}, {"role": "tool", "content": "b"}], "a"),
        ([{"role": "assistant", "content": {"k": 1.0}}], '{"k":1.0}'),
        ([{"role": "assistant", "content": "a"}, {"role": "assistant", "tool_calls": [{"tool": "x"}]}], "a"),
        ([{"role": "user", "content": "a"}], ""),
        ([], ""),
    ],
    ids=["the last assistant", "data as compact JSON", "the last one with content", "no assistant", "no messages"],
)
def test_the_answer_is_the_last_thing_the_assistant_said(messages: list[Any], text: str) -> None:
    assert Output(messages).text == text


METRICS = {
    "text": "ok",
    "duration_ms": 900,
    "cost_usd": 0.05,
    "token_usage": {"input": 100, "output": 50, "cached": 10},
}


@pytest.mark.parametrize(
    ("item", "answer", "score"),
    [
        ({"type": "token_usage", "max_input": 100, "max_output": 49}, METRICS, 0),
        ({"type": "execution_metrics", "target_exploration_ratio": 0.7}, calls("read", "write"), 1),
        ({"type": "execution_metrics", "target_exploration_ratio": 0.71}, calls("read", "write"), 0),
    ],
)
def test_metrics(tmp_path: Path, item: dict[str, Any], answer: Any, score: float) -> None:
    assert grade(tmp_path, item, answer).score == score


EXPECTED = {"n": 100.0, "s": "Acme", "d": "2025-01-15", "l": [{"a": 5}, {"a": 7}], "z": 0, "none": None}


@pytest.mark.parametrize(
    ("check", "answer", "score"),
    [
        ({"path": "l[1].a"}, '{"l": [1, {"a": 7.0}]}', 1),
        ({"path": "l[1].a"}, '{"l": [{"a": 7}]}', 0),
        ({"path": "l.1.a"}, '{"l": [1, {"a": 7}]}', 1),
        ({"path": "l.1.a"}, '{"l": [1, {"a": 8}]}', 0),
        ({"path": "l.0.a"}, '{"l": {"0": {"a": 5}}}', 1),
        ({"path": "none"}, '{"none": null}', 1),
        ({"path": "n", "match": "numeric_tolerance", "tolerance": 1}, '{"n": "101"}', 1),
        ({"path": "n", "match": "numeric_tolerance", "tolerance": 1}, '{"n": "101 USD"}', 0),
        ({"path": "z", "match": "numeric_tolerance", "tolerance": 0.5, "relative": True}, '{"z": 0.5}', 1),
        ({"path": "n", "match": "numeric_tolerance"}, '{"n": true}', 0),
        ({"path": "d", "match": "date"}, '{"d": "January 15, 2025"}', 1),
    ],
)
def test_fields(tmp_path: Path, check: dict[str, Any], answer: str, score: float) -> None:
    item = {"type": "field_accuracy", "fields": [check]}
    assert grade(tmp_path, item, answer, expected_output=EXPECTED).score == score


def test_an_optional_field_that_is_missing_leaves_the_average(tmp_path: Path) -> None:
    fields = [{"path": "s", "weight": 2}, {"path": "n", "required": False}, {"path": "d"}]
    item = {"type": "field_accuracy", "fields": fields}
    assert grade(tmp_path, item, '{"s": "Acme", "d": "no"}', expected_output=EXPECTED).score == pytest.approx(2 / 3)


def test_all_or_nothing(tmp_path: Path) -> None:
    item = {"type": "field_accuracy", "aggregation": "all_or_nothing", "fields": [{"path": "s"}, {"path": "n"}]}
    assert grade(tmp_path, item, '{"s": "Acme", "n": 99}', expected_output=EXPECTED).score == 0
    assert grade(tmp_path, item, '{"s": "Acme", "n": 100}', expected_output=EXPECTED).score == 1


def test_the_expected_data_may_stand_in_text(tmp_path: Path) -> None:
    item = {"type": "field_accuracy", "fields": [{"path": "s"}]}
    assert grade(tmp_path, item, '{"s": "Acme"}', expected_output='{"s": "Acme"}').score == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", True),
        (' \n"hi"\t', True),
        ("12", True),
        ("9" * 5000, True),
        ('"\\ud800"', True),
        ("NaN", False),
        ("-Infinity", False),
        ("[1,]", False),
        ("\u00a0{}", False),
        ("\ufeff{}", False),
        ("```json\n{}\n```", False),
        ('"a\nb"', False),
        ("{} {}", False),
    ],
)
def test_the_whole_answer_is_json(tmp_path: Path, text: str, expected: bool) -> None:
    assert grade(tmp_path, {"type": "is_json"}, text).score == float(expected)
