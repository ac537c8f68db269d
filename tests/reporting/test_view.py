from collections.abc import Callable

import pytest

from persona_pipeline.base.status import Result
from persona_pipeline.guard.baselines.models import DimensionComparison
from persona_pipeline.guard.report import Finding, RunReport
from persona_pipeline.reporting.junit import render_junit
from persona_pipeline.reporting.text import format_delta, format_score, format_usd
from persona_pipeline.reporting.view import ReportView
from tests.reporting.sample import sample_report

NUMBERS: list[tuple[Callable[[float | None], str], dict[float | None, str]]] = [
    (format_delta, {-4.7: "−4.70", 0.1: "+0.10", 0.004: "±0", -0.004: "±0", None: "", -1.0000001: "−1.00"}),
    (format_usd, {None: "unknown", 0.0: "$0.00", 0.0042: "$0.0042", 0.0731: "$0.0731", 12.3: "$12.30"}),
    (format_score, {3.2: "3.20", None: "–"}),
]


@pytest.mark.parametrize(("written", "texts"), NUMBERS)
def test_numbers_are_written_alike(written: Callable[[float | None], str], texts: dict[float | None, str]) -> None:
    assert {value: written(value) for value in texts} == texts


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
    ("findings", "verdict"),
    [
        ([], Result.HELD),
        ([("threshold", 1)], Result.FELL),
        ([("coverage", 3)], Result.CANNOT_TELL),
        ([("budget", 4)], Result.CANNOT_TELL),
        ([("coverage", 3), ("threshold", 1)], Result.FELL),
    ],
    ids=["clean", "below the threshold", "coverage", "budget", "drift stands before coverage"],
)
def test_status(findings: list[tuple[str, int]], verdict: Result) -> None:
    report = sample_report(drifted=False)
    report.agents["jim"].findings = [Finding(kind=kind, exit_code=code, message="m") for kind, code in findings]
    assert next(row for row in ReportView(report).rows if row.agent_id == "jim").status is verdict.status


@pytest.mark.parametrize(
    ("report", "headline"),
    [
        (RunReport(exit_code=3), "No agent was evaluated"),
        (sample_report(), "2 in character, 1 drifted, 1 cannot be told"),
        (sample_report(drifted=False), "All 4 agents are in character"),
        (
            sample_report(drifted=False).model_copy(update={"exit_code": 4}),
            "All 4 agents are in character; it fails by what --fail-on names",
        ),
    ],
)
def test_headline(report: RunReport, headline: str) -> None:
    assert ReportView(report).headline == headline


def first_run(agents: int, new: int) -> RunReport:
    """Return a clean run in which the first agents have no baseline."""
    report = sample_report(drifted=False)
    report.agents = dict(list(report.agents.items())[:agents])
    for agent_id in list(report.agents)[:new]:
        agent = report.agents[agent_id]
        agent.findings = []
        for name, item in agent.comparison.dimensions.items():
            agent.comparison.dimensions[name] = DimensionComparison(
                dimension=name, status="no_baseline", current=item.current
            )
            agent.findings.append(
                Finding(
                    kind="no_baseline", exit_code=3, message=f"{agent_id}: {name}", agent_id=agent_id, dimension=name
                )
            )
    return report


def test_a_first_run_says_once_that_there_is_no_baseline_yet() -> None:
    view = ReportView(first_run(4, 4))
    assert [finding.message for finding in view.findings] == [
        "no baseline yet: the scores stand, and nothing is compared with them"
    ]
    assert "persona-pipeline baseline" in view.findings[0].remedy
    assert view.headline == "No baseline yet: 4 agents scored, nothing to compare with"
    assert {row.conclusion.verdict for row in view.rows} == {Result.CANNOT_TELL}


def test_a_trend_is_a_remark_and_no_failure() -> None:
    report = sample_report(drifted=False)
    trend = Finding(
        kind="trend", exit_code=0, message="jim: adherence has been falling", agent_id="jim", dimension="adherence"
    )
    report.agents["jim"].findings = [trend]
    row = next(row for row in ReportView(report).rows if row.agent_id == "jim")
    assert row.conclusion.verdict is Result.HELD
    junit = render_junit(report)
    assert "has been falling" in junit and "<failure" not in junit


def test_one_agent_without_a_baseline_is_named() -> None:
    view = ReportView(first_run(4, 1))
    first = view.rows[0].agent_id
    assert [finding.message for finding in view.findings] == [
        f"no baseline yet of {first}: the scores stand, and nothing is compared with them"
    ]
    assert f"--agents {first}" in view.findings[0].remedy
    assert view.headline == "3 in character, 1 cannot be told (no baseline yet)"


def test_a_score_carries_the_interval_of_its_change() -> None:
    row = next(row for row in ReportView(sample_report()).rows if row.agent_id == "michael")
    cell = row.cells[0]
    assert cell.interval and cell.score is not None
    assert cell.interval == pytest.approx((cell.score - 0.8, cell.score + 0.8))
    assert row.cells[2].interval is None
