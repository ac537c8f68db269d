"""One agent from its files to its checks."""

import dagster as dg

from persona_pipeline.defs.agents import assets, checks
from persona_pipeline.defs.agents.partitions import agents

evaluate_agent = dg.define_asset_job(
    "evaluate_agent",
    selection=dg.AssetSelection.assets(*assets.AGENT_ASSETS) | dg.AssetSelection.checks(checks.gate_checks),
    partitions_def=agents,
    description="One agent from its files to the comparison with its baseline; fails when it regressed.",
)
