"""A suite run as JUnit XML: a suite per dataset and target, a case per test."""

import xml.etree.ElementTree as ElementTree
from typing import cast

from junitparser import Error, Failure, JUnitXml, Properties, Property, TestCase, TestSuite

from persona_pipeline.reporting.text import xml_text
from persona_pipeline.suites.grading.grades import SuiteVerdict
from persona_pipeline.suites.results.suite_result import SuiteResult, TestResult, by_target, reason_of

_DECLARATION = '<?xml version="1.0" encoding="utf-8"?>\n'


def render_suite_junit(*results: SuiteResult) -> str:
    """Return JUnit XML: a failed test is a failure, one that could not be judged an error; borderline ones pass.

    Properties: of a suite its result in one of three words, of a test the digest of what its verdict rests on.
    """
    document = JUnitXml("persona-pipeline")
    parts = [item for result in results for item in (by_target(result) or {None: result}).items()]
    for target, part in parts:
        suite = TestSuite(_text(part.suite if target is None else f"{part.suite}@{target}"))
        suite.add_property("result", part.result or "nothing to run")
        if part.reason:
            suite.add_property("reason", _text(part.reason))
        for test in part.tests:
            suite.add_testcase(_case(test))
        if not part.tests and not part.unchanged:
            # A file without cases is green wherever it is read.
            nothing = TestCase("nothing was run", classname=_text(part.suite))
            nothing.result = [Error(_text(part.reason or "there are no tests"), "nothing_run")]
            suite.add_testcase(nothing)
        document.add_testsuite(suite)
    document.update_statistics()
    root = ElementTree.fromstring(cast(bytes, document.tostring()))
    ElementTree.indent(root)
    return _DECLARATION + ElementTree.tostring(root, encoding="unicode") + "\n"


def _case(test: TestResult) -> TestCase:
    duration = test.best.output.duration_ms if test.best.output else None
    case = TestCase(_text(test.test_id), classname=_text(test.dataset), time=(duration or 0) / 1000)
    if test.digest:
        properties = Properties()
        properties.add_property(Property("digest", test.digest))
        case.append(properties)
    if test.verdict is SuiteVerdict.ERROR:
        error = Error(_text(str(test.error)), test.error.reason if test.error else "error")
        case.result = [error]
    elif test.verdict is SuiteVerdict.FAIL:
        failure = Failure(_text(f"score {test.score:.3f}"), "fail")
        failure.text = _text(reason_of(test))
        case.result = [failure]
    if test.best.output:
        case.system_out = _text(test.best.output.text)
    return case


def _text(text: str) -> str:
    return xml_text(text)
