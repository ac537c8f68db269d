"""``max_usd`` counts judge and targets together."""

from pathlib import Path
from typing import Any

import pytest

from persona_pipeline.suites import run_suite
from persona_pipeline.suites.grading.suite_judge import SuiteJudge
from tests.suites.support import load

FIVE = "tests:\n" + "".join(
    f"  - {{id: t{number}, input: hi, assert: [{{type: contains, value: ok}}]}}\n" for number in range(5)
)


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
