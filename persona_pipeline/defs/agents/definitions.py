"""The lineage of one agent."""

import dagster as dg

from persona_pipeline.defs.agents import assets, checks, jobs, sensors, sources

defs = dg.Definitions(
    assets=[*sources.SOURCES, *assets.AGENT_ASSETS],
    asset_checks=checks.CHECKS,
    jobs=[jobs.evaluate_agent],
    sensors=[sensors.agent_partitions],
)
