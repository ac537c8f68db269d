"""What changed, and what runs because of it."""

import dagster as dg

from persona_pipeline.defs.changes import incoming, sensors, voices

defs = dg.Definitions(
    jobs=[incoming.read_messages],
    sensors=[incoming.message_files, sensors.source_observations, sensors.world_changes, voices.voice_alarms],
)
