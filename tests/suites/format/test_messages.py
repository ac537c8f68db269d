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


@pytest.mark.parametrize(
    ("given", "content"),
    [
        ({"input": "alias", "input_messages": [{"role": "user", "content": "canonical"}]}, ["canonical"]),
        ({"input": "", "criteria": "c"}, [""]),
    ],
)
def test_input(tmp_path: Path, given: dict[str, Any], content: list[str]) -> None:
    assert [message["content"] for message in only_test(tmp_path, **given).input_messages] == content


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"role": "user", "content": "x"}, [{"role": "user", "content": "x"}]),
        (["a", 2], [{"role": "assistant", "content": ["a", 2]}]),
        ([], []),
    ],
)  # fmt: skip
def test_expected_output(tmp_path: Path, given: Any, expected: list[Any]) -> None:
    assert list(only_test(tmp_path, expected_output=given).expected_messages) == expected


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("text", "must be a message"),
        ({"content": "x"}, "role is required, one of system, user, assistant, tool"),
        ({"role": "robot", "content": "x"}, "role must be one of system, user, assistant, tool, not 'robot'"),
        ({"role": "user"}, "content is required"),
        ({"role": "assistant"}, "content or tool_calls is required"),
        ({"role": "user", "content": 5}, "content must be a string, a mapping or a list of parts"),
        ({"role": "user", "content": ["a"]}, "content must be a string, a mapping or a list of parts"),
        ({"role": "assistant", "tool_calls": "x"}, "tool_calls must be a list"),
        ({"role": "assistant", "tool_calls": ["x"]}, "tool_calls[0] must be a mapping with tool"),
        ({"role": "assistant", "tool_calls": [{"input": 1}]}, "tool_calls[0]: tool is required"),
        ({"role": "user", "content": "x", "name": 5}, "name must be a string"),
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


def test_extra_keys_of_messages_and_calls_are_kept(tmp_path: Path) -> None:
    message = {"role": "assistant", "content": "x", "id": "m1", "tool_calls": [{"tool": "a", "why": "b"}]}
    assert only_test(tmp_path, expected_messages=[message]).expected_messages == (message,)


def test_the_question_is_all_text_on_one_line(tmp_path: Path) -> None:
    messages = [
        {"role": "system", "content": "  Be brief.\n"},
        {"role": "user", "content": [{"type": "text", "value": " one "}, {"type": "text", "value": "  "}]},
        {"role": "user", "content": {"k": 1}},
    ]
    assert only_test(tmp_path, input=messages).question == 'Be brief. one {\n  "k": 1\n}'


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([{"role": "assistant", "content": {"k": 1.0}}], '{\n  "k": 1.0\n}'),
        ([{"role": "assistant", "tool_calls": [{"tool": "a"}]}], '[\n  {\n    "tool": "a"\n  }\n]'),
    ],
    ids=["data as JSON", "tool calls where there is no content"],
)
def test_the_reference_answer(tmp_path: Path, messages: list[Any], expected: str) -> None:
    assert only_test(tmp_path, expected_messages=messages).reference_answer == expected


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
