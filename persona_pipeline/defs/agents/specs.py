"""The lineage of one agent as the graph shows it: persona, messages, claims -> scores -> run -> comparison with the baseline."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import dagster as dg

from persona_pipeline.defs.agents.sources import Sources
from persona_pipeline.defs.platform.labels import OWNERS
from persona_pipeline.defs.platform.place import Place
from persona_pipeline.defs.platform.settings import OrchestrationSettings
from persona_pipeline.propositions import ALL_DIMENSIONS

_TOGETHER = "Several agents at once are evaluated in one run, as `evaluate_cohort` does it."


@dataclass(frozen=True)
class Specs:
    """The assets of every agent of a place; what is a mapping has one a dimension."""

    place: Place
    sources: Sources
    personas: dg.AssetSpec
    messages: dg.AssetSpec
    propositions: Mapping[str, dg.AssetSpec]
    scores: Mapping[str, dg.AssetSpec]
    runs: dg.AssetSpec
    comparisons: dg.AssetSpec
    in_character: dg.AssetSpec
    voices: dg.AssetSpec

    @property
    def agents(self) -> dg.DynamicPartitionsDefinition:
        """The agents, a partition each."""
        return self.sources.agents

    @property
    def evaluated(self) -> Sequence[dg.AssetSpec]:
        """From upstream to downstream: what an evaluation makes."""
        return (
            self.personas,
            self.messages,
            *self.propositions.values(),
            *self.scores.values(),
            self.runs,
            self.comparisons,
            self.in_character,
        )


def freshness(settings: OrchestrationSettings) -> dg.FreshnessPolicy | None:
    """Return when runs and comparisons count as old; None: never."""
    if not settings.fresh_hours:
        return None
    hours = timedelta(hours=settings.fresh_hours)
    return dg.FreshnessPolicy.time_window(fail_window=2 * hours, warn_window=hours)


def build_specs(place: Place, sources: Sources) -> Specs:
    """Return the assets of every agent of a place."""

    def spec(
        name: str | list[str], group: str, deps: Sequence[dg.AssetSpec], kinds: set[str], text: str, **more: Any
    ) -> dg.AssetSpec:
        together = _TOGETHER if more.pop("together", True) else "Several agents are a run each."
        return dg.AssetSpec(
            place.key(name),
            deps=deps,
            group_name=place.path(group),
            kinds=kinds,
            description=f"{text} {together}",
            partitions_def=sources.agents,
            owners=OWNERS,
            # An evaluation of a past moment, and one of several agents, says itself what it found, and where nothing new is.
            skippable=True,
            **more,
        )

    personas = spec(
        "personas",
        "world",
        [sources.persona_files],
        {"yaml", "sql"},
        "The persona in the store: name, text and correction settings, from `personas/<agent>.yaml`.",
    )
    messages = spec(
        "messages",
        "world",
        [sources.message_windows, personas],
        {"jsonl", "sql"},
        "The window of messages the agent is evaluated on: `run_messages` in the store, and the window's bounds.",
    )
    propositions = {
        dimension: spec(
            ["proposition_sets", dimension],
            "propositions",
            [sources.proposition_files[dimension], personas],
            {"yaml", "sql"},
            f"The agent's claims of {dimension.replace('_', ' ')}: the default file's, then the agent's own, merged.",
            tags={"dimension": dimension},
        )
        for dimension in ALL_DIMENSIONS
    }
    scores = {
        dimension: spec(
            f"{dimension}_scores",
            "scores",
            # Dagster looks one step upstream for what is out of date: the files are named, so that an edit shows here too.
            [personas, messages, propositions[dimension], sources.persona_files, sources.proposition_files[dimension]],
            {"anthropic", "sql"},
            f"How the agent does in {dimension.replace('_', ' ')}, 0-9, claim by claim: rows of `evaluation_scores`.",
            tags={"dimension": dimension},
            code_version=place.judge_version,
        )
        for dimension in ALL_DIMENSIONS
    }
    runs = spec(
        "evaluation_runs",
        "evaluation",
        list(scores.values()),
        {"sql"},
        "The finished run: overall score, dimensions, cost and provenance, a row of `evaluation_runs`.",
        freshness_policy=freshness(place.orchestration),
    )
    comparisons = spec(
        "baseline_comparisons",
        "evaluation",
        [runs, sources.baseline_files],
        {"sql", "json"},
        "The run beside the agent's golden baseline: what fell, by how much, and which claims. Its checks are the gate.",
        freshness_policy=freshness(place.orchestration),
    )
    in_character = spec(
        "in_character",
        "evaluation",
        [comparisons],
        {"sql"},
        "Is the agent in character? Nothing is materialized where it drifted or cannot be told, so that its partition is red "
        "here and a backfill it is part of fails. What should go on only with agents in character depends on this.",
    )
    voices = spec(
        "voices",
        "evaluation",
        # No judge's score: from what was said alone.
        [sources.persona_files, sources.message_windows],
        {"python", "sql"},
        "Does the agent still sound like itself? Its voice as it was learnt, and the sum of what does not fit it, message by "
        "message. Asks no judge.",
        together=False,
    )
    return Specs(place, sources, personas, messages, propositions, scores, runs, comparisons, in_character, voices)
