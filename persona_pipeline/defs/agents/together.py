"""Evaluating several agents, or one as of a past moment, in one step, which says itself what it found of each."""

from collections.abc import Collection, Generator, Iterable

import dagster as dg

from persona_pipeline.defs.agents.lineage import Lineage, check_evaluations
from persona_pipeline.defs.agents.specs import Specs
from persona_pipeline.defs.agents.verdicts import agent_lines
from persona_pipeline.defs.platform.dagster_internals import plan_materialization
from persona_pipeline.defs.platform.failures import known_failures, retry_unanswered
from persona_pipeline.defs.platform.resources import EvaluationSettings
from persona_pipeline.evaluation import EvaluationRequest
from persona_pipeline.evaluation.history import newest_run
from persona_pipeline.evaluation.report import AgentReport
from persona_pipeline.evaluation.run import CohortResult, evaluate_cohort
from persona_pipeline.judging.verdict import Judge
from persona_pipeline.world import World

Context = dg.OpExecutionContext | dg.AssetExecutionContext
Event = dg.AssetMaterialization | dg.AssetCheckEvaluation | dg.AssetObservation


def evaluate_together(
    specs: Specs,
    context: Context,
    world: World,
    evaluation: EvaluationSettings,
    request: EvaluationRequest,
    planned: Collection[dg.AssetKey] = (),
) -> Generator[Event, None, CohortResult]:
    """Evaluate agents with their judgments pooled, yield what a run of each would have left, and return what was found.

    A broken agent stops no other. Of an agent whose newest window is newer than the one asked for, an observation is left and
    nothing else: the past changes neither its newest results nor its checks.

    Args:
        request: names the agents. Dimensions None: everything, on the newest window; else these on each agent's last window,
            none: only compare.
        planned: the assets the run was made for, if for any; all of them are said, also those that stayed as they were.
    """
    lineage = Lineage(specs, context.instance, request.agents or (), planned)
    with known_failures():
        judge = evaluation.open_judge(world)
        asked = request.model_copy(update={"newest_window": request.dimensions is not None})
        result = evaluate_cohort(world, judge, asked)
    retry_missing(result.reports.values(), judge, context.retry_number)
    past = [agent_id for agent_id, report in result.reports.items() if report.past]
    if not planned:
        # A run of assets has planned it, a cohort has not: so the catalog is red there too.
        known = {*context.instance.get_dynamic_partitions(specs.sources.agents_name)} - {*past}
        for agent_id in (line.agent_id for line in agent_lines(result) if line.exit_codes):
            if agent_id in known:
                plan_materialization(context.instance, context.run, specs.in_character.key, agent_id)
    yield from lineage.events(result, request.dimensions)
    yield from lineage.observations(result)
    # Dagster planned their checks when the run was made: said again, they stay as they were.
    yield from check_evaluations(specs, newest_reports(world, past), request.fail_on)
    return result


def newest_reports(world: World, agent_ids: Iterable[str]) -> dict[str, AgentReport]:
    """Return each agent's newest run as it was last compared; an agent that never was is left out."""
    runs = {agent_id: newest_run(world.store, agent_id) for agent_id in agent_ids}
    return {agent_id: run.report for agent_id, run in runs.items() if run and run.report}


def retry_missing(reports: Iterable[AgentReport], judge: Judge, retry_number: int) -> None:
    """Ask for a retry when a live judge left judgments of these reports unanswered."""
    for report in reports:
        for dimension in report.evaluation.dimensions.values():
            retry_unanswered(dimension.unscored_reasons, judge, retry_number)
