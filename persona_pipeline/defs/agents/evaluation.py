"""The step that makes the assets of an agent or several agents: sources, scores, verdicts and their checks."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

import dagster as dg

from persona_pipeline.base.errors import ConfigError, Problem
from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.defs import metadata
from persona_pipeline.defs.agents import outcomes
from persona_pipeline.defs.agents.freshness import RECENTLY, build_check, freshness_evaluations, overdue
from persona_pipeline.defs.agents.specs import Specs
from persona_pipeline.defs.agents.verdicts import (
    ALL_IN_CHARACTER,
    AgentVerdict,
    agent_line,
    agent_lines,
    all_in_character,
    check_specs,
    failure_of,
    gate_evaluations,
    newest_reports,
    verdict,
)
from persona_pipeline.defs.platform import run_tags
from persona_pipeline.defs.platform.assets import AssetOutcome
from persona_pipeline.defs.platform.dagster_internals import (
    MATERIALIZED,
    PARTITION,
    lineage_tags,
    newest_events,
    newest_versions,
)
from persona_pipeline.defs.platform.place import EVALUATION, WORLD
from persona_pipeline.defs.platform.resources import (
    EvaluationSettings,
    evaluation_of,
    known_agents,
    known_failures,
    retry_unanswered,
    world_of,
)
from persona_pipeline.evaluation.changes import BASELINE, MESSAGES, PERSONA, source_versions
from persona_pipeline.evaluation.decide import AgentRun
from persona_pipeline.evaluation.read import WorldReader
from persona_pipeline.evaluation.run import Run, run_evaluation
from persona_pipeline.guard.gate import counted
from persona_pipeline.guard.report import AgentReport
from persona_pipeline.world.personas import PERSONAS, yaml_stems
from persona_pipeline.world.propositions.loading import PROPOSITIONS, StoredSet, read_claims
from persona_pipeline.world.speakers import NameMatch, stored_names
from persona_pipeline.world.world import World

Context = dg.AssetExecutionContext
Event = dg.MaterializeResult | dg.AssetMaterialization | dg.AssetCheckEvaluation | dg.AssetObservation
Outcomes = Mapping[str, AssetOutcome]


def evaluated_or_retried(
    context: Context, world: World, evaluation: EvaluationSettings, request: EvaluationRequest
) -> Run:
    """Evaluate agents, and ask for a retry where a live judge left something unanswered that it may answer later."""
    with known_failures():
        judge = evaluation.open_judge(world)
        result = run_evaluation(world, judge, request, strict=False)
    for report in result.reports.values():
        for dimension in report.evaluation.dimensions.values():
            retry_unanswered(dimension.unscored_reasons, judge, context.retry_number)
    return result


def named_agents(context: Context, world: World) -> list[str]:
    """Return the agents whose partitions a run names; ConfigError: it names none, or a single one without a persona file."""
    if context.has_partition_key_range:
        return list(context.partition_keys)
    if context.has_partition_key and context.partition_key in yaml_stems(world.root / PERSONAS):
        return [context.partition_key]
    named = f"there is no agent {context.partition_key!r}" if context.has_partition_key else "the run names no agent"
    agents = known_agents(world.root) or ["AGENT"]
    raise ConfigError(f"{named}; give --tags '{json.dumps({PARTITION: agents[-1]})}', agents are {', '.join(agents)}")


@dataclass
class Lineage:
    """The newest event and version of every asset of some agents, read once and then kept up to date.

    Dagster calls an asset stale when the version of a dependency differs from the one at the event noted here, so
    the events must be those from before the evaluation.
    """

    specs: Specs
    instance: dg.DagsterInstance
    agent_ids: Sequence[str]
    events: dict[dg.AssetKey, dict[str, int]] = field(default_factory=dict)
    versions: dict[dg.AssetKey, dict[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key in (spec.key for spec in self.specs.evaluated):
            self.events[key] = newest_events(self.instance, key, MATERIALIZED, set(self.agent_ids))
            self.versions[key] = newest_versions(self.instance, key, MATERIALIZED, self.agent_ids)

    def materialized(
        self, spec: dg.AssetSpec, found: Outcomes
    ) -> Iterator[dg.AssetMaterialization | dg.MaterializeResult]:
        """Yield the materializations of an asset for some agents. A single agent's result can be used later in the same run.

        The input versions are added here: Dagster does not know them for assets of the same step, or for several partitions.
        """
        for agent_id, outcome in found.items():
            about = {dep.asset_key: self._noted(dep.asset_key, agent_id) for dep in spec.deps}
            said = {"metadata": outcome.metadata, "tags": lineage_tags(outcome.version, spec.code_version, about)}
            if len(self.agent_ids) == 1:
                yield dg.MaterializeResult(spec.key, data_version=dg.DataVersion(outcome.version), **said)
            else:
                yield dg.AssetMaterialization(spec.key, partition=agent_id, **said)
        self.versions[spec.key] |= {agent_id: outcome.version for agent_id, outcome in found.items()}
        if found:
            # The next asset downstream depends on these events.
            self.events[spec.key] |= newest_events(self.instance, spec.key, MATERIALIZED, set(found))

    def _noted(self, key: dg.AssetKey, agent_id: str) -> tuple[str | None, int | None]:
        return self.versions.get(key, {}).get(agent_id), self.events.get(key, {}).get(agent_id)

    def heard_since(self) -> set[str]:
        """Return the agents whose messages were recorded after their last verdict: a part of it would be of the old ones."""
        judged = self.events[self.specs.verdicts.key]
        heard = self.events[self.specs.sources[MESSAGES].key]
        return {agent_id for agent_id in self.agent_ids if heard.get(agent_id, 0) >= judged.get(agent_id, 0)}


@dataclass(frozen=True)
class AgentsStep:
    """The assets that a step was asked for, and the agents."""

    specs: Specs
    context: Context
    world: World
    evaluation: EvaluationSettings
    agent_ids: Sequence[str]
    lineage: Lineage

    @cached_property
    def names(self) -> NameMatch:
        """How speakers and personas go together."""
        return stored_names(self.world)

    @property
    def alone(self) -> bool:
        """Whether it is about a single agent."""
        return len(self.agent_ids) == 1

    def asked(self, specs: Iterable[dg.AssetSpec]) -> list[dg.AssetSpec]:
        """Return those that are asked for."""
        return [spec for spec in specs if spec.key in self.context.selected_asset_keys]

    def made(self, spec: dg.AssetSpec, found: Outcomes) -> Iterator[Event]:
        """Yield the materializations of an asset, if it is selected."""
        if self.asked([spec]):
            yield from self.lineage.materialized(spec, found)

    def sources(self) -> Iterator[Event]:
        """Read the sources and yield their versions; a broken file does not stop the others.

        Raises ``ConfigError``: a file is broken, and no evaluation follows that would report it.
        """
        asked = self.asked(self.specs.sources.values())
        if self.specs.sources[MESSAGES] in asked:
            for problem in self.world.sync_messages().problems:
                self.context.log.warning(f"left out: {problem}")
        now = source_versions(self.world.root, self.world.store).by_source if asked else {}
        problems: list[Problem] = []
        for name, spec in self.specs.sources.items():
            found: dict[str, AssetOutcome] = {}
            for agent_id in self.agent_ids if spec in asked else ():
                try:
                    shown = self._shown(name, agent_id)
                except ConfigError as error:
                    problems += error.problems
                    continue
                found[agent_id] = AssetOutcome(now[name][agent_id], shown)
            yield from self.made(spec, found)
        if problems and (self.alone or not self.asked(self.specs.judged)):
            raise ConfigError(list(dict.fromkeys(problems)))

    def _shown(self, name: str, agent_id: str) -> metadata.Metadata:
        if name == PERSONA:
            return {"display_name": self.world.sync_persona(agent_id).display_name}
        if name == BASELINE:
            return {}
        if name != MESSAGES:
            found = StoredSet.read(self.world.root / PROPOSITIONS, name, agent_id).propositions
            return {"claims": len(found.propositions) if found else 0}
        asked = self.evaluation.request(self.world)
        window = WorldReader(self.world).window(asked.window, asked.as_of, asked.since)
        names = self.names.of([agent_id])
        for line in names.warnings():
            self.context.log.warning(line)
        return outcomes.messages_metadata(window, self.world.messages(window, agent_id=agent_id), names)

    def evaluate(self) -> Run:
        """Evaluate the selected assets: on the newest window for agents with new messages, otherwise a part on the last window."""
        sources, request = self.specs.sources, partial(self.evaluation.request, self.world)
        names = [name for name, spec in self.specs.scores.items() if self.asked([spec, sources[name]])]
        all_names = len(names) == len(self.specs.scores)
        # A verdict is of everything.
        wanted = None if all_names or self.asked([self.specs.verdicts, self.specs.in_character]) else names
        anew = all_names or self.asked([sources[PERSONA], sources[MESSAGES]])
        gone = {*()} if anew else self.without_claims(names)
        newest = {*self.agent_ids} if anew else self.lineage.heard_since() | gone
        first, second = ([a for a in self.agent_ids if (a in newest) is kind] for kind in (True, False))
        asked = [request(first, None if gone else wanted)] if first else []
        asked += [request(second, names).model_copy(update={"newest_window": True})] if second else []
        if any(item.as_of or item.since for item in asked):
            # The result is not about the newest messages.
            self.lineage.versions[sources[MESSAGES].key].clear()
        result, *more = [evaluated_or_retried(self.context, self.world, self.evaluation, item) for item in asked]
        for item in more:
            result.runs.update(item.runs)
            result.broken.update(item.broken)
        if self.alone and result.broken:
            raise ConfigError([problem for problems in result.broken.values() for problem in problems])
        return result

    def without_claims(self, names: Sequence[str]) -> set[str]:
        """Return the agents without claims in any of these dimensions: such a dimension cannot be evaluated alone."""
        found, _ = read_claims(self.world.root / PROPOSITIONS, self.agent_ids, names)
        return {agent_id for agent_id, own in found.items() if any(item.propositions is None for item in own.values())}

    def judged(self, result: Run) -> Iterator[Event]:
        """Yield scores and verdicts, then the gate's checks.

        An evaluation of the past changes neither the newest results nor their checks: it is recorded as an observation.
        """
        newest = {agent_id: item for agent_id, item in result.runs.items() if not item.report.past}
        # An asset's page shows the last event: an agent with a failure, if there is one.
        lines = {agent_id: agent_line(item.report, result.fail_on) for agent_id, item in newest.items()}
        newest = dict(sorted(newest.items(), key=lambda item: bool(lines[item[0]].exit_codes)))
        for spec, found in judged_outcomes(self.specs, newest, lines):
            yield from self.made(spec, found)
        reports = {agent_id: item.report for agent_id, item in newest.items()}
        for agent_id, report in result.reports.items():
            if report.past:
                outcome = outcomes.verdict_outcome(report)
                text = f"As of {report.evaluation.window_end.isoformat()}; the newest results stay as they are."
                yield dg.AssetObservation(
                    self.specs.verdicts.key, partition=agent_id, metadata=outcome.metadata, description=text
                )
                # Dagster planned these checks when the run was created; repeating the newest results leaves them unchanged.
                reports |= newest_reports([agent_id], self.world)
        yield from self.checked(reports, result.fail_on)

    def checked(self, reports: Mapping[str, AgentReport], fail_on: Sequence[str] | None) -> Iterator[Event]:
        """Yield the results of the selected checks."""
        asked = {key.name for key in self.context.selected_asset_check_keys}
        yield from gate_evaluations(self.specs, reports, fail_on, asked)
        if RECENTLY in asked:
            yield from freshness_evaluations(self.specs, reports, overdue(self.specs, self.context.instance))
        if ALL_IN_CHARACTER in asked:
            yield all_in_character(self.specs, self.context.instance, self.world, fail_on)

    def ended(self, lines: Sequence[AgentVerdict]) -> None:
        """Label the run with its verdict; raises ``dg.Failure`` where an agent is broken or out of character."""
        decides = [*self.asked([self.specs.verdicts, self.specs.in_character]), *self.context.selected_asset_check_keys]
        told = [line for line in lines if decides or line.broken]
        if told:
            self.context.instance.add_run_tags(self.context.run_id, {run_tags.VERDICT: verdict(told)})
        if failure := failure_of(told):
            raise failure


def judged_outcomes(
    specs: Specs, newest: Mapping[str, AgentRun], lines: Mapping[str, AgentVerdict]
) -> Iterator[tuple[dg.AssetSpec, Outcomes]]:
    """Yield the outcomes of each asset by agent, upstream first. An agent out of character has no ``in_character``."""
    for name, spec in specs.scores.items():
        yield (
            spec,
            {
                agent_id: outcomes.scores_outcome(item.report.evaluation.dimensions.get(name), spec)
                for agent_id, item in newest.items()
            },
        )
    yield specs.verdicts, {agent_id: outcomes.verdict_outcome(item.report) for agent_id, item in newest.items()}
    held = {agent_id: outcomes.in_character_outcome(lines[agent_id]) for agent_id in newest}
    yield specs.in_character, {agent_id: outcome for agent_id, outcome in held.items() if outcome}


def build_evaluation(specs: Specs) -> dg.AssetsDefinition:
    """Return the step that makes the selected assets of some agents, at most PERSONA_SHARD_SIZE in a run."""
    place = specs.place

    @dg.multi_asset(
        name=place.name("evaluate"),
        specs=specs.evaluated,
        check_specs=[*check_specs(specs), build_check(specs)],
        partitions_def=specs.agents,
        can_subset=True,
        pool=place.judge_pool,
        required_resource_keys=place.names([WORLD, EVALUATION]),
        backfill_policy=dg.BackfillPolicy.multi_run(max_partitions_per_run=place.orchestration.shard_size),
        description="Reads files and messages of agents, judges them, and compares the scores with the baselines. A broken agent "
        "does not stop the others.",
    )
    def evaluate(context: Context) -> Iterator[Event]:
        with known_failures():
            world, evaluation = world_of(place, context), evaluation_of(place, context)
            agent_ids = named_agents(context, world)
            lineage = Lineage(specs, context.instance, agent_ids)
            step = AgentsStep(specs, context, world, evaluation, agent_ids, lineage)
            if not step.alone:
                context.instance.add_run_tags(context.run_id, {run_tags.AGENT: f"{len(agent_ids)} agents"})
            yield from step.sources()
            if step.asked(specs.judged):
                result = step.evaluate()
                yield from step.judged(result)
                step.ended(agent_lines(result))
            elif context.selected_asset_check_keys:
                reports, fail_on = newest_reports(agent_ids, world), counted(evaluation.asked(world))
                yield from step.checked(reports, fail_on)
                step.ended([agent_line(report, fail_on) for report in reports.values()])

    return evaluate
