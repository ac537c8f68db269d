"""A judge that looks through the workspace."""

import json
from pathlib import Path
from typing import Any

import pytest

from persona_pipeline.suites import Output, UngradedError
from persona_pipeline.suites.answering.output import parse_output
from persona_pipeline.suites.asserts.agent_judge import look
from tests.suites.asserts.test_judged import CRITERIA, FREEFORM, checks
from tests.suites.support import judged, write

ITEM = {"type": "agent_judge", "prompt": "Is the price list complete?", "max_steps": 2}
CHECKING = {"type": "agent_judge", "rubrics": CRITERIA}


def workspace(folder: Path) -> Output:
    write(folder / "w", {"prices.csv": "item,price\npaper,4\n", "deep/notes.txt": "nothing", ".git/config": "x"})
    (folder / "outside.txt").write_text("secret", encoding="utf-8")
    (folder / "w" / "link").symlink_to(folder / "outside.txt")
    output = parse_output("done")
    output.workspace = str(folder / "w")
    return output


def step(action: str, path: str = "", pattern: str = "", result: Any = None) -> dict[str, Any]:
    return {"reasoning": "r", "action": action, "path": path, "pattern": pattern, "result": result}


def test_it_looks_and_then_decides(tmp_path: Path) -> None:
    plan = [step("list_files", "."), step("read_file", "prices.csv"), step("finish", result=FREEFORM)]
    found, asked = judged(
        tmp_path, ITEM, lambda question: plan[len(json.loads(question.evidence)["steps"])], workspace(tmp_path)
    )
    assert found.score == 0.7
    steps = json.loads(asked[-1].evidence)["steps"]
    assert steps[0]["found"] == {"names": ["deep/", "link", "prices.csv"], "cut": False}
    assert steps[1]["found"]["text"].startswith("item,price")
    assert [json.loads(question.evidence)["steps_left"] for question in asked] == [2, 1, 0]


@pytest.mark.parametrize(
    ("action", "path", "pattern", "found"),
    [
        ("read_file", "../outside.txt", "", "'../outside.txt' lies outside the workspace"),
        ("read_file", "link", "", "'link' lies outside the workspace"),
        ("read_file", "/etc/passwd", "", "'/etc/passwd' is no file"),
        ("read_file", "a\0b", "", "'a\\x00b' cannot be used (ValueError)"),
        ("search_files", ".", "pap.r", [{"path": "prices.csv", "line": 2, "text": "paper,4"}]),
        ("search_files", ".", "(", "is not a valid regular expression"),
        ("list_files", "none", "", "'none' is no folder"),
    ],
)
def test_its_tools_only_read_inside_the_workspace(
    tmp_path: Path, action: str, path: str, pattern: str, found: Any
) -> None:
    workspace(tmp_path)
    result = look(tmp_path / "w", action, path, pattern)
    if isinstance(found, str):
        assert result["error"].startswith(found)
    else:
        assert result == {"matches": found, "cut": False}


def test_it_may_check_criteria(tmp_path: Path) -> None:
    reply = step("finish", result=checks(("a", True), ("b", False)))
    assert judged(tmp_path, CHECKING, reply, workspace(tmp_path))[0].score == 0.75


@pytest.mark.parametrize(
    ("item", "reply", "said"),
    [
        (ITEM, step("list_files"), "after 2 steps"),
        (CHECKING, step("finish", result=checks(("a", True))), "invalid_output"),
    ],
    ids=["it never decides", "a criterion is left out"],
)
def test_what_is_no_decision_is_an_error(tmp_path: Path, item: dict[str, Any], reply: Any, said: str) -> None:
    with pytest.raises(UngradedError, match=said):
        judged(tmp_path, item, reply, workspace(tmp_path))


def test_without_a_workspace_it_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UngradedError, match="no_workspace"):
        judged(tmp_path, ITEM, step("list_files"))
