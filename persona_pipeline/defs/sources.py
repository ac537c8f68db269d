"""What lies outside: files and messages. Sensors record their data versions as observations, which is what makes scores stale."""

import dagster as dg

from persona_pipeline.defs.partitions import agents
from persona_pipeline.propositions import ALL_DIMENSIONS

persona_files = dg.AssetSpec(
    "persona_files",
    partitions_def=agents,
    group_name="sources",
    kinds={"yaml"},
    description="`personas/<agent>.yaml`: who the agent is. The data version is the file's content hash.",
)
message_files = dg.AssetSpec(
    "message_windows",
    partitions_def=agents,
    group_name="sources",
    kinds={"jsonl"},
    description="What the agent said lately, from `messages/` or written to the store by the agents' runtime.",
)
baseline_files = dg.AssetSpec(
    "baseline_files",
    partitions_def=agents,
    group_name="sources",
    kinds={"json"},
    description="`baselines/<agent>.json`: golden scores the agent should not fall below.",
)
proposition_files = {
    dimension: dg.AssetSpec(
        ["proposition_files", dimension],
        partitions_def=agents,
        group_name="sources",
        kinds={"yaml"},
        description=f"`propositions/{dimension}/_default.yaml` and `<agent>.yaml`: claims about the agent.",
    )
    for dimension in ALL_DIMENSIONS
}

SOURCES = [persona_files, message_files, baseline_files, *proposition_files.values()]
