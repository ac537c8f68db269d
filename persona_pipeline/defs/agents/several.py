"""Evaluating several agents in one step, which leaves in Dagster what a run of each would have left."""

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence

import dagster as dg

from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.defs.agents import checks, outcomes
from persona_pipeline.defs.agents.specs import Specs
from persona_pipeline.defs.agents.verdicts import agent_line, agent_lines
from persona_pipeline.defs.platform.assets import AssetOutcome, evaluated
from persona_pipeline.defs.platform.dagster_internals import (
    MATERIALIZED,
    OBSERVED,
    PLANNED,
    lineage_tags,
    newest_events,
    newest_versions,
    plan_materialization,
)
from persona_pipeline.defs.platform.resources import EvaluationSettings, known_failures, retry_unanswered
from persona_pipeline.evaluation.decide import AgentResult
from persona_pipeline.evaluation.history import saved_run
from persona_pipeline.evaluation.run import CohortResult, evaluate_cohort
from persona_pipeline.guard.report import AgentReport
from persona_pipeline.world.propositions.models import ALL_DIMENSIONS
from persona_pipeline.world.runs import newest_run_row
from persona_pipeline.world.world import World

Key = dg.AssetKey
Events = dict[Key, dict[str, int]]
Versions = dict[Key, dict[str, str]]


class Lineage:
    """The newest event and version of every asset of some agents, read once and then kept up to date.

    Dagster calls an asset stale when the version of a dependency differs from the one at the event noted here, so
    the events must be those from before the evaluation.
    """

    def __init__(
        self, specs: Specs, instance: dg.DagsterInstance, agent_ids: Iterable[str], planned: Collection[Key] = ()
    ) -> None:
        self._specs = specs
        self._instance = instance
        agents = sorted(agent_ids)
        self._planned = set(planned)
        # When somebody was evaluated last is read from these, whatever came of it.
        self._said_anyway = {*planned, specs.runs.key, specs.comparisons.key, specs.in_character.key}
        # From upstream to downstream, each with what it is made from: the same edges as the assets themselves.
        self._parents = {spec.key: tuple(dep.asset_key for dep in spec.deps) for spec in specs.evaluated}
        self._code_versions = {spec.key: spec.code_version for spec in specs.evaluated}
        keys = [(spec.key, OBSERVED) for spec in specs.sources.by_name.values()]
        keys += [(key, MATERIALIZED) for key in self._parents]
        self._events: Events = {key: newest_events(instance, key, kind, set(agents)) for key, kind in keys}
        self._versions: Versions = {key: newest_versions(instance, key, kind, agents) for key, kind in keys}
        self._plans: Events = {key: newest_events(instance, key, PLANNED, set(agents)) for key in self._parents}

    def events(
        self, result: CohortResult, names: Collection[str] | None = None
    ) -> Iterator[dg.AssetMaterialization | dg.AssetCheckEvaluation]:
        """Yield materializations, then check evaluations. What is upstream of the run and stayed as it was yields nothing, unless
        it is planned: to a backfill what is not materialized has failed.

        ``names``: the dimensions that were to be scored, of which it is said anyway; None: everything was.
        """
        asked = {self._specs.scores[name].key for name in names or ()}
        for key, found in _outcomes(self._specs, result, names, self._planned):
            said_anyway = key in self._said_anyway or key in asked
            changed = {a: outcome for a, outcome in found.items() if said_anyway or self._is_new(key, a, outcome)}
            for agent_id, outcome in changed.items():
                self._versions[key][agent_id] = outcome.version
                yield dg.AssetMaterialization(
                    key, partition=agent_id, metadata=outcome.metadata, tags=self._tags(key, agent_id, outcome)
                )
            if changed:
                # What has just been written is what the next asset downstream rests on.
                self._events[key] |= newest_events(self._instance, key, MATERIALIZED, set(changed))
        yield from check_evaluations(
            self._specs, {a: item.report for a, item in _newest(result).items()}, result.fail_on
        )

    def observations(self, result: CohortResult) -> Iterator[dg.AssetObservation]:
        """Yield what was found about the past: beside the newest results, whose place it does not take."""
        for agent_id, report in result.reports.items():
            if not report.past:
                continue
            for key, outcome in (
                (self._specs.runs.key, outcomes.run_outcome(report.evaluation)),
                (self._specs.comparisons.key, outcomes.comparison_outcome(report)),
            ):
                text = f"As of {report.evaluation.window_end.isoformat()}; the newest results stay as they are."
                yield dg.AssetObservation(key, partition=agent_id, metadata=outcome.metadata, description=text)

    def _is_new(self, key: Key, agent_id: str, outcome: AssetOutcome) -> bool:
        own = self._events[key].get(agent_id)
        if own is None or self._versions[key].get(agent_id) != outcome.version:
            return True
        # A run that meant to make it and failed has left it red.
        later = [self._plans[key], *(self._events[parent] for parent in self._parents[key])]
        return any(events.get(agent_id, 0) > own for events in later)

    def _tags(self, key: Key, agent_id: str, outcome: AssetOutcome) -> dict[str, str]:
        inputs = {
            parent: (self._versions[parent].get(agent_id), self._events[parent].get(agent_id))
            for parent in self._parents[key]
        }
        return lineage_tags(outcome.version, self._code_versions[key], inputs)


def check_evaluations(
    specs: Specs, reports: Mapping[str, AgentReport], fail_on: Sequence[str] | None
) -> Iterator[dg.AssetCheckEvaluation]:
    """Yield what the gate says of each agent. What failed comes last: Dagster shows a check as it was answered last."""
    for gate in checks.GATE:
        said = {
            agent_id: gate.result(specs, report, agent_line(report, fail_on)) for agent_id, report in reports.items()
        }
        for agent_id, verdict in sorted(said.items(), key=lambda item: not item[1].passed):
            yield evaluated(specs.comparisons.key, agent_id, verdict)


def _newest(result: CohortResult) -> dict[str, AgentResult]:
    found = {agent_id: item for agent_id, item in result.results.items() if not item.report.past}
    # An asset's page shows what came last: that is to be an agent to look at, if there is one.
    return dict(sorted(found.items(), key=lambda item: bool(agent_line(item[1].report, result.fail_on).exit_codes)))


def _outcomes(
    specs: Specs, result: CohortResult, names: Collection[str] | None, planned: Collection[Key]
) -> Iterator[tuple[Key, dict[str, AssetOutcome]]]:
    """Yield the outcomes of each asset by agent, upstream first. An agent that could not be evaluated has none."""
    newest = _newest(result)

    def scored(name: str) -> dict[str, AgentResult]:
        # A part that became a whole evaluation scored more than was asked for.
        return newest if names is None else {a: item for a, item in newest.items() if name in item.plan.plans}

    yield specs.personas.key, {a: outcomes.persona_outcome(item.plan.persona) for a, item in newest.items()}
    if names is None:
        said = {
            a: outcomes.messages_outcome(
                result.length, item.plan.scope.window, item.plan.case.messages, result.names.of([a])
            )
            for a, item in newest.items()
        }
        yield specs.messages.key, said
    for name in ALL_DIMENSIONS:
        sets = {a: outcomes.propositions_outcome(item.plan.sets[name]) for a, item in scored(name).items()}
        yield specs.propositions[name].key, sets
    for name in ALL_DIMENSIONS:
        found = {
            a: outcomes.scores_outcome(item.report.evaluation.dimensions.get(name), specs.scores[name])
            for a, item in scored(name).items()
        }
        yield specs.scores[name].key, found
    if names is None or names or specs.runs.key in planned:
        runs = {a: outcomes.run_outcome(item.report.evaluation) for a, item in newest.items()}
        yield specs.runs.key, runs
    compared = {a: outcomes.comparison_outcome(item.report) for a, item in newest.items()}
    yield specs.comparisons.key, compared
    held = {a: outcomes.in_character_outcome(agent_line(item.report, result.fail_on)) for a, item in newest.items()}
    yield specs.in_character.key, {a: outcome for a, outcome in held.items() if outcome}


Context = dg.OpExecutionContext | dg.AssetExecutionContext
Event = dg.AssetMaterialization | dg.AssetCheckEvaluation | dg.AssetObservation


def evaluated_or_retried(
    context: Context, world: World, evaluation: EvaluationSettings, request: EvaluationRequest
) -> CohortResult:
    """Evaluate agents, and ask for a retry where a live judge left something unanswered that it may answer later."""
    with known_failures():
        judge = evaluation.open_judge(world)
        result = evaluate_cohort(world, judge, request)
    for report in result.reports.values():
        for dimension in report.evaluation.dimensions.values():
            retry_unanswered(dimension.unscored_reasons, judge, context.retry_number)
    return result


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
    nothing else: the past changes neither its newest results nor its checks. ``request``: names the agents. Dimensions None:
    everything, on the newest window; else these on each agent's last window, none: only compare. ``planned``: the assets the run
    was made for, if for any; all of them are said, also those that stayed as they were.
    """
    lineage = Lineage(specs, context.instance, request.agents or (), planned)
    asked = request.model_copy(update={"newest_window": request.dimensions is not None})
    result = evaluated_or_retried(context, world, evaluation, asked)
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
    runs = {agent_id: saved_run(newest_run_row(world.store, agent_id)) for agent_id in past}
    compared = {agent_id: run.report for agent_id, run in runs.items() if run}
    yield from check_evaluations(specs, compared, result.fail_on)
    return result
