"""An evaluation beside another one, by the tests that a golden baseline is compared with."""

from collections.abc import Mapping

from persona_pipeline.baselines import Baseline, captured
from persona_pipeline.evaluation.comparison import compared, judged_on
from persona_pipeline.evaluation.gate import GateRules, exit_code_of
from persona_pipeline.evaluation.pipeline import guard_of
from persona_pipeline.evaluation.report import RunReport
from persona_pipeline.evaluation.results import AgentEvaluation
from persona_pipeline.world import World


def baseline_of(evaluation: AgentEvaluation) -> Baseline:
    """Return the baseline an evaluation would be; dimensions that were not scored in full are not in it."""
    return captured(evaluation.agent_id, [evaluation.dimensions], judged_on(evaluation))


def set_beside(world: World, before: Mapping[str, Baseline], after: RunReport, rules: GateRules) -> RunReport:
    """Return what an evaluation says beside other baselines than those of the files; nothing is judged or saved.

    Args:
        before: baselines by agent; agents that are not in both are left out.
        after: its scores, as they are.

    Raises:
        ConfigError: files of the world are not valid.
    """
    guard = guard_of(world, rules)
    agents = {
        agent_id: compared(report.evaluation, before[agent_id], guard, report.evaluation.dimensions)
        for agent_id, report in after.agents.items()
        if agent_id in before
    }
    found = RunReport(agents=agents, provenance=dict(after.provenance))
    found.exit_code = exit_code_of(found.all_findings(), rules)
    return found
