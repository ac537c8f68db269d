"""The schema editors use says what loading says, as far as a schema can."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from persona_pipeline.base.documents.yaml import parse_document
from tests.conftest import PROJECT
from tests.support.suite_schema import PACKAGED, packaged_text, suite_schema

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

CASES = json.loads((PROJECT / "tests/conformance/eval-suites.json").read_text(encoding="utf-8"))
VALID = [
    case
    for case in CASES
    if case["expected"].get("outcome") != "error"
    and "any_of" not in case["expected"]
    and not case["input"].get("file", "").endswith(".jsonl")
]


@pytest.fixture(scope="module")
def validator() -> "Draft202012Validator":
    # Its grammars take two seconds to load, in every worker that collects this file.
    from jsonschema import Draft202012Validator

    schema = suite_schema()
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def test_the_package_holds_what_the_models_say() -> None:
    assert PACKAGED.read_text(encoding="utf-8") == packaged_text(), "run make docs"


def test_what_loads_is_valid(validator: "Draft202012Validator") -> None:
    for case in VALID:
        errors = list(validator.iter_errors(parse_document(case["input"]["yaml"].replace("{DIR}", "/dir")).data))
        assert not errors, (case["area"], case["case"], errors[0].message)


@pytest.mark.parametrize(
    "text",
    [
        "name: a",
        "tests: [{id: t}]",
        "name: A\ndescription: d\ntests: []",
        "name: a\ndescription: ''\ntests: []",
        "tests: [{id: t, input: hi, critria: c}]",
        "tests: [{id: t, input: 5}]",
        "tests: [{id: t, input: hi, assert: [{contains: x}]}]",
        "tests: [{id: t, input: hi, assert: [{type: contains}]}]",
        "tests: [{id: t, input: hi, assert: [{type: is_json, weight: -1}]}]",
        "tests: [{id: t, input: hi, assert: [{type: is_json, required: 2}]}]",
        "tests: [{id: t, input: hi, assert: [{type: token_usage}]}]",
        "tests: [{id: t, input: hi, assert: [{type: tool_trajectory, mode: sometimes, expected: []}]}]",
        "tests: [{id: t, input: hi, assert: [{type: composite, assert: [{type: is_json, weight: x}], "
        "aggregator: {type: threshold, threshold: 1}}]}]",
        "workspace: {setup: {script: sh}}\ntests: []",
    ],
)  # fmt: skip
def test_mistakes_are_invalid(validator: "Draft202012Validator", text: str) -> None:
    assert not validator.is_valid(yaml.safe_load(text))


def test_other_types_stay_open(validator: "Draft202012Validator") -> None:
    assert validator.is_valid(yaml.safe_load("tests: [{id: t, input: hi, assert: [{type: my_own, level: 3}]}]"))


def test_the_example_suites_are_valid(validator: "Draft202012Validator") -> None:
    paths: list[Path] = sorted((PROJECT / "suites").glob("*.eval.yaml"))
    assert paths
    for path in paths:
        assert not list(validator.iter_errors(parse_document(path.read_text(encoding="utf-8")).data)), path
