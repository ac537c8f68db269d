"""The lineage of one agent."""

import dagster as dg

from persona_pipeline.defs.agents import assets, checks, jobs, sources

defs = dg.Definitions(
    assets=[*sources.SOURCES, *assets.AGENT_ASSETS],
    asset_checks=[checks.gate_checks],
    jobs=[jobs.evaluate_agent],
)
