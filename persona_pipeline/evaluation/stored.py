"""The report of what the store already holds."""

from collections.abc import Sequence
from datetime import datetime

from persona_pipeline.errors import ConfigError
from persona_pipeline.evaluation.gate import GateRules, exit_code_of, nothing_evaluated
from persona_pipeline.evaluation.outlines import by_need, newest_outlines
from persona_pipeline.evaluation.report import RunReport
from persona_pipeline.evaluation.request import select_agents
from persona_pipeline.evaluation.saving import load_run
from persona_pipeline.version import __version__
from persona_pipeline.world import World


def stored_report(
    world: World,
    agents: Sequence[str] | None = None,
    *,
    since: datetime | None = None,
    rules: GateRules | None = None,
    whole: int | None = None,
) -> RunReport:
    """Return a report of each agent's newest run with the comparison that was saved with it; judges and compares nothing.

    Args:
        whole: of how many agents claims and reasons are read, those with findings first; the others are ``outlined``. None: of all.

    Raises:
        ConfigError: nothing was evaluated since.
    """
    rules = rules or GateRules()
    chosen = select_agents(world, agents)
    known = newest_outlines(world.store, chosen, since=since)
    reports = {agent_id: known[agent_id] for agent_id in chosen if agent_id in known}
    for agent_id in by_need(reports)[:whole]:
        run = load_run(world.store, reports[agent_id].evaluation.run_id)
        if run and run.report:
            reports[agent_id] = run.report
    if not reports:
        raise ConfigError("the store holds no evaluation of that time; run persona-pipeline evaluate")
    newest = max((item.evaluation for item in reports.values()), key=lambda item: item.window_end)
    report = RunReport(
        agents=reports,
        findings=nothing_evaluated(list(reports.values())),
        expenses=[expense for item in reports.values() for expense in item.expenses],
        provenance={
            "version": __version__,
            "judge": newest.provenance.get("judge"),
            "window_end": newest.window_end.isoformat(),
            "min_coverage": rules.min_coverage,
            "regression_delta": rules.regression_delta,
            "proposition_delta": rules.proposition_delta,
        },
    )
    report.exit_code = exit_code_of(report.all_findings(), rules)
    return report
