"""The lineage of one agent."""

import dagster as dg

from persona_pipeline.defs.agents import assets, checks, jobs, sources, voices

defs = dg.Definitions(
    assets=[*sources.SOURCES, *assets.AGENT_ASSETS, voices.agent_voice],
    asset_checks=[checks.gate_checks],
    jobs=[jobs.evaluate_agent, voices.follow_voices],
)
