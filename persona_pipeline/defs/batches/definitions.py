"""Judging at half the price, in message batches."""

import dagster as dg

from persona_pipeline.defs.batches import jobs, sensors

defs = dg.Definitions(
    jobs=[jobs.submit_batches, jobs.collect_batches],
    sensors=[sensors.open_batches],
)
