"""What changed, and what runs because of it."""

import dagster as dg

from persona_pipeline.defs.agents.definitions import Agents
from persona_pipeline.defs.changes.incoming import build_message_files, build_read_messages
from persona_pipeline.defs.changes.sensors import build_source_observations, build_world_changes
from persona_pipeline.defs.changes.voices import build_voice_alarms


def build_changes(agents: Agents, evaluate_cohort: dg.JobDefinition) -> dg.Definitions:
    """Return what sees the world of a place change."""
    place = agents.specs.place
    read_messages = build_read_messages(place)
    return dg.Definitions(
        jobs=[read_messages],
        sensors=[
            build_message_files(place, read_messages),
            build_source_observations(agents.specs),
            build_world_changes(agents, evaluate_cohort),
            build_voice_alarms(agents),
        ],
    )
