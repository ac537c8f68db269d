import pytest

from persona_pipeline.evaluation.report import Finding, RunReport
from persona_pipeline.reporting.view import AgentStatus, ReportView, format_delta, format_score, format_usd
from tests.reporting.sample import sample_report


@pytest.mark.parametrize(
    ("value", "text"),
    [(-4.7, "−4.70"), (0.1, "+0.10"), (0.004, "±0"), (-0.004, "±0"), (None, ""), (-1.0000001, "−1.00")],
)
def test_format_delta(value: float | None, text: str) -> None:
    assert format_delta(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(None, "unknown"), (0.0, "$0.00"), (0.0042, "$0.0042"), (0.0731, "$0.0731"), (12.3, "$12.30")]
)
def test_format_usd(value: float | None, text: str) -> None:
    assert format_usd(value) == text


def test_format_score() -> None:
    assert (format_score(3.2), format_score(None), format_score(3.26, 1)) == ("3.20", "–", "3.3")


def test_rows_are_by_id_and_columns_in_the_order_of_the_dimensions() -> None:
    view = ReportView(sample_report())
    assert [row.agent_id for row in view.rows] == ["dwight", "jim", "michael", "pam"]
    assert view.dimensions == ["adherence", "consistency", "fluency", "convergence", "ideas_quantity"]


def test_overall_is_compared_with_the_mean_baseline_of_what_it_is_made_of() -> None:
    rows = {row.agent_id: row for row in ReportView(sample_report()).rows}
    # pam's adherence is unscored: its baseline stays out, and so does ideas_quantity.
    assert rows["pam"].overall_baseline == pytest.approx((7.5 + 8.4 + 6.6) / 3)
    assert rows["dwight"].overall_baseline == pytest.approx((8.1 + 7.6 + 7.9 + 7.2) / 4)


def test_without_one_of_the_baselines_overall_has_none() -> None:
    report = sample_report()
    report.agents["jim"].comparison.dimensions["fluency"].baseline = None
    assert next(row for row in ReportView(report).rows if row.agent_id == "jim").overall_delta is None


@pytest.mark.parametrize(
    ("findings", "status"),
    [
        ([], AgentStatus.OK),
        ([("threshold", 1)], AgentStatus.DRIFTED),
        ([("coverage", 3)], AgentStatus.INCOMPLETE),
        ([("budget", 4)], AgentStatus.INCOMPLETE),
        ([("coverage", 3), ("threshold", 1)], AgentStatus.DRIFTED),
    ],
    ids=["clean", "below the threshold", "coverage", "budget", "drift stands before coverage"],
)
def test_status(findings: list[tuple[str, int]], status: AgentStatus) -> None:
    report = sample_report(drifted=False)
    report.agents["jim"].findings = [Finding(kind=kind, exit_code=code, message="m") for kind, code in findings]
    assert next(row for row in ReportView(report).rows if row.agent_id == "jim").status is status


@pytest.mark.parametrize(
    ("report", "headline"),
    [
        (RunReport(exit_code=3), "No agent was evaluated"),
        (sample_report(), "1 of 4 agents drifted, 1 not fully judged"),
        (sample_report(drifted=False), "All 4 agents are in character"),
        (sample_report(drifted=False).model_copy(update={"exit_code": 4}), "Run failed: stopped by the budget"),
    ],
)
def test_headline(report: RunReport, headline: str) -> None:
    assert ReportView(report).headline == headline
