"""The report of what the store already holds."""

from collections.abc import Sequence
from datetime import datetime

from persona_pipeline import __version__
from persona_pipeline.baselines import find_baseline
from persona_pipeline.errors import ConfigError
from persona_pipeline.evaluation.engine import report_agent
from persona_pipeline.evaluation.gate import GateRules, exit_code_of, nothing_evaluated
from persona_pipeline.evaluation.report import AgentReport, RunReport, report_expenses
from persona_pipeline.evaluation.saving import latest_evaluations
from persona_pipeline.evaluation.sections import report_sections
from persona_pipeline.evaluation.selection import select_agents
from persona_pipeline.world import World
from persona_pipeline.world.models import Window


def stored_report(
    world: World,
    agents: Sequence[str] | None = None,
    *,
    since: datetime | None = None,
    rules: GateRules | None = None,
) -> RunReport:
    """Return a report of each agent's newest saved evaluation, compared with its baseline of today, and the history.

    Raises:
        ConfigError: nothing was evaluated since.
    """
    rules = rules or GateRules()
    reports: dict[str, AgentReport] = {}
    for agent_id in select_agents(world, agents):
        runs = latest_evaluations(world.store, agent_id, since=since)
        if runs:
            reports[agent_id] = report_agent(runs[-1], find_baseline(world.root, agent_id), rules)
    if not reports:
        raise ConfigError("the store holds no evaluation of that time; run persona-pipeline evaluate")
    newest = max((item.evaluation for item in reports.values()), key=lambda item: item.window_end)
    report = RunReport(
        agents=reports,
        findings=nothing_evaluated(list(reports.values())),
        expenses=report_expenses(reports),
        provenance={
            "version": __version__,
            "judge": newest.provenance.get("judge"),
            "window_end": newest.window_end.isoformat(),
            "min_coverage": rules.min_coverage,
            "regression_delta": rules.regression_delta,
            "proposition_delta": rules.proposition_delta,
        },
    )
    window = Window(end=newest.window_end, start=newest.window_start)
    report.statistics |= report_sections(world, list(reports), window, since=since)
    report.exit_code = exit_code_of(report.all_findings(), rules)
    return report
