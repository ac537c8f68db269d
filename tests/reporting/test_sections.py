from typing import Any

import pytest

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.guard.report import RunReport
from persona_pipeline.reporting.pages.browser import whole_page
from persona_pipeline.reporting.statistics import Statistics, corrections
from persona_pipeline.suites.grading.results import (
    AssertResult,
    Attempt,
    Failure,
    SuiteResult,
    SuiteVerdict,
    TestResult,
)
from persona_pipeline.suites.running.history import summary_of
from tests.reporting.sample import sample_report


def test_history_is_in_time_order() -> None:
    report = sample_report()
    report.statistics["history"]["jim"].reverse()
    ends = [point.window_end for point in Statistics.of(report).history["jim"]]
    assert ends == sorted(ends) and len(ends) == 13


def test_a_run_without_statistics_has_no_sections() -> None:
    empty = RunReport()
    assert Statistics.of(empty) == Statistics() and corrections(empty) is None


def test_one_voice_is_no_map() -> None:
    page = whole_page(RunReport(statistics={"voice_map": {"agents": {"jim": {}}}}))
    assert "voices" not in [section.id for section in page.sections]


@pytest.mark.parametrize(
    ("key", "value", "place"),
    [
        ("history", {"jim": [{"overall": 8}]}, "history.jim.0.window_end"),
        ("voice_map", {"pairs": [{"a": "jim"}]}, "voice_map.pairs.0.b"),
        ("suites", [{"verdict": "pass"}], "suites.0.suite"),
        ("corrections", {"total": {"actions": "many"}}, "corrections.total.actions"),
        ("voice_map", {"pairs": [{"a": "x", "b": "y", "characters": float("nan")}]}, "voice_map.pairs.0.characters"),
    ],
)
def test_malformed_statistics_are_an_error_that_names_the_place(key: str, value: Any, place: str) -> None:
    report = RunReport(statistics={key: value})
    with pytest.raises(ConfigError, match=f"statistics.{place}"):
        whole_page(report)


def suite_test(
    name: str, verdict: SuiteVerdict, score: float | None, *results: AssertResult, target: str
) -> TestResult:
    return TestResult(name, name, score, verdict, Attempt(1, score, verdict, results), target=target)


def test_a_suite_is_summarised_by_what_did_not_pass() -> None:
    missed = AssertResult("greets", "contains", 0.0, 1.0, SuiteVerdict.FAIL, misses=("no 'hello'",))
    met = AssertResult("polite", "llm_judge", 1.0, 1.0, SuiteVerdict.PASS, hits=("says please",))
    broken = AssertResult("judge", "llm_judge", None, 1.0, SuiteVerdict.ERROR, error=Failure("timeout", "60 s"))
    tests = [
        suite_test("good", SuiteVerdict.PASS, 1.0, met, target="a"),
        suite_test("bad", SuiteVerdict.FAIL, 0.5, met, missed, target="a"),
        suite_test("stuck", SuiteVerdict.ERROR, None, broken, target="a"),
    ]
    part = summary_of("a", SuiteResult("michael", "suites/michael.eval.yaml", tests))
    (summary,) = Statistics.of(RunReport(statistics={"suites": [part]})).suites
    assert (summary.verdict, summary.score, summary.target) == ("error", None, "a")
    assert summary.tests == {"pass": 1, "borderline": 0, "fail": 1, "error": 1}
    assert [(item.id, item.reason) for item in summary.failures] == [
        ("bad", "greets: no 'hello'"),
        ("stuck", "timeout: judge: 60 s"),
    ]
