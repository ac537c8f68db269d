"""One agent from its files to its checks, and its voice alone."""

from collections.abc import Sequence

import dagster as dg

from persona_pipeline.defs.agents.specs import Specs
from persona_pipeline.defs.platform.dagster_internals import AssetJob

EVALUATE_AGENT, FOLLOW_VOICES = "evaluate_agent", "follow_voices"


def build_evaluate_agent(
    specs: Specs, steps: Sequence[dg.AssetsDefinition], gate: dg.AssetChecksDefinition
) -> AssetJob:
    """Return the job that evaluates an agent."""
    return dg.define_asset_job(
        specs.place.name(EVALUATE_AGENT),
        selection=dg.AssetSelection.assets(*steps) | dg.AssetSelection.checks(gate),
        partitions_def=specs.agents,
        executor_def=specs.place.executor,
        description="One agent from its files to the comparison with its baseline; fails when it regressed.",
    )


def build_follow_voices(specs: Specs, voices: dg.AssetsDefinition) -> AssetJob:
    """Return the job that follows an agent's voice."""
    return dg.define_asset_job(
        specs.place.name(FOLLOW_VOICES),
        selection=dg.AssetSelection.assets(voices),
        partitions_def=specs.agents,
        executor_def=specs.place.executor,
        description="Does an agent still sound like itself? Learns its voice if need be and follows its messages. Judges nothing.",
    )
