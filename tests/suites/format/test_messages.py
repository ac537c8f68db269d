from pathlib import Path
from typing import Any

import pytest
import yaml

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.suites.format.models import Test as SuiteTest
from tests.suites.support import load


def only_test(folder: Path, **fields: Any) -> SuiteTest:
    entry = {"id": "t", "criteria": "c", "input": "hi", **fields}
    entry = {key: value for key, value in entry.items() if value is not ...}
    return load(folder, yaml.safe_dump({"tests": [entry]}, sort_keys=False)).tests[0]


USER, SAID = {"role": "user", "content": "x"}, {"role": "assistant", "content": "x"}
PARTS = [{"type": "text", "value": " one "}, {"type": "text", "value": "  "}]
TALK = [
    {"role": "system", "content": "  Be brief.\n"},
    {"role": "user", "content": PARTS},
    {"role": "user", "content": {"k": 1}},
]
KEPT = {**SAID, "id": "m1", "tool_calls": [{"tool": "a", "why": "b"}]}


@pytest.mark.parametrize(
    ("given", "name", "read"),
    [
        ({"input": "alias", "input_messages": [USER]}, "input_messages", (USER,)),
        ({"input": ""}, "input_messages", ({"role": "user", "content": ""},)),
        ({"input": TALK}, "question", 'Be brief. one {\n  "k": 1\n}'),
        ({"expected_output": USER}, "expected_messages", (USER,)),
        ({"expected_output": ["a", 2]}, "expected_messages", ({"role": "assistant", "content": ["a", 2]},)),
        ({"expected_output": []}, "expected_messages", ()),
        ({"expected_messages": [KEPT]}, "expected_messages", (KEPT,)),
        ({"expected_messages": [{**SAID, "content": {"k": 1.0}}]}, "reference_answer", '{\n  "k": 1.0\n}'),
        (
            {"expected_messages": [{"role": "assistant", "tool_calls": [{"tool": "a"}]}]},
            "reference_answer",
            '[\n  {\n    "tool": "a"\n  }\n]',
        ),
    ],
)
def test_what_a_test_asks_and_expects(tmp_path: Path, given: dict[str, Any], name: str, read: Any) -> None:
    assert getattr(only_test(tmp_path, **given), name) == read


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("text", ": must be a mapping"),
        ({"content": "x"}, ".role is required"),
        ({"role": "robot", "content": "x"}, ".role: must be one of system, user, assistant, tool, not 'robot'"),
        ({"role": "user"}, "content is required"),
        ({"role": "assistant"}, "content or tool_calls is required"),
        ({"role": "user", "content": 5}, ".content: must be a string, a mapping or a list of parts"),
        ({"role": "user", "content": ["a"]}, ".content: must be a string, a mapping or a list of parts"),
        ({"role": "assistant", "tool_calls": "x"}, ".tool_calls: must be a list"),
        ({"role": "assistant", "tool_calls": ["x"]}, ".tool_calls[0]: must be a mapping"),
        ({"role": "assistant", "tool_calls": [{"input": 1}]}, ".tool_calls[0].tool is required"),
        ({"role": "user", "content": "x", "name": 5}, ".name: must be a string"),
    ],
)
@pytest.mark.parametrize("key", ["input_messages", "expected_messages"])
def test_a_message_that_does_not_fit_is_an_error(tmp_path: Path, key: str, message: Any, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        only_test(tmp_path, **{key: [message]})
    assert said in str(raised.value)
    assert f"{key}[0]" in str(raised.value)


def test_data_with_a_role_of_its_own_is_told_where_to_go(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="put it under content"):
        only_test(tmp_path, expected_output={"role": "engineer", "name": "Jim"})


def file_part(path: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [{"type": "file", "value": path}]}]


def test_a_file_part_names_a_file_beside_the_suite(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x", encoding="utf-8")
    assert only_test(tmp_path, input=file_part("notes.txt")).question == ""


def test_a_missing_file_part_is_an_error_at_its_place(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"suite\.eval\.yaml:\d+:\d+: test 't': input: file 'none.txt' does not exist"
    ):
        only_test(tmp_path, input=file_part("none.txt"))


def test_a_file_part_may_stand_above_the_suite_in_the_repository(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "shared.txt").write_text("x", encoding="utf-8")
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    assert only_test(folder, input=file_part("shared.txt")).id == "t"
