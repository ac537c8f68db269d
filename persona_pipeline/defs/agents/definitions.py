"""What there is of every agent of a place: the step that evaluates it, its voice, its weeks, and the job over them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import dagster as dg

from persona_pipeline.defs.agents import outcomes
from persona_pipeline.defs.agents.evaluation import build_evaluation, named_agents
from persona_pipeline.defs.agents.specs import Specs, build_specs
from persona_pipeline.defs.agents.weeks import build_weekly_scores
from persona_pipeline.defs.platform.place import EVALUATION, WORLD, Place
from persona_pipeline.defs.platform.resources import evaluation_of, known_failures, world_of
from persona_pipeline.evaluation.read import WorldReader
from persona_pipeline.evaluation.voice import voice_state


def build_voices(specs: Specs) -> dg.AssetsDefinition:
    """Return the step that learns and follows voices."""

    @dg.multi_asset(
        name=specs.place.name("follow_voice"),
        specs=[specs.voices],
        partitions_def=specs.agents,
        required_resource_keys=specs.place.names([WORLD, EVALUATION]),
        description="Learn the agent's voice from what it said before the window, if it is not learnt, and follow what it said "
        "since.",
    )
    def follow_voice(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult]:
        with known_failures():
            world = world_of(specs.place, context)
            [agent_id] = named_agents(context, world)
            world.sync_persona(agent_id)
            for problem in world.sync_messages().problems:
                context.log.warning(f"left out: {problem}")
            asked = evaluation_of(specs.place, context).request(world)
            window = WorldReader(world).window(asked.window, asked.as_of, asked.since)
            state = voice_state(world, agent_id, window, learn=True)
        if state.learnt.note:
            context.log.info(state.learnt.note)
        for found in state.alarms:
            context.log.warning(found.text)
        yield outcomes.voice_outcome(state).result(specs.voices)

    return follow_voice


@dataclass(frozen=True)
class Agents:
    """Parts for the other definitions of a place."""

    specs: Specs
    evaluate_agent: Any
    definitions: dg.Definitions


def build_agents(place: Place, *, weekly: bool = True) -> Agents:
    """Return the agents of a place, by weeks too where the settings have them and they are ``weekly``."""
    specs = build_specs(place, weekly=weekly)
    evaluation = build_evaluation(specs)
    evaluate_agent = place.asset_job(
        "evaluate_agent",
        dg.AssetSelection.assets(evaluation),
        "One agent, or several, from the files to the verdict; fails when one is out of character.",
        partitions_def=specs.agents,
    )
    definitions = dg.Definitions(
        assets=[evaluation, build_voices(specs), *build_weekly_scores(specs)], jobs=[evaluate_agent]
    )
    return Agents(specs, evaluate_agent, definitions)
