"""Tests as rows of a table."""

from pathlib import Path
from typing import Any

import pytest

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.suites.format.models import Test as SuiteTest
from tests.suites.support import load, write


def rows(folder: Path, text: str) -> tuple[SuiteTest, ...]:
    write(folder, {"c.csv": text})
    return load(folder, "tests: ./c.csv\n").tests


def dumped(test: SuiteTest) -> list[dict[str, Any]]:
    return [item.dump() for item in test.asserts]


def test_cells_are_fields_of_a_test(tmp_path: Path) -> None:
    text = (
        "\ufeffid,input,criteria,expected_output,conversation_id,__metadata:team,__metadata:areas[]\r\n"
        'a,"one, two",good,"say ""hi""\nplease",k1,sales,"north, south"\r\n'
        "\r\n"
        'b,hi,good,"{""k"": 1}",,,\r\n'
    )
    first, second = rows(tmp_path, text)
    assert (first.question, first.expected_outcome, first.conversation_id) == ("one, two", "good", "k1")
    assert first.reference_answer == 'say "hi"\nplease'
    assert first.metadata == {"team": "sales", "areas": ["north", "south"]}
    assert second.expected_messages == ({"role": "assistant", "content": {"k": 1}},)
    assert second.metadata is None


def test_rows_without_an_id_are_numbered(tmp_path: Path) -> None:
    assert [test.id for test in rows(tmp_path, "input,criteria\nhi,c\nho,c\n")] == ["row-1", "row-2"]


def test_structured_cells_are_json(tmp_path: Path) -> None:
    (test,) = rows(tmp_path, 'id,input,assert,metadata\na,hi,"[{""type"": ""is_json""}]","{""n"": 1}"\n')
    assert dumped(test)[0]["type"] == "is_json"
    assert test.metadata == {"n": 1}


def test_prefix_suffix_and_description(tmp_path: Path) -> None:
    (test,) = rows(tmp_path, "id,input,__prefix,__suffix,__description\na,paper,Sell ,!,Sells\n")
    assert (test.question, test.expected_outcome) == ("Sell paper!", "Sells")


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("contains:DENIED", {"type": "contains", "value": "DENIED"}),
        ("not-contains:DENIED", {"type": "contains", "value": "DENIED", "negate": True}),
        ("icontains:Denied", {"type": "contains", "value": "Denied", "ignore_case": True}),
        ('"contains-any: a, b"', {"type": "contains", "value": ["a", "b"], "of": "any"}),
        ("not-starts-with:Dear", {"type": "contains", "value": "Dear", "at": "start", "negate": True}),
        ("equals: 4", {"type": "equals", "value": "4"}),
        ("4", {"type": "equals", "value": "4"}),
        ("Note: call back", {"type": "equals", "value": "Note: call back"}),
        ("regex:^a$", {"type": "regex", "value": "^a$"}),
        ("is-json", {"type": "is_json"}),
        ("latency(1000)", {"type": "latency", "max_ms": 1000.0}),
        ("cost(0.1)", {"type": "cost", "max_usd": 0.1}),
        ("llm-rubric:is polite", {"type": "rubrics", "criteria": [{"outcome": "is polite"}]}),
    ],
)
def test_expectations(tmp_path: Path, cell: str, expected: dict[str, Any]) -> None:
    (test,) = rows(tmp_path, f"id,input,__expected\na,hi,{cell}\n")
    found = dumped(test)[0]
    if "criteria" in expected:
        assert found["criteria"][0]["outcome"] == "is polite"
        expected = {"type": "rubrics"}
    assert found.items() >= expected.items()


@pytest.mark.parametrize("cell", ["contains-json:x", "contans:x", "contains:", "contains-any:", "latency(soon)"])
def test_an_expectation_there_is_not_is_an_error(tmp_path: Path, cell: str) -> None:
    with pytest.raises(ConfigError, match=r"c\.csv:2:[13]: "):
        rows(tmp_path, f"id,input,__expected\na,hi,{cell}\n")


def test_metric_names_and_thresholds_gate(tmp_path: Path) -> None:
    (test,) = rows(
        tmp_path,
        "id,input,__expected1,__expected2,__metric,__config:__expected2:threshold\na,hi,contains:x,contains:y,m,0.5\n",
    )
    assert [(item["name"], item["required"]) for item in dumped(test)] == [("m-1", False), ("m-2", 0.5)]


def test_a_row_threshold_is_a_gate_over_all_its_expectations(tmp_path: Path) -> None:
    (test,) = rows(tmp_path, "id,input,__expected1,__expected2,__threshold\na,hi,contains:x,contains:y,0.5\n")
    (group,) = dumped(test)
    assert (group["type"], group["required"], len(group["assert"])) == ("composite", 0.5, 2)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("id,inptu\na,hi\n", "c.csv:1:2: unknown column 'inptu'; did you mean 'input'?"),
        (
            "id,input,colour\na,hi,red\n",
            "c.csv:1:3: unknown column 'colour'; to keep it with the test, call it __metadata:colour",
        ),
        ("id,input,id\na,hi,b\n", "c.csv:1:3: column 'id' is there twice"),
        ('id,input,criteria\na,"hi,c\n', "a quoted cell is not closed"),
        ("id,input\na,hi,c\n", "c.csv:2:1: the row has 3 cells, the header 2"),
        ("id,input,metadata\na,hi,nope\n", "c.csv:2:3: metadata: is not JSON"),
        ("id,input,metadata\na,hi,[]\n", "c.csv:2:3: metadata: must be a JSON object"),
        ("id,input,skip_defaults\na,hi,maybe\n", "c.csv:2:3: test 'a': skip_defaults: must be true or false"),
        (
            "id,input,__expected,__threshold\na,hi,x,2\n",
            "required: must be true, false or a minimum score above 0 and at most 1",
        ),
        ("id,input,__expected,__config:__expected2:threshold\na,hi,x,1\n", "there is no __expected2 in this row"),
        ('id,input,criteria\na,hi,"two\nlines"\nb,,\n', "c.csv:4:1: test 'b': input is required"),
    ],
)
def test_a_mistake_names_line_and_cell(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        rows(tmp_path, text)
    assert said in str(raised.value)
