"""What follows agents' voices and asks the judge where one is lost: about the messages of the alarm, once an alarm.

Cheap where nothing is said: a look counts each agent's messages and reads only of those who said something since the last.
Its cursor is those counts. An agent whose voice is to be learnt stays in the look until a run has learnt it.
"""

import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime

import dagster as dg

from persona_pipeline.defs.agents.definitions import Agents
from persona_pipeline.defs.platform.place import EVALUATION
from persona_pipeline.defs.platform.resources import WorldResource, known_agents
from persona_pipeline.defs.platform.run_tags import request_tags
from persona_pipeline.errors import ConfigError
from persona_pipeline.evaluation.read import resolve_window
from persona_pipeline.evaluation.request import EvaluationRequest, settled
from persona_pipeline.evaluation.voice import VoiceState, alarm_window, voice_state
from persona_pipeline.scoring.voice_alarm import VoiceChange
from persona_pipeline.world.counting import said_by_agent
from persona_pipeline.world.models import Window
from persona_pipeline.world.world import World

# A look has a minute; who is left is looked at in the next one.
MOST_SECONDS = 20.0
# Runs that learn a voice, asked for in one look.
MOST_LEARNING = 10


def build_voice_alarms(agents: Agents) -> dg.SensorDefinition:
    """Return the sensor that follows the voices of a place's agents."""
    place = agents.specs.place

    @dg.sensor(
        name=place.name("voice_alarms"),
        jobs=[agents.evaluate_agent, agents.follow_voices],
        minimum_interval_seconds=place.orchestration.sensor_seconds,
        default_status=place.orchestration.sensor_status,
        description="Follows what agents say and, when one no longer sounds like itself, has the judge evaluate the messages of "
        "that alarm, once. A voice that is not learnt is learnt first, by follow_voices. No alarm, no judgment.",
    )
    @place.bound
    def voice_alarms(context: dg.SensorEvaluationContext, world: WorldResource) -> dg.SensorResult | dg.SkipReason:
        """Look at the agents with new messages and request a run for each new alarm."""
        opened = world.open()
        counts = {name: said.all.messages for name, said in said_by_agent(opened.store, opened.horizon).items()}
        looked = _looked(context.cursor)
        partitions = set(context.instance.get_dynamic_partitions(agents.specs.sources.agents_name))
        there = [name for name in known_agents(opened.root) if name in partitions]
        waiting = [name for name in there if counts.get(name, 0) != looked.get(name, 0)]
        if not waiting or opened.newest_message_time() is None:
            return dg.SkipReason(f"{len(there)} agents, nobody has said anything new")
        window = resolve_window(opened, settled(opened, EvaluationRequest(**place.asked)).window, None)
        done = {name: looked[name] for name in there if name in looked}
        requests: list[dg.RunRequest] = []
        learning = 0
        ends = time.monotonic() + MOST_SECONDS
        for name in waiting:
            if time.monotonic() > ends:
                break
            state = _state(context, opened, name, window)
            if state is not None and state.learnable:
                if learning < MOST_LEARNING:
                    requests.append(_learning(agents, state, counts[name]))
                    learning += 1
                continue
            done[name] = counts.get(name, 0)
            if state is not None:
                requests += [_judging(agents, found) for found in state.alarms]
        if not requests:
            said = f"{len(waiting)} of {len(there)} agents have said something new, each in its own voice as far as that is learnt"
            return dg.SensorResult(skip_reason=said, cursor=_cursor(done))
        return dg.SensorResult(run_requests=requests, cursor=_cursor(done))

    return voice_alarms


def _state(context: dg.SensorEvaluationContext, world: World, agent_id: str, window: Window) -> VoiceState | None:
    """Return how a voice stands; None for an agent whose file is broken, which its own run will say."""
    try:
        world.sync_persona(agent_id)
        state = voice_state(world, agent_id, window)
    except ConfigError as error:
        context.log.warning(str(error))
        return None
    if state.learnt.note:
        context.log.info(state.learnt.note)
    return state


def _learning(agents: Agents, state: VoiceState, count: int) -> dg.RunRequest:
    return dg.RunRequest(
        job_name=agents.follow_voices.name,
        run_key=f"{state.agent_id}/{state.learnt.persona_hash[:16]}@{count}",
        partition_key=state.agent_id,
        tags=request_tags("voice not learnt yet", agent_id=state.agent_id),
    )


def _judging(agents: Agents, found: VoiceChange) -> dg.RunRequest:
    """Return the one run an alarm is worth: an evaluation of its messages and of no others."""
    window, agent_id = alarm_window(found), found.alarm.agent_id
    assert window.start is not None
    config = {"since": _moment(window.start), "as_of": _moment(window.end)}
    return dg.RunRequest(
        job_name=agents.evaluate_agent.name,
        run_key=f"{agent_id}/{found.alarm.raised_at.id}",
        partition_key=agent_id,
        run_config={"resources": {agents.specs.place.name(EVALUATION): {"config": config}}},
        tags=request_tags("voice alarm", agent_id=agent_id),
    )


def _looked(cursor: str | None) -> Mapping[str, int]:
    """Return how many messages of each agent were there at the last look; a cursor that cannot be read is none."""
    try:
        found = json.loads(cursor or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _cursor(counts: Mapping[str, int]) -> str:
    return json.dumps(dict(sorted(counts.items())))


def _moment(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat()
