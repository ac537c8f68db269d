"""The full report of those in a cohort to look at."""

from collections.abc import Sequence

from persona_pipeline.defs.agents.verdicts import MOST_LISTED, AgentLine, compared_lines
from persona_pipeline.evaluation.gate import nothing_evaluated, weighed
from persona_pipeline.evaluation.history import load_run
from persona_pipeline.evaluation.report import (
    Conclusion,
    Finding,
    Result,
    RunReport,
    worst_exit_code,
)
from persona_pipeline.reporting.statistics import gather
from persona_pipeline.world import World

# In the folder of the reports.
COHORT_REPORTS = "cohort"


def newest_lines(world: World, agent_ids: Sequence[str], fail_on: Sequence[str] | None) -> list[AgentLine]:
    """Return how each agent did when it was last compared with its baseline; one that never was is not fully judged."""
    compared = {line.agent_id: line for line in compared_lines(world, fail_on)}
    return [compared.get(agent_id) or _never_compared(agent_id, fail_on) for agent_id in agent_ids]


def _never_compared(agent_id: str, fail_on: Sequence[str] | None) -> AgentLine:
    finding = Finding(
        kind="coverage",
        message=f"{agent_id} was never compared with its baseline",
        remedy="materialize baseline_comparisons, or run evaluate_cohort",
        command="dagster job execute -m persona_pipeline.definitions -j evaluate_cohort",
        agent_id=agent_id,
    )
    told = Conclusion(verdict=Result.CANNOT_TELL, reason=finding.message, command=finding.command)
    return AgentLine(agent_id=agent_id, conclusion=told, findings=weighed([finding], fail_on))


def report_of_interest(world: World, lines: Sequence[AgentLine], fail_on: Sequence[str] | None) -> RunReport:
    """Return the full report of the agents with findings, filled up with others: a page of 50 can be read, one of 1,000 cannot."""
    report = RunReport()
    for line in sorted(lines, key=lambda line: not line.findings)[:MOST_LISTED]:
        run = load_run(world.store, line.run_id) if line.run_id else None
        if run and run.report:
            report.agents[line.agent_id] = run.report
    report.findings = nothing_evaluated(report.agents.values())
    report.expenses = [expense for item in report.agents.values() for expense in item.expenses]
    report.exit_code = worst_exit_code({finding.exit_code for finding in weighed(report.all_findings(), fail_on)})
    return gather(world, report)
