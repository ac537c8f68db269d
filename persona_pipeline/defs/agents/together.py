"""Evaluating several agents, or one as of a past moment, in one step, which says itself what it found of each."""

from collections.abc import Collection, Generator, Iterable, Sequence

import dagster as dg

from persona_pipeline.baselines import find_baseline
from persona_pipeline.defs.agents.lineage import Lineage, check_evaluations
from persona_pipeline.defs.agents.verdicts import red_agents
from persona_pipeline.defs.platform.failures import known_failures, retry_unanswered
from persona_pipeline.defs.platform.resources import EvaluationSettings
from persona_pipeline.errors import ConfigError
from persona_pipeline.evaluation import steps
from persona_pipeline.evaluation.cases import resolve_window
from persona_pipeline.evaluation.cohort import CohortResult, evaluate_cohort
from persona_pipeline.evaluation.engine import evaluate_agents
from persona_pipeline.evaluation.report import AgentReport
from persona_pipeline.evaluation.saving import newest_evaluation
from persona_pipeline.judging.verdict import Judge
from persona_pipeline.world import World

Context = dg.OpExecutionContext | dg.AssetExecutionContext
Event = dg.AssetMaterialization | dg.AssetCheckEvaluation | dg.AssetObservation


def evaluate_together(
    context: Context,
    world: World,
    evaluation: EvaluationSettings,
    agent_ids: Sequence[str],
    dimensions: Sequence[str] | None = None,
) -> Generator[Event, None, CohortResult]:
    """Evaluate agents with their judgments pooled, yield what a run of each would have left, and return what was found.

    A broken agent stops no other. Of an agent whose newest window is newer than the one asked for, an observation is left and
    nothing else: the past changes neither its newest results nor its checks.

    Args:
        dimensions: None: everything, on the newest window; else these on each agent's last window, none: only compare.
    """
    lineage = Lineage(context.instance, agent_ids)
    with known_failures():
        judge = evaluation.open_judge(world)
        past = past_agents(world, evaluation, agent_ids) if dimensions is None else []
        result = evaluate_cohort(
            world,
            [agent_id for agent_id in agent_ids if agent_id not in past],
            judge=judge,
            rules=evaluation.rules(judge),
            dimensions=dimensions,
            window=evaluation.window,
            as_of=evaluation.window_end,
            samples=evaluation.samples,
        )
        before = _evaluate_past(world, evaluation, judge, past, result)
    retry_missing((*result.reports.values(), *before.values()), judge, context.retry_number)
    red = red_agents(world.store)
    yield from lineage.events(result, dimensions, red)
    yield from lineage.observations(before, red)
    # Dagster planned their checks when the run was made: said again, they stay as they were.
    yield from check_evaluations(newest_reports(world, before), red)
    result.reports.update(before)
    return result


def past_agents(world: World, evaluation: EvaluationSettings, agent_ids: Iterable[str]) -> list[str]:
    """Return the agents that were evaluated on a newer window than the one asked for.

    Raises:
        ConfigError: the window is not valid.
    """
    if evaluation.window_end is None:
        return []
    end = resolve_window(world, evaluation.window, evaluation.window_end).end
    newest = {agent_id: newest_evaluation(world.store, agent_id) for agent_id in agent_ids}
    return [agent_id for agent_id, run in newest.items() if run is not None and end < run.window_end]


def newest_reports(world: World, agent_ids: Iterable[str]) -> dict[str, AgentReport]:
    """Return each agent's newest run as it was last compared; an agent that never was is left out."""
    reports = {}
    for agent_id in agent_ids:
        run = newest_evaluation(world.store, agent_id)
        compared = steps.load_comparison(world, run.run_id) if run else None
        if run and compared:
            reports[agent_id] = AgentReport(evaluation=run, comparison=compared[0], findings=compared[1])
    return reports


def retry_missing(reports: Iterable[AgentReport], judge: Judge, retry_number: int) -> None:
    """Ask for a retry when a live judge left judgments of these reports unanswered."""
    for report in reports:
        for dimension in report.evaluation.dimensions.values():
            retry_unanswered(dimension.unscored_reasons, judge, retry_number)


def _evaluate_past(
    world: World, evaluation: EvaluationSettings, judge: Judge, agent_ids: Collection[str], result: CohortResult
) -> dict[str, AgentReport]:
    reports = {}
    for agent_id in agent_ids:
        try:
            [run] = evaluate_agents(
                world,
                [agent_id],
                judge=judge,
                window=evaluation.window,
                as_of=evaluation.window_end,
                samples=evaluation.samples,
            )
            baseline = find_baseline(world.root, agent_id)
            reports[agent_id] = steps.compare_run(world, run, baseline, evaluation.rules(judge))
        except ConfigError as error:
            result.broken[agent_id] = error.problems
    return reports
