"""Cells of promptfoo's tables: a type, perhaps a number, and everything behind the colon; the place of a finding is its cell."""

import csv
import io
import re
from pathlib import Path
from typing import Any

import pytest

from persona_pipeline.suites.importing.asserts import REMEDIES
from persona_pipeline.suites.importing.config import import_file
from persona_pipeline.suites.importing.findings import PROMPTFOO
from tests.conftest import PROJECT
from tests.suites.support import write


def of_cells(
    folder: Path, header: str, *cells: str
) -> tuple[list[dict[str, Any]], list[tuple[int | None, int | None, str]]]:
    """The asserts of a row with these cells, and the findings in the table: line, column, message."""
    text = io.StringIO()
    csv.writer(text).writerows([["phrase", *header.split()], ["a", *cells]])
    config = "prompts: ['T: {{ phrase }}']\ntests: [file://t.csv, {assert: [{type: is-json}], vars: {phrase: b}}]\n"
    write(folder, {"promptfooconfig.yaml": config, "t.csv": text.getvalue()})
    made = import_file(folder / "promptfooconfig.yaml", folder, PROMPTFOO)
    first = made.suite["tests"][0]
    asserts = first.get("assert", []) if len(made.suite["tests"]) == 2 else []
    in_table = [one for one in made.findings if str(one.path).endswith("t.csv")]
    return asserts, [(one.line, one.column, one.message) for one in in_table]


@pytest.mark.parametrize(
    ("cell", "becomes"),
    [
        ("contains:hola", {"type": "contains", "value": "hola"}),
        ("contains: hola", {"type": "contains", "value": " hola"}),
        ("not-icontains:sorry", {"type": "icontains", "value": "sorry", "negate": True}),
        ("icontains:a:b", {"type": "icontains", "value": "a:b"}),
        ("contains-any: a, b", {"type": "contains-any", "value": ["a", "b"]}),
        ("yes", {"type": "equals", "value": "yes", "trim": False}),
        ("note: plain text", {"type": "equals", "value": "note: plain text", "trim": False}),
        ("regex:^a{2}:", {"type": "regex", "value": "^a{2}:"}),
        ("is-json", {"type": "is_json"}),
        ('is-json:{"type": "object"}', {"type": "is_json", "schema": {"type": "object"}}),
        ("latency(1000)", {"type": "latency", "max_ms": 1000.0}),
        ("cost(0.01)", {"type": "cost", "max_usd": 0.01}),
        ("cost", {"type": "cost", "max_usd": 0.75}),
        ("grade: is kind", {"type": "rubrics", "criteria": ["is kind"]}),
    ],
)
def test_a_cell_is_the_assert_that_it_is_there(tmp_path: Path, cell: str, becomes: dict[str, Any]) -> None:
    asserts, named = of_cells(tmp_path, "__expected", cell)
    assert asserts == [{**becomes, "required": True}]
    assert named == []


@pytest.mark.parametrize(
    ("cell", "kind"),
    [
        ("javascript:output.length > 2", "node"),
        ("fn:output", "node"),
        ("eval:output", "node"),
        ("python: len(output)", "python3"),
    ],
)
def test_code_in_a_cell_is_a_program(tmp_path: Path, cell: str, kind: str) -> None:
    asserts, named = of_cells(tmp_path, "__expected", cell)
    assert [(one["type"], one["script"][0], one["config"]["code"]) for one in asserts] == [
        ("code_judge", kind, cell.partition(":")[2].strip())
    ]
    assert named == []


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("is-refusal", "assert is-refusal has no counterpart"),
        ("word-count:5", "assert word-count has no counterpart"),
        ("similar(0.8):hello", "assert similar has no counterpart; say in rubrics what must agree"),
        ("similar:cosine(0.8):hello", "assert similar:cosine has no counterpart"),
        ("file://check.js", "assert javascript has no counterpart; write a code_judge"),
        ("file://check.py:grade", "assert python has no counterpart; write a code_judge"),
        (
            "contain:hola",
            "contain is no type of an assert: the whole cell is compared as text; did you mean 'contains'",
        ),
        ("is-cheerful", "is-cheerful is no type of an assert"),
        ("not-funny", "not-funny is no type of an assert"),
        ("latency:1000", "latency:1000: promptfoo takes 0.75 here and leaves 1000 out; write latency(1000)"),
    ],
)
def test_a_cell_without_a_counterpart_is_named_at_its_cell(tmp_path: Path, cell: str, said: str) -> None:
    _, named = of_cells(tmp_path, "__expected1 __expected2", "contains:x", cell)
    assert [(line, column, said in message) for line, column, message in named] == [(2, 3, True)], named


def test_columns_say_more_of_every_cell(tmp_path: Path) -> None:
    header = "__expected1 __expected2 __config:__expected1:threshold __metric __threshold __metadata:area __metadata:tags[] __odd"
    asserts, named = of_cells(tmp_path, header, "llm-rubric:kind", "contains:x", "0.9", "m", "0.8", "desk", "a, b", "1")
    (group,) = asserts
    assert (group["type"], group["required"]) == ("composite", 0.8)
    assert [(one["type"], one.get("name")) for one in group["assert"]] == [("llm_judge", "m"), ("contains", "m-2")]
    assert named == [(2, 9, "column __odd has no counterpart")]


def test_remedies_name_only_options_that_there_are() -> None:
    options = (PROJECT / "docs/reference/command-line.md").read_text(encoding="utf-8")
    named = {option for remedy in REMEDIES.values() for option in re.findall(r"--[a-z-]+", remedy)}
    assert [option for option in named if f"`{option}`" not in options] == []
