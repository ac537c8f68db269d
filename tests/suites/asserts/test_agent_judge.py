"""A judge that looks through the workspace."""

import json
from pathlib import Path
from typing import Any, ClassVar

import pytest

from persona_pipeline.suites import Output, UngradedError
from persona_pipeline.suites.answering.output import parse_output
from tests.suites.asserts.test_judged import CRITERIA, FREEFORM, checks
from tests.suites.support import grade, judging, write


class TestAgentJudge:
    ITEM: ClassVar = {"type": "agent_judge", "prompt": "Is the price list complete?", "max_steps": 2}

    def workspace(self, folder: Path) -> Output:
        write(folder / "w", {"prices.csv": "item,price\npaper,4\n", "deep/notes.txt": "nothing", ".git/config": "x"})
        (folder / "outside.txt").write_text("secret", encoding="utf-8")
        (folder / "w" / "link").symlink_to(folder / "outside.txt")
        output = parse_output("done")
        output.workspace = str(folder / "w")
        return output

    def reply(self, action: str, path: str = "", pattern: str = "", result: Any = None) -> dict[str, Any]:
        return {"reasoning": "r", "action": action, "path": path, "pattern": pattern, "result": result}

    def test_it_looks_and_then_decides(self, tmp_path: Path) -> None:
        plan = [
            self.reply("list_files", "."),
            self.reply("read_file", "prices.csv"),
            self.reply("finish", result=FREEFORM),
        ]
        with judging(lambda question: plan[len(json.loads(question.evidence)["steps"])]) as (services, judge):
            assert grade(tmp_path, self.ITEM, self.workspace(tmp_path), services=services).score == 0.7
        steps = json.loads(judge.backend.asked[-1].evidence)["steps"]
        assert steps[0]["found"] == {"names": ["deep/", "link", "prices.csv"], "cut": False}
        assert steps[1]["found"]["text"].startswith("item,price")
        assert [json.loads(question.evidence)["steps_left"] for question in judge.backend.asked] == [2, 1, 0]

    @pytest.mark.parametrize(
        ("action", "path", "pattern", "found"),
        [
            ("read_file", "../outside.txt", "", {"error": "'../outside.txt' lies outside the workspace"}),
            ("read_file", "link", "", {"error": "'link' lies outside the workspace"}),
            ("read_file", "/etc/passwd", "", {"error": "'/etc/passwd' is no file"}),
            ("read_file", "a\0b", "", {"error": "'a\\x00b' cannot be used (ValueError)"}),
            (
                "search_files",
                ".",
                "pap.r",
                {"matches": [{"path": "prices.csv", "line": 2, "text": "paper,4"}], "cut": False},
            ),
            ("search_files", ".", "(", {"error": "is not a valid regular expression"}),
            ("list_files", "none", "", {"error": "'none' is no folder"}),
        ],
    )
    def test_its_tools_only_read_inside_the_workspace(
        self, tmp_path: Path, action: str, path: str, pattern: str, found: dict[str, Any]
    ) -> None:
        from persona_pipeline.suites.asserts.agent_judge import look

        self.workspace(tmp_path)
        result = look(tmp_path / "w", action, path, pattern)
        if "error" in found:
            assert result["error"].startswith(found["error"])
        else:
            assert result == found

    def test_a_judge_that_never_decides_is_an_error(self, tmp_path: Path) -> None:
        with (
            judging(lambda question: self.reply("list_files")) as (services, judge),
            pytest.raises(UngradedError, match="after 2 steps"),
        ):
            grade(tmp_path, self.ITEM, self.workspace(tmp_path), services=services)
        assert len(judge.backend.asked) == 3

    def test_it_may_check_criteria(self, tmp_path: Path) -> None:
        item = {"type": "agent_judge", "rubrics": CRITERIA}
        result = checks(("a", True), ("b", False))
        with judging(lambda question: self.reply("finish", result=result)) as (services, _):
            assert grade(tmp_path, item, self.workspace(tmp_path), services=services).score == 0.75

    def test_a_result_that_leaves_a_criterion_out_is_an_error(self, tmp_path: Path) -> None:
        item = {"type": "agent_judge", "rubrics": CRITERIA}
        with (
            judging(lambda question: self.reply("finish", result=checks(("a", True)))) as (services, _),
            pytest.raises(UngradedError, match="invalid_output"),
        ):
            grade(tmp_path, item, self.workspace(tmp_path), services=services)

    def test_without_a_workspace_it_is_an_error(self, tmp_path: Path) -> None:
        with judging() as (services, _), pytest.raises(UngradedError, match="no_workspace"):
            grade(tmp_path, self.ITEM, "x", services=services)
