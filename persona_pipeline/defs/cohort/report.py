"""The full report of those in a cohort to look at."""

from collections.abc import Sequence

from persona_pipeline.defs.agents.together import newest_reports
from persona_pipeline.defs.agents.verdicts import MOST_LISTED, AgentLine, agent_line
from persona_pipeline.evaluation.gate import nothing_evaluated
from persona_pipeline.evaluation.report import (
    EXIT_COVERAGE,
    AgentReport,
    Finding,
    RunReport,
    report_expenses,
    worst_exit_code,
)
from persona_pipeline.evaluation.saving import load_evaluation
from persona_pipeline.evaluation.steps import load_comparison
from persona_pipeline.evaluation.voices import voice_statistics
from persona_pipeline.world import World
from persona_pipeline.world.models import Window

COHORT_REPORTS = ".persona/reports/cohort"


def newest_lines(world: World, agent_ids: Sequence[str]) -> list[AgentLine]:
    """Return how each agent did when it was last compared with its baseline; one that never was is not fully judged."""
    reports = newest_reports(world, agent_ids)
    return [
        agent_line(reports[agent_id])
        if agent_id in reports
        else AgentLine(agent_id=agent_id, findings=[_never_compared(agent_id)])
        for agent_id in agent_ids
    ]


def _never_compared(agent_id: str) -> Finding:
    return Finding(
        kind="coverage",
        exit_code=EXIT_COVERAGE,
        message=f"{agent_id} was never compared with its baseline",
        remedy="materialize baseline_comparisons, or run evaluate_cohort",
        agent_id=agent_id,
    )


def report_of_interest(world: World, lines: Sequence[AgentLine]) -> RunReport:
    """Return the full report of the agents with findings, filled up with others: a page of 50 can be read, one of 1,000 cannot."""
    report = RunReport()
    for line in sorted(lines, key=lambda line: not line.findings)[:MOST_LISTED]:
        evaluation = load_evaluation(world.store, line.run_id) if line.run_id else None
        compared = load_comparison(world, line.run_id) if line.run_id else None
        if evaluation and compared:
            comparison, findings = compared
            report.agents[line.agent_id] = AgentReport(evaluation=evaluation, comparison=comparison, findings=findings)
    report.findings = nothing_evaluated(report.agents.values())
    report.expenses = report_expenses(report.agents)
    report.exit_code = worst_exit_code({finding.exit_code for finding in report.all_findings()})
    if report.agents:
        newest = max((item.evaluation for item in report.agents.values()), key=lambda item: item.window_end)
        window = Window(end=newest.window_end, start=newest.window_start)
        report.statistics["voice_map"] = voice_statistics(world, list(report.agents), window)
    return report
