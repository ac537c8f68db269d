"""What lies outside: files and messages. A sensor records their data versions, which is what makes scores stale."""

from typing import Any

import dagster as dg

from persona_pipeline.changes.versions import BASELINE, MESSAGES, PERSONA
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
    "number of messages and a digest of them, recorded once there are enough new ones or it is quiet.",
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

BY_NAME = {PERSONA: persona_files, **proposition_files, BASELINE: baseline_files, MESSAGES: message_windows}
SOURCES = list(BY_NAME.values())
