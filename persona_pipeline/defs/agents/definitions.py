"""The lineage of one agent."""

from collections.abc import Sequence
from dataclasses import dataclass

import dagster as dg

from persona_pipeline.defs.agents.assets import build_steps
from persona_pipeline.defs.agents.checks import build_gate
from persona_pipeline.defs.agents.jobs import build_evaluate_agent, build_follow_voices
from persona_pipeline.defs.agents.sources import build_sources
from persona_pipeline.defs.agents.specs import Specs, build_specs
from persona_pipeline.defs.agents.voices import build_voices
from persona_pipeline.defs.platform.dagster_internals import AssetJob
from persona_pipeline.defs.platform.place import Place


@dataclass(frozen=True)
class Agents:
    """What other parts of a place build upon."""

    specs: Specs
    evaluate_agent: AssetJob
    follow_voices: AssetJob
    definitions: dg.Definitions


def build_agents(place: Place, messages_from: Sequence[dg.AssetKey] = ()) -> Agents:
    """Return the agents of a place; ``messages_from``: the assets its messages come from, where they come from any."""
    sources = build_sources(place, messages_from)
    specs = build_specs(place, sources)
    steps, voices, gate = build_steps(specs), build_voices(specs), build_gate(specs)
    evaluate_agent, follow_voices = build_evaluate_agent(specs, steps, gate), build_follow_voices(specs, voices)
    definitions = dg.Definitions(
        assets=[*sources.by_name.values(), *steps, voices],
        asset_checks=[gate],
        jobs=[evaluate_agent, follow_voices],
    )
    return Agents(specs, evaluate_agent, follow_voices, definitions)
