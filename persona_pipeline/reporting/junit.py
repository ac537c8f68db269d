"""JUnit XML: of a run a suite an agent and a case a dimension and a dropped claim; of eval suites a case a test.

Characters XML cannot hold become U+FFFD.
"""

import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from junitparser import Error, Failure, JUnitXml, Properties, Property, Skipped, TestCase, TestSuite

from persona_pipeline.base.status import status_of
from persona_pipeline.guard.report import Conclusion, Finding, RunReport
from persona_pipeline.judging.verdict import unscored_label
from persona_pipeline.reporting.text import format_delta, format_score, xml_text
from persona_pipeline.reporting.view import AgentRow, ReportView, ScoreCell
from persona_pipeline.scoring.results import ANSWERS

if TYPE_CHECKING:
    from persona_pipeline.suites.grading.results import SuiteResult
    from persona_pipeline.suites.grading.results import TestResult as SuiteTest

_KINDS = {"failure": Failure, "error": Error, "skipped": Skipped}
_DECLARATION = '<?xml version="1.0" encoding="utf-8"?>\n'


def render_junit(report: RunReport) -> str:
    """Return JUnit XML: a drop is a failure, an inconclusive result an error. A dimension without evidence, or with only a warning
    (which is printed), is skipped. Findings about the whole run are in a suite named ``run``.
    """
    view = ReportView(report)
    document = JUnitXml("persona-pipeline")
    for row in view.rows:
        suite = TestSuite(xml_text(row.agent_id))
        suite.add_property("verdict", row.status.name)
        if view.terms:
            suite.add_property("terms", xml_text("; ".join(view.terms)))
        for case in _cases(row):
            suite.add_testcase(case)
        document.add_testsuite(suite)
    if report.findings:
        suite = TestSuite("run")
        for finding in report.findings:
            found = _result(_kind(finding), finding.kind, finding.text)
            suite.add_testcase(_case("persona.run", finding.kind, found))
        document.add_testsuite(suite)
    return _document(document)


def _document(document: JUnitXml) -> str:
    document.update_statistics()
    root = ElementTree.fromstring(cast(bytes, document.tostring()))
    ElementTree.indent(root)
    return _DECLARATION + ElementTree.tostring(root, encoding="unicode") + "\n"


def _cases(row: AgentRow) -> Iterator[TestCase]:
    named = set()
    for cell in row.cells:
        findings = [finding for finding in row.report.findings if finding.dimension == cell.dimension]
        named.update(id(finding) for finding in findings)
        if cell.evaluation or cell.comparison:
            yield _dimension_case(row, cell, findings)
        for drop in cell.drops:
            details = "\n".join(filter(None, (drop.claim, drop.recommendation)))
            fell = _result(Failure, "proposition_drop", _fall(drop.baseline, drop.current, drop.delta), details)
            yield _case(_class(row), f"{drop.dimension}/{drop.proposition_id}", fell)
    for finding in row.report.findings:
        if id(finding) not in named:
            yield _case(_class(row), finding.kind, _result(_kind(finding), finding.kind, finding.text))


def _dimension_case(row: AgentRow, cell: ScoreCell, findings: list[Finding]) -> TestCase:
    results = []
    if cell.status == "regressed":
        results.append(_result(Failure, "regression", _fall(cell.baseline, cell.score, cell.delta)))
    for finding in findings:
        if finding.kind not in ("regression", "proposition_drop"):
            results.append(_result(_kind(finding), finding.kind, finding.text))
    failures = cell.evaluation.failures if cell.evaluation else {}
    if failures and not any(isinstance(result, Error) for result in results):
        missing = ", ".join(f"{key}: {unscored_label(item.unscored)}" for key, item in failures.items())
        results.append(_result(Error, "coverage", f"{len(failures)} claims were not judged: {missing}"))
    if not results and cell.score is None:
        reason = cell.evaluation.unscored if cell.evaluation else None
        kind = Skipped if reason is None or reason in ANSWERS else Error
        results.append(_result(kind, reason or "not_evaluated", unscored_label(reason)))
    case = _case(_class(row), cell.dimension, *results)
    case.system_out = xml_text(
        f"{(cell.conclusion or Conclusion()).status.word}: score {format_score(cell.score)}, "
        f"baseline {format_score(cell.baseline)}, judged {cell.n_scored}/{cell.n_expected}"
    )
    return case


def _case(classname: str, name: str, *results: Failure | Error | Skipped) -> TestCase:
    case = TestCase(xml_text(name), classname=xml_text(classname))
    case.result = list(results)
    return case


def _kind(finding: Finding) -> type:
    # A warning is printed without failing the case.
    return _KINDS[status_of(finding.exit_code).junit or "skipped"]


def _result(kind: type, type_: str, message: str, text: str = "") -> Failure | Error | Skipped:
    result = kind(xml_text(message), xml_text(type_))
    if text:
        result.text = xml_text(text)
    return result


def _fall(baseline: float | None, current: float | None, delta: float | None) -> str:
    return f"dropped from {format_score(baseline)} to {format_score(current)} ({format_delta(delta)})"


def _class(row: AgentRow) -> str:
    return f"persona.{row.agent_id}"


def render_suite_junit(*results: "SuiteResult") -> str:
    """Return JUnit XML: a failed test is a failure, one that could not be judged an error; borderline ones pass.

    Properties of a suite: its result in one of three words. Properties of a test: the digest of its verdict's inputs, and
    how often its attempts differ, with the 95 % interval.
    """
    # Here, because loading the suites takes a quarter of a second that few runs need.
    from persona_pipeline.suites.grading.results import by_target

    document = JUnitXml("persona-pipeline")
    parts = [item for result in results for item in (by_target(result) or {None: result}).items()]
    for target, part in parts:
        suite = TestSuite(xml_text(part.suite if target is None else f"{part.suite}@{target}"))
        suite.add_property("result", part.result or "nothing to run")
        if part.reason:
            suite.add_property("reason", xml_text(part.reason))
        for test in part.tests:
            suite.add_testcase(_test_case(test))
        if not part.tests and not part.unchanged:
            # A file without cases is green wherever it is read.
            why = _result(Error, "nothing_run", part.reason or "there are no tests")
            suite.add_testcase(_case(part.suite, "nothing was run", why))
        document.add_testsuite(suite)
    return _document(document)


def _test_case(test: "SuiteTest") -> TestCase:
    from persona_pipeline.suites.grading.results import SuiteVerdict, reason_of

    duration = test.best.output.duration_ms if test.best.output else None
    case = TestCase(xml_text(test.test_id), classname=xml_text(test.dataset), time=(duration or 0) / 1000)
    rate = (test.aggregation or {}).get("flake_rate")
    told = {
        "digest": test.digest,
        "flake_rate": rate and f"{rate['value']:.3f} ({rate['low']:.3f} to {rate['high']:.3f})",
    }
    if any(told.values()):
        properties = Properties()
        for name, value in told.items():
            if value:
                properties.add_property(Property(name, value))
        case.append(properties)
    if test.verdict is SuiteVerdict.ERROR:
        case.result = [_result(Error, test.error.reason if test.error else "error", str(test.error))]
    elif test.verdict is SuiteVerdict.FAIL:
        case.result = [_result(Failure, "fail", f"score {test.score:.3f}", reason_of(test))]
    if test.best.output:
        case.system_out = xml_text(test.best.output.text)
    return case
