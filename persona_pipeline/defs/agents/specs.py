"""The lineage of one agent as the graph shows it: persona, messages, claims -> scores -> run -> comparison with the baseline."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

import dagster as dg

from persona_pipeline.defs.platform.place import OWNERS, Place
from persona_pipeline.defs.platform.resources import AGENTS
from persona_pipeline.defs.platform.settings import OrchestrationSettings
from persona_pipeline.evaluation.changes import BASELINE, MESSAGES, PERSONA
from persona_pipeline.world.propositions.models import ALL_DIMENSIONS


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
            "baseline_files", "json", "`baselines/<agent>.json`: golden scores the agent should not drop below."
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


# The two dimensions of a partition; its key has them in this order.
AGENT, WEEK = "agent", "week"


@dataclass(frozen=True)
class Weeks:
    """Agents by weeks (UTC, from the setting's first on), a partition each: what was said, and how it was."""

    partitions: dg.MultiPartitionsDefinition
    messages: dg.AssetSpec
    scores: dg.AssetSpec

    def key(self, agent_id: str, week: date) -> dg.MultiPartitionKey:
        """Return the partition of an agent's week."""
        return dg.MultiPartitionKey({AGENT: agent_id, WEEK: week.isoformat()})

    @property
    def over(self) -> list[date]:
        """The first days of the weeks that are over."""
        keys = self.partitions.get_partitions_def_for_dimension(WEEK).get_partition_keys()
        return [date.fromisoformat(key) for key in keys]


def build_weeks(place: Place, sources: Sources) -> Weeks | None:
    """Return the weeks of a place; None: its settings name no first one."""
    first = place.orchestration.first_week
    if first is None:
        return None
    # In UTC, as the messages are counted; a week begins on the weekday of the first one, and is a partition once it is over.
    weekly = dg.WeeklyPartitionsDefinition(start_date=first.isoformat(), day_offset=first.isoweekday() % 7)
    partitions = dg.MultiPartitionsDefinition({AGENT: sources.agents, WEEK: weekly})
    messages = sources.message_windows.replace_attributes(
        key=place.key("weekly_messages"),
        partitions_def=partitions,
        description="What the agent said in a week. The data version is that of its messages then and in the week before, which "
        "consistency compares with; it is recorded when the week is evaluated, and when that changes afterwards.",
    )
    scores = dg.AssetSpec(
        place.key("weekly_scores"),
        # Not of claims and personas: history is how it was judged, until somebody asks for it again.
        deps=[messages],
        group_name=place.path("evaluation"),
        kinds={"sql"},
        description="How the agent did in a week, overall and by dimension, in numbers to plot. Several partitions are evaluated "
        "in one run, and the newest results stay as they are.",
        partitions_def=partitions,
        owners=OWNERS,
        skippable=True,
    )
    return Weeks(partitions, messages, scores)


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
    weeks: Weeks | None = None

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


def build_specs(place: Place, sources: Sources, *, weekly: bool = True) -> Specs:
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
        "The run beside the agent's golden baseline: what dropped, by how much, and which claims. Its checks are the gate.",
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
    weeks = build_weeks(place, sources) if weekly else None
    return Specs(
        place, sources, personas, messages, propositions, scores, runs, comparisons, in_character, voices, weeks
    )
