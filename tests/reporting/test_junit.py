import xml.etree.ElementTree as ElementTree

from persona_pipeline.guard.report import Finding, RunReport
from persona_pipeline.reporting.junit import render_junit
from tests.reporting.sample import sample_report


def cases(report: RunReport) -> dict[tuple[str, str], list[ElementTree.Element]]:
    """Return each case's results by (class, name), read by a strict parser."""
    root = ElementTree.fromstring(render_junit(report).encode("utf-8"))
    return {
        (case.get("classname", ""), case.get("name", "")): [child for child in case if child.tag != "system-out"]
        for case in root.iter("testcase")
    }


def test_golden(report: RunReport, golden) -> None:
    golden("junit.xml", render_junit(report))


def test_a_case_for_each_agent_and_dimension(report: RunReport) -> None:
    found = cases(sample_report(drifted=False))
    assert len(found) == 4 * 5 and not any(found.values())


def test_a_missing_judgment_is_an_error_even_when_the_gate_lets_it_pass(report: RunReport) -> None:
    report.agents["pam"].findings.clear()
    (error,) = cases(report)["persona.pam", "adherence"]
    assert error.tag == "error" and "pam-self-centred: not recorded" in (error.get("message") or "")


def test_a_dimension_without_evidence_is_skipped(report: RunReport) -> None:
    consistency = report.agents["jim"].evaluation.dimensions["consistency"]
    consistency.score, consistency.unscored, consistency.propositions = None, "no_evidence", {}
    report.agents["jim"].comparison.dimensions.pop("consistency")
    (skipped,) = cases(report)["persona.jim", "consistency"]
    assert (skipped.tag, skipped.get("message")) == ("skipped", "no evidence")


def test_findings_of_no_dimension_have_cases(report: RunReport) -> None:
    low = Finding(kind="threshold", exit_code=1, message="overall 4 is below 5", agent_id="jim")
    report.agents["jim"].findings.append(low)
    report.findings.append(Finding(kind="nothing_evaluated", exit_code=3, message="nothing"))
    found = cases(report)
    assert found["persona.jim", "threshold"][0].tag == "failure"
    assert found["persona.run", "nothing_evaluated"][0].tag == "error"


def test_text_that_xml_cannot_hold_is_replaced(report: RunReport) -> None:
    report.findings.append(Finding(kind="threshold", exit_code=1, message="a\x00b\x1b\ufffe\ud800<&>\"']]>"))
    (failure,) = cases(report)["persona.run", "threshold"]
    assert failure.get("message") == "a\ufffdb\ufffd\ufffd\ufffd<&>\"']]>"
