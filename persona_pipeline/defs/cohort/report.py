"""How a cohort did: an agent a line, and the full report of those to look at."""

from pydantic import BaseModel, Field

from persona_pipeline.evaluation.cohort import CohortResult
from persona_pipeline.evaluation.gate import nothing_evaluated
from persona_pipeline.evaluation.report import (
    EXIT_CONFIG,
    AgentReport,
    Finding,
    RunReport,
    report_expenses,
    worst_exit_code,
)
from persona_pipeline.evaluation.saving import load_evaluation
from persona_pipeline.evaluation.steps import load_comparison
from persona_pipeline.evaluation.voices import voice_statistics
from persona_pipeline.reporting.text import markdown_code, markdown_text
from persona_pipeline.reporting.view import format_score
from persona_pipeline.world import World
from persona_pipeline.world.models import Window

MOST_LISTED = 50


class AgentLine(BaseModel):
    """One agent in a few words. ``broken``: why it could not be evaluated, ``file:line:column: what to do``."""

    agent_id: str
    overall: float | None = None
    run_id: str | None = None
    findings: list[Finding] = Field(default_factory=list)
    broken: list[str] = Field(default_factory=list)

    @property
    def exit_codes(self) -> set[int]:
        """The exit codes its findings ask for."""
        return {EXIT_CONFIG} if self.broken else {finding.exit_code for finding in self.findings}


def overview(lines: list[AgentLine]) -> str:
    """Return Markdown: how many agents are fine, and those that are not, at most 50."""
    wrong = [line for line in lines if line.exit_codes]
    text = f"{len(lines) - len(wrong)} of {len(lines)} agents are as their baselines."
    if not wrong:
        return text
    rows = [
        f"| {markdown_code(line.agent_id, in_table=True)} | {format_score(line.overall)} | {_first_words(line)} |"
        for line in wrong[:MOST_LISTED]
    ]
    more = f"\n\nand {len(wrong) - MOST_LISTED} more" if len(wrong) > MOST_LISTED else ""
    return "\n".join([text, "", "| Agent | Overall | What is wrong |", "|:--|--:|:--|", *rows]) + more


def _first_words(line: AgentLine) -> str:
    said = line.broken or [finding.text for finding in line.findings]
    more = f" (and {len(said) - 1} more)" if len(said) > 1 else ""
    return markdown_text(said[0], 200) + more


def agent_lines(result: CohortResult) -> list[AgentLine]:
    """Return a line an agent, by name."""
    lines = [
        AgentLine(
            agent_id=agent_id,
            overall=report.evaluation.overall,
            run_id=report.evaluation.run_id,
            findings=report.findings,
        )
        for agent_id, report in result.reports.items()
    ]
    broken = [
        AgentLine(agent_id=agent_id, broken=[str(problem) for problem in problems])
        for agent_id, problems in result.broken.items()
    ]
    return sorted(lines + broken, key=lambda line: line.agent_id)


def report_of_interest(world: World, lines: list[AgentLine]) -> RunReport:
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
