"""Each agent's own voice: learnt once, then followed. It is no part of an evaluation, and asks no judge."""

from collections.abc import Iterator

import dagster as dg

from persona_pipeline.defs.agents import outcomes
from persona_pipeline.defs.agents.specs import Specs
from persona_pipeline.defs.platform.failures import known_failures
from persona_pipeline.defs.platform.resources import EvaluationSettings, WorldResource
from persona_pipeline.evaluation.read import request_window
from persona_pipeline.evaluation.voice import voice_state


def build_voices(specs: Specs) -> dg.AssetsDefinition:
    """Return the step that follows the voice of an agent of a place."""

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
        agent_id = context.partition_key
        with known_failures():
            opened = world.open()
            opened.sync_persona(agent_id)
            for problem in opened.sync_messages().problems:
                context.log.warning(f"left out: {problem}")
            state = voice_state(opened, agent_id, request_window(opened, evaluation.request(opened)), learn=True)
        if state.learnt.note:
            context.log.info(state.learnt.note)
        for found in state.alarms:
            context.log.warning(found.text)
        yield outcomes.voice_outcome(state).result(specs.voices)

    return agent_voice
