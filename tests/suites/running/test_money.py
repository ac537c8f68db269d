"""``max_usd`` counts judge and targets together."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from persona_pipeline.judging.verdict import UNKNOWN_USAGE, Answer, Question
from persona_pipeline.suites import run_suite
from persona_pipeline.suites.grading.suite_judge import SuiteJudge
from persona_pipeline.suites.running.suite_run import joined
from persona_pipeline.testing.judges import ScriptedJudge
from tests.suites.support import load

FIVE = "tests:\n" + "".join(
    f"  - {{id: t{number}, input: hi, assert: [{{type: contains, value: ok}}]}}\n" for number in range(5)
)


class Unpriced(ScriptedJudge):
    """A judge whose calls have no known price."""

    async def ask(self, questions: Sequence[Question]) -> list[Answer]:
        return [replace(answer, usage=UNKNOWN_USAGE) for answer in await super().ask(questions)]


def test_a_judge_without_a_known_price_judges_suites_and_leaves_their_dollars_unknown(tmp_path: Path) -> None:
    text = "tests:\n- {id: a, input: hi, criteria: It greets}\n"
    suites, results = [], []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        suites.append(load(tmp_path / name, text))
        results.append(run_suite(suites[-1], targets=lambda _: "hello", judge=Unpriced(lambda _: 9)))
    whole = joined(suites, results)
    assert [result.usage["usd"] for result in results] == [None, None] and whole.usage["usd"] is None
    assert whole.usage["calls"] == 2


@pytest.mark.parametrize(
    ("answer", "answered", "code", "warned"),
    [
        ({"text": "ok", "cost_usd": 0.4}, 3, 4, False),
        ({"text": "ok", "cost_usd": 0.1}, 5, 0, False),
        ("ok", 5, 0, True),
    ],
    ids=["over the limit", "below it", "not reported"],
)
def test_what_targets_report_is_counted(tmp_path: Path, answer: Any, answered: int, code: int, warned: bool) -> None:
    result = run_suite(load(tmp_path, FIVE), targets=lambda prompt: answer, judge=SuiteJudge(None, max_usd=1.0))
    assert (sum(test.verdict == "pass" for test in result.tests), result.exit_code) == (answered, code)
    assert {test.error.reason for test in result.tests if test.error} <= {"budget"}
    assert any("did not report what its answers cost" in line for line in result.warnings) == warned
