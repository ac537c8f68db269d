"""What lies outside: files and messages. The sensor records their data versions, which is what makes scores stale."""

from typing import Any

import dagster as dg

from persona_pipeline.defs.agents.partitions import agents
from persona_pipeline.defs.platform.labels import OWNERS
from persona_pipeline.propositions import ALL_DIMENSIONS


def _source(key: str | list[str], kind: str, description: str) -> dg.AssetSpec:
    options: dict[str, Any] = {"partitions_def": agents, "group_name": "sources", "owners": OWNERS}
    return dg.AssetSpec(key, kinds={kind}, description=description, **options)


persona_files = _source(
    "persona_files",
    "yaml",
    "`personas/<agent>.yaml`: who the agent is. The data version is a digest of the file.",
)
message_windows = _source(
    "message_windows",
    "jsonl",
    "What the agent has said, from `messages/` or written to the store by the agents' runtime. The data version is the "
    "number of messages and a digest of them, as of the last evaluation that was asked for.",
)
baseline_files = _source(
    "baseline_files",
    "json",
    "`baselines/<agent>.json`: golden scores the agent should not fall below.",
)
proposition_files = {
    dimension: _source(
        ["proposition_files", dimension],
        "yaml",
        f"`propositions/{dimension}/_default.yaml` and `<agent>.yaml`: claims about the agent.",
    )
    for dimension in ALL_DIMENSIONS
}

SOURCES = [persona_files, message_windows, baseline_files, *proposition_files.values()]
