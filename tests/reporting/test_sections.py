from persona_pipeline.guard.report import RunReport
from persona_pipeline.reporting.pages.browser import whole_page
from persona_pipeline.suites.grading.results import (
    AssertResult,
    Attempt,
    Failure,
    SuiteResult,
    SuiteVerdict,
    TestResult,
)
from persona_pipeline.suites.running.history import summary_of


def test_one_voice_is_no_map() -> None:
    page = whole_page(RunReport(statistics={"voice_map": {"agents": {"jim": {}}}}))
    assert "voices" not in [section.id for section in page.sections]


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
    summary = summary_of("a", SuiteResult("michael", "suites/michael.eval.yaml", tests))
    assert (summary["verdict"], summary["score"], summary["target"]) == ("error", None, "a")
    assert summary["tests"] == {"pass": 1, "borderline": 0, "fail": 1, "error": 1}
    assert "suites" in [section.id for section in whole_page(RunReport(statistics={"suites": [summary]})).sections]
    assert [(item["id"], item["reason"]) for item in summary["failures"]] == [
        ("bad", "greets: no 'hello'"),
        ("stuck", "timeout: judge: 60 s"),
    ]
