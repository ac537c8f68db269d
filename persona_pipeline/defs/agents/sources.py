"""What lies outside: files and messages. A sensor records their data versions, which is what makes scores stale."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from persona_pipeline.changes.versions import BASELINE, MESSAGES, PERSONA
from persona_pipeline.defs.platform.labels import OWNERS
from persona_pipeline.defs.platform.place import Place
from persona_pipeline.defs.platform.resources import AGENTS
from persona_pipeline.propositions import ALL_DIMENSIONS


@dataclass(frozen=True)
class Sources:
    """The sources of a place, and its agents: a partition each, a key a persona file. Keys come and go while Dagster runs."""

    agents: dg.DynamicPartitionsDefinition
    agents_name: str
    persona_files: dg.AssetSpec
    message_windows: dg.AssetSpec
    baseline_files: dg.AssetSpec
    proposition_files: Mapping[str, dg.AssetSpec]

    @property
    def by_name(self) -> dict[str, dg.AssetSpec]:
        """The sources by the name that a change is noted under."""
        return {
            PERSONA: self.persona_files,
            **self.proposition_files,
            BASELINE: self.baseline_files,
            MESSAGES: self.message_windows,
        }


def build_sources(place: Place, messages_from: Sequence[dg.AssetKey] = ()) -> Sources:
    """Return the sources of a place; ``messages_from``: the assets its messages come from, where they come from any."""
    agents = dg.DynamicPartitionsDefinition(name=place.path(AGENTS))
    options: dict[str, Any] = {"partitions_def": agents, "group_name": place.path("sources"), "owners": OWNERS}

    def source(name: str | list[str], kind: str, description: str, deps: Sequence[dg.AssetKey] = ()) -> dg.AssetSpec:
        return dg.AssetSpec(place.key(name), deps=deps, kinds={kind}, description=description, **options)

    return Sources(
        agents,
        place.path(AGENTS),
        persona_files=source(
            "persona_files",
            "yaml",
            "`personas/<agent>.yaml`: who the agent is. The data version is a digest of the file.",
        ),
        message_windows=source(
            "message_windows",
            "jsonl",
            "What the agent has said, from `messages/` or written to the store by the agents' runtime. The data version is the "
            "number of messages and a digest of them, recorded once there are enough new ones or it is quiet.",
            messages_from,
        ),
        baseline_files=source(
            "baseline_files",
            "json",
            "`baselines/<agent>.json`: golden scores the agent should not fall below.",
        ),
        proposition_files={
            dimension: source(
                ["proposition_files", dimension],
                "yaml",
                f"`propositions/{dimension}/_default.yaml` and `<agent>.yaml`: claims about the agent.",
            )
            for dimension in ALL_DIMENSIONS
        },
    )
