"""The lineage of one agent: the steps that make its assets, its voice, and the jobs over them."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import dagster as dg

from persona_pipeline.base.errors import ConfigError, Problem
from persona_pipeline.defs.agents import checks, outcomes
from persona_pipeline.defs.agents.checks import build_gate
from persona_pipeline.defs.agents.several import Event, evaluate_together
from persona_pipeline.defs.agents.specs import Specs, build_sources, build_specs
from persona_pipeline.defs.agents.verdicts import agent_line, agent_lines, failure_of, verdict
from persona_pipeline.defs.agents.weeks import build_weekly_scores
from persona_pipeline.defs.platform import run_tags
from persona_pipeline.defs.platform.dagster_internals import PARTITION, AssetJob
from persona_pipeline.defs.platform.place import Place
from persona_pipeline.defs.platform.resources import (
    EvaluationSettings,
    WorldResource,
    known_agents,
    known_failures,
    retry_unanswered,
)
from persona_pipeline.evaluation.read import WorldReader, voice_state
from persona_pipeline.evaluation.run import evaluate_stored, open_scope, score_stored
from persona_pipeline.evaluation.snapshot import AgentScope
from persona_pipeline.guard.gate import counted
from persona_pipeline.guard.report import AgentReport
from persona_pipeline.world.personas import PERSONAS, yaml_stems
from persona_pipeline.world.speakers import stored_names
from persona_pipeline.world.world import World

Context = dg.AssetExecutionContext
Made = Iterator[dg.MaterializeResult | Event]


@dataclass(frozen=True)
class AgentStep:
    """Where a step is under way, and for whom; of several agents, the first."""

    specs: Specs
    context: Context
    world: World
    evaluation: EvaluationSettings
    agent_id: str

    def scope(self, dimensions: Sequence[str]) -> AgentScope:
        """Return what the run is about: the window it fixed, else the agent's newest."""
        window = run_tags.pinned_window(self.context.instance, self.context.run_id)
        return WorldReader(self.world).scope(self.agent_id, dimensions, window)

    def finished(self) -> AgentReport:
        """Return the report of the run that the agent's scores make up; ConfigError: one is not of its current messages."""
        judge, request = self.evaluation.open_judge(self.world), self.evaluation.request(self.world)
        return evaluate_stored(self.world, self.scope(()), judge, request)

    def asked(self, made: Mapping[str, dg.AssetSpec]) -> list[str]:
        """Return the dimensions whose assets are asked for."""
        return [dimension for dimension, spec in made.items() if spec.key in self.context.selected_asset_keys]


def named_agents(context: Context, world: World) -> list[str]:
    """Return the agents whose partitions a run names; ConfigError: it names none, or a single one without a persona file."""
    if context.has_partition_key_range:
        return list(context.partition_keys)
    if context.has_partition_key and context.partition_key in yaml_stems(world.root / PERSONAS):
        return [context.partition_key]
    named = f"there is no agent {context.partition_key!r}" if context.has_partition_key else "the run names no agent"
    agents = known_agents(world.root) or ["AGENT"]
    raise ConfigError(f"{named}; give --tags '{json.dumps({PARTITION: agents[-1]})}', agents are {', '.join(agents)}")


def make_personas(at: AgentStep) -> Made:
    """Bring the persona into the store."""
    yield outcomes.persona_outcome(at.world.sync_persona(at.agent_id)).result(at.specs.personas)


def make_messages(at: AgentStep) -> Made:
    """Fix the window of messages, which the run keeps to. Past ones are evaluated at once, beside the newest results."""
    for problem in at.world.sync_messages().problems:
        at.context.log.warning(f"left out: {problem}")
    request = at.evaluation.request(at.world, [at.agent_id])
    scope = open_scope(at.world, at.agent_id, request)
    if scope.past or request.history or request.touched:
        yield from evaluate_several(at, [at.agent_id])
        return
    run_tags.pin_window(at.context.instance, at.context.run_id, scope.window)
    said = at.world.messages(scope.window, agent_id=at.agent_id)
    names = stored_names(at.world).of([at.agent_id])
    for line in names.warnings():
        at.context.log.warning(line)
    yield outcomes.messages_outcome(request.window, scope.window, said, names).result(at.specs.messages)


def make_proposition_sets(at: AgentStep) -> Made:
    """Merge the claims of the dimensions that are asked for; a broken file stops none of the others."""
    problems: list[Problem] = []
    for dimension in at.asked(at.specs.propositions):
        try:
            stored = at.world.sync_claims(at.agent_id, dimension)
        except ConfigError as error:
            problems += error.problems
            continue
        yield outcomes.propositions_outcome(stored).result(at.specs.propositions[dimension])
    if problems:
        raise ConfigError(problems)


def make_scores(at: AgentStep) -> Made:
    """Score the dimensions that are asked for, with their judgments in one fan-out."""
    asked = at.asked(at.specs.scores)
    judge = at.evaluation.open_judge(at.world)
    run = score_stored(at.world, at.scope(asked), judge, at.evaluation.request(at.world))
    found = [run.dimensions.get(dimension) for dimension in asked]
    for scored in found:
        retry_unanswered(scored.unscored_reasons if scored else {}, judge, at.context.retry_number)
    for dimension, scored in zip(asked, found, strict=True):
        spec = at.specs.scores[dimension]
        yield outcomes.scores_outcome(scored, spec).result(spec)


def make_runs(at: AgentStep) -> Made:
    """Complete the run that the scores make up, and keep it with its comparison."""
    yield outcomes.run_outcome(at.finished().evaluation).result(at.specs.runs)


def make_comparisons(at: AgentStep) -> Made:
    """Compare the run with the agent's baseline as it is now; what fell is judged again before it is called a fall."""
    report = at.finished()
    run_tags.label_verdict(at.context.instance, at.context.run_id, verdict([agent_line(report)]))
    yield outcomes.comparison_outcome(report).result(at.specs.comparisons)


def make_in_character(at: AgentStep) -> Made:
    """Say that the agent is in character, as of its newest comparison; fails where it is not."""
    line = agent_line(checks.newest_report(at.agent_id, at.world), counted(at.evaluation.asked(at.world)))
    if failure := failure_of([line]):
        raise failure
    if said := outcomes.in_character_outcome(line):
        yield said.result(at.specs.in_character)


def evaluate_several(
    at: AgentStep, agent_ids: Sequence[str], dimensions: Sequence[str] | None = None
) -> Iterator[Event]:
    """Evaluate agents in this one step, down to their checks, and raise ``dagster.Failure`` where their runs would."""
    if len(agent_ids) > 1:
        at.context.instance.add_run_tags(at.context.run_id, {run_tags.AGENT: f"{len(agent_ids)} agents"})
    request = at.evaluation.request(at.world, agent_ids, dimensions)
    planned = at.context.run.asset_selection or [spec.key for spec in at.specs.evaluated]
    result = yield from evaluate_together(at.specs, at.context, at.world, at.evaluation, request, planned)
    yield checks.all_in_character(at.specs, at.context.instance, at.world, result.fail_on)
    lines = agent_lines(result)
    run_tags.label_verdict(at.context.instance, at.context.run_id, verdict(lines))
    if failure := failure_of(lines):
        raise failure


def asked_dimensions(specs: Specs, context: Context) -> Sequence[str] | None:
    """Return the dimensions whose scores a run over several agents is asked for; None: everything from the persona on.

    Raises ``dagster.Failure``: it is not about the comparison, which a run over several agents ends with.
    """
    asked = context.run.asset_selection
    if not asked:
        return None
    if asked.isdisjoint({specs.comparisons.key, specs.in_character.key}):
        raise dg.Failure(
            "several agents are evaluated together down to the comparison: select baseline_comparisons too, or one agent",
            allow_retries=False,
        )
    if not asked.isdisjoint({specs.personas.key, specs.messages.key}):
        return None
    return [
        name for name in specs.scores if not asked.isdisjoint({specs.propositions[name].key, specs.scores[name].key})
    ]


def build_step(
    specs: Specs, name: str, step: Callable[[AgentStep], Made], made: Sequence[dg.AssetSpec], pool: str | None = None
) -> dg.AssetsDefinition:
    """Return the step that makes some assets of an agent, or those of them that are asked for.

    Several partitions are one run, not one each: its first step evaluates them together and says what it found of each, and
    the others are skipped.
    """

    @dg.multi_asset(
        name=specs.place.name(name),
        specs=made,
        partitions_def=specs.agents,
        can_subset=len(made) > 1,
        pool=pool,
        backfill_policy=dg.BackfillPolicy.single_run(),
        description=step.__doc__,
    )
    @specs.place.bound
    def assets(context: dg.AssetExecutionContext, world: WorldResource, evaluation: EvaluationSettings) -> Made:
        with known_failures():
            agent_ids = named_agents(context, opened := world.open())
            at = AgentStep(specs, context, opened, evaluation, agent_ids[0])
            if len(agent_ids) > 1:
                yield from evaluate_several(at, agent_ids, asked_dimensions(specs, context))
            else:
                yield from step(at)

    return assets


def build_steps(specs: Specs) -> list[dg.AssetsDefinition]:
    return [
        build_step(specs, "personas", make_personas, [specs.personas]),
        build_step(specs, "messages", make_messages, [specs.messages]),
        build_step(specs, "proposition_sets", make_proposition_sets, list(specs.propositions.values())),
        build_step(specs, "scores", make_scores, list(specs.scores.values()), pool=specs.place.judge_pool),
        build_step(specs, "evaluation_runs", make_runs, [specs.runs]),
        build_step(specs, "baseline_comparisons", make_comparisons, [specs.comparisons]),
        build_step(specs, "in_character", make_in_character, [specs.in_character]),
    ]


def build_voices(specs: Specs) -> dg.AssetsDefinition:
    @dg.multi_asset(
        name=specs.place.name("voices"),
        specs=[specs.voices],
        partitions_def=specs.agents,
        description="Learn the agent's voice from what it said before the window, if it is not learnt, and follow what it said "
        "since.",
    )
    @specs.place.bound
    def agent_voice(
        context: dg.AssetExecutionContext, world: WorldResource, evaluation: EvaluationSettings
    ) -> Iterator[dg.MaterializeResult]:
        with known_failures():
            [agent_id] = named_agents(context, opened := world.open())
            opened.sync_persona(agent_id)
            for problem in opened.sync_messages().problems:
                context.log.warning(f"left out: {problem}")
            asked = evaluation.request(opened)
            window = WorldReader(opened).window(asked.window, asked.as_of, asked.since)
            state = voice_state(opened, agent_id, window, learn=True)
        if state.learnt.note:
            context.log.info(state.learnt.note)
        for found in state.alarms:
            context.log.warning(found.text)
        yield outcomes.voice_outcome(state).result(specs.voices)

    return agent_voice


@dataclass(frozen=True)
class Agents:
    """What other parts of a place build upon."""

    specs: Specs
    evaluate_agent: AssetJob
    follow_voices: AssetJob
    definitions: dg.Definitions


def build_agents(place: Place, messages_from: Sequence[dg.AssetKey] = (), *, weekly: bool = True) -> Agents:
    """Return the agents of a place, by weeks too where the settings have them and they are ``weekly``.

    ``messages_from``: the assets its messages come from, where they come from any.
    """
    sources = build_sources(place, messages_from)
    specs = build_specs(place, sources, weekly=weekly)
    steps, voices, gate = build_steps(specs), build_voices(specs), build_gate(specs)
    evaluate_agent = place.asset_job(
        "evaluate_agent",
        dg.AssetSelection.assets(*steps) | dg.AssetSelection.checks(gate),
        "One agent from its files to the comparison with its baseline; fails when it regressed.",
        partitions_def=specs.agents,
    )
    follow_voices = place.asset_job(
        "follow_voices",
        dg.AssetSelection.assets(voices),
        "Does an agent still sound like itself? Learns its voice if need be and follows its messages. Judges nothing.",
        partitions_def=specs.agents,
    )
    definitions = dg.Definitions(
        assets=[*sources.by_name.values(), *steps, voices, *build_weekly_scores(specs)],
        asset_checks=[gate],
        jobs=[evaluate_agent, follow_voices],
    )
    return Agents(specs, evaluate_agent, follow_voices, definitions)
