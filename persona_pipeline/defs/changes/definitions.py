"""What changed, and what runs because of it."""

import dagster as dg

from persona_pipeline.defs.changes import sensors, voices

defs = dg.Definitions(
    sensors=[sensors.source_observations, sensors.world_changes, voices.voice_alarms],
)
