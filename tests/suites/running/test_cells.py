"""Trying again, and answering from earlier answers."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from persona_pipeline.base.settings import Settings
from persona_pipeline.suites import RunOptions, Suite, SuiteResult, run_suite
from persona_pipeline.suites.targets import TargetError
from tests.suites.support import Answering, Given, load, suite_of, target, three, verdicts


@pytest.mark.parametrize(
    ("transient", "retries", "asked"),
    [(True, 2, 3), (True, 0, 1), (False, 2, 1)],
    ids=["what can pass is tried again", "unless nobody wants that", "what cannot pass is not"],
)
def test_only_what_can_pass_is_tried_again(
    tmp_path: Path, transient: bool, retries: int, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    suite, options = suite_of(tmp_path, {"type": "contains", "value": "ok"}), RunOptions(max_retries=retries)
    failure = TargetError("timeout", "slow", transient=transient)
    failing = target(lambda request: failure)
    assert verdicts(run_suite(suite, targets=Given.of(failing), options=options)) == {"t": "error"}
    assert len(failing.asked) == asked
    answers = iter([failure, "ok"])
    later = run_suite(suite, targets=Given.of(target(lambda request: next(answers))), options=options)
    assert verdicts(later) == {"t": "pass" if asked > 1 else "error"}


class TestCache:
    def cached(self, suite: Suite, answering: Answering, folder: Path, **options: Any) -> SuiteResult:
        return run_suite(
            suite,
            targets=Given.of(answering),
            options=RunOptions(cache=options.pop("cache", True), settings=Settings(state=folder), **options),
        )

    def test_an_answer_is_asked_for_once(self, tmp_path: Path) -> None:
        suite, answering = three(tmp_path), target()
        self.cached(suite, answering, tmp_path)
        again = self.cached(suite, answering, tmp_path)
        assert len(answering.asked) == 3
        assert all(test.best.cached for test in again.tests)

    @pytest.mark.parametrize("change", ["target", "input", "file", "test id"])
    def test_whatever_can_change_the_answer_is_part_of_its_key(self, tmp_path: Path, change: str) -> None:
        (tmp_path / "f.txt").write_text("one", encoding="utf-8")

        def suite(**fields: Any) -> Suite:
            content = [{"type": "text", "value": "hi"}, {"type": "file", "value": "f.txt"}]
            given = {"id": "t", "input": [{"role": "user", "content": content}], **fields}
            return suite_of(tmp_path, {"type": "is_json"}, **given)

        answering = target()
        self.cached(suite(), answering, tmp_path)
        if change == "target":
            answering = target(version=2)
        if change == "file":
            (tmp_path / "f.txt").write_text("two", encoding="utf-8")
        changed = suite(**({"input": "ho"} if change == "input" else {"id": "u"} if change == "test id" else {}))
        before = len(answering.asked)
        self.cached(changed, answering, tmp_path)
        assert len(answering.asked) == before + 1

    def test_attempts_are_different_answers(self, tmp_path: Path) -> None:
        suite = suite_of(tmp_path, {"type": "is_json"}, execution={"trials": {"count": 3, "strategy": "mean"}})
        answering = target()
        self.cached(suite, answering, tmp_path)
        self.cached(suite, answering, tmp_path)
        assert answering.asked == ["t#0", "t#1", "t#2"]

    def test_failures_are_not_kept(self, tmp_path: Path) -> None:
        suite = suite_of(tmp_path, {"type": "is_json"})
        answering = target(lambda request: TargetError("refusal", "no"))
        self.cached(suite, answering, tmp_path)
        self.cached(suite, answering, tmp_path)
        assert len(answering.asked) == 2

    def test_a_broken_entry_is_a_miss(self, tmp_path: Path) -> None:
        suite, answering = suite_of(tmp_path, {"type": "is_json"}), target()
        self.cached(suite, answering, tmp_path)
        (entry,) = (tmp_path / "cache/suites").glob("*/*.json")
        entry.write_text('{"output_mess', encoding="utf-8")
        self.cached(suite, answering, tmp_path)
        assert len(answering.asked) == 2
        assert json.loads(entry.read_text(encoding="utf-8"))["output_messages"]

    @pytest.mark.parametrize(
        ("in_suite", "in_test", "option", "asked"),
        [("false", "", None, 2), ("true", "", None, 1), ("true", ", cache: false", None, 2), ("true", "", False, 2)],
        ids=["off", "on in the suite", "off in the test", "off by option"],
    )
    def test_who_decides(self, tmp_path: Path, in_suite: str, in_test: str, option: bool | None, asked: int) -> None:
        suite = load(
            tmp_path,
            f"execution: {{cache: {in_suite}}}\ntests:\n"
            f"  - {{id: t, input: hi, assert: [{{type: is_json}}], execution: {{target: default{in_test}}}}}\n",
        )
        answering = target()
        self.cached(suite, answering, tmp_path, cache=option)
        self.cached(suite, answering, tmp_path, cache=option)
        assert len(answering.asked) == asked
