"""The lineage of one agent as the graph shows it: persona, messages, claims -> scores -> verdict -> in character."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Any

import dagster as dg

from persona_pipeline.defs.agents.automation import when_changed, with_what_it_rests_on
from persona_pipeline.defs.platform.place import OWNERS, Place
from persona_pipeline.defs.platform.resources import AGENTS
from persona_pipeline.defs.platform.settings import OrchestrationSettings
from persona_pipeline.evaluation.changes import BASELINE, MESSAGES, PERSONA
from persona_pipeline.world.propositions.models import ALL_DIMENSIONS

# The two dimensions of a partition by weeks; its key has them in this order.
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


@dataclass(frozen=True)
class Specs:
    """The assets of every agent of a place, a partition an agent; what is a mapping has one a dimension.

    ``sources``: what lies outside, by the name that a change is noted under.
    """

    place: Place
    agents: dg.DynamicPartitionsDefinition
    sources: Mapping[str, dg.AssetSpec]
    scores: Mapping[str, dg.AssetSpec]
    verdicts: dg.AssetSpec
    in_character: dg.AssetSpec
    voices: dg.AssetSpec
    weeks: Weeks | None = None

    @property
    def agents_name(self) -> str:
        """What the instance keeps the agents under."""
        return self.place.path(AGENTS)

    @property
    def judged(self) -> Sequence[dg.AssetSpec]:
        """What an evaluation makes, from upstream to downstream."""
        return (*self.scores.values(), self.verdicts, self.in_character)

    @property
    def evaluated(self) -> Sequence[dg.AssetSpec]:
        """What is made of one agent, from upstream to downstream."""
        return (*self.sources.values(), *self.judged)


def freshness(settings: OrchestrationSettings) -> dg.FreshnessPolicy | None:
    """Return when verdicts count as old; None: never."""
    if not settings.fresh_hours:
        return None
    hours = timedelta(hours=settings.fresh_hours)
    return dg.FreshnessPolicy.time_window(fail_window=2 * hours, warn_window=hours)


def build_specs(place: Place, *, weekly: bool = True) -> Specs:
    """Return the assets of a place, by weeks too where its settings have them and they are ``weekly``."""
    agents = dg.DynamicPartitionsDefinition(name=place.path(AGENTS))

    def spec(
        name: str | list[str],
        group: str,
        deps: Collection[dg.AssetSpec],
        kinds: set[str],
        text: str,
        **more: Any,
    ) -> dg.AssetSpec:
        return dg.AssetSpec(
            place.key(name),
            deps=deps,
            group_name=place.path(group),
            kinds=kinds,
            description=text,
            partitions_def=agents,
            owners=OWNERS,
            # An evaluation of a past moment, and one of several agents, says itself what it found, and where nothing new is.
            skippable=True,
            **more,
        )

    personas = spec(
        "personas",
        "sources",
        (),
        {"yaml", "sql"},
        "`personas/<agent>.yaml`: who the agent is, and which corrections are on. The data version is a digest of the file.",
    )
    messages = spec(
        "messages",
        "sources",
        (),
        {"jsonl", "sql"},
        "What the agent has said, from `messages/` or written to the store by the agents' runtime. The data version is the "
        "number of messages and a digest of them, recorded once there are enough new ones or it is quiet.",
    )
    baselines = spec(
        "baseline_files",
        "sources",
        (),
        {"json"},
        "`baselines/<agent>.json`: golden scores the agent should not drop below.",
    )
    propositions = {
        dimension: spec(
            ["proposition_sets", dimension],
            "sources",
            (),
            {"yaml", "sql"},
            f"The agent's claims of {dimension.replace('_', ' ')}, from `propositions/{dimension}/_default.yaml` and "
            "`<agent>.yaml`, merged.",
            tags={"dimension": dimension},
        )
        for dimension in ALL_DIMENSIONS
    }
    scores = {
        dimension: spec(
            f"{dimension}_scores",
            "scores",
            [personas, messages, propositions[dimension]],
            {"anthropic", "sql"},
            f"How the agent does in {dimension.replace('_', ' ')}, 0-9, claim by claim: rows of `evaluation_scores`.",
            tags={"dimension": dimension},
            code_version=place.judge_version,
            automation_condition=when_changed([personas, messages, propositions[dimension]]),
        )
        for dimension in ALL_DIMENSIONS
    }
    verdicts = spec(
        "verdicts",
        "evaluation",
        [*scores.values(), baselines],
        {"sql", "json"},
        "The finished run, a row of `evaluation_runs`, and how it stands beside the agent's golden baseline: what dropped, by how "
        "much, and which claims. Its checks are the gate.",
        freshness_policy=freshness(place.orchestration),
        automation_condition=with_what_it_rests_on() | when_changed([baselines]),
    )
    in_character = spec(
        "in_character",
        "evaluation",
        [verdicts],
        {"sql"},
        "Is the agent in character? Nothing is materialized where it drifted or cannot be told, so that its partition is red "
        "here and a backfill it is part of fails. What should go on only with agents in character depends on this.",
        # Where an agent is out of character this is not made: by itself it would be asked for again for ever.
        automation_condition=with_what_it_rests_on(),
    )
    voices = spec(
        "voices",
        "evaluation",
        # No judge's score: from what was said alone.
        [personas, messages],
        {"python", "sql"},
        "Does the agent still sound like itself? Its voice as it was learnt, and the sum of what does not fit it, message by "
        "message. Asks no judge. Several agents are a run each.",
    )
    sources = {PERSONA: personas, **propositions, BASELINE: baselines, MESSAGES: messages}
    specs = Specs(place, agents, sources, scores, verdicts, in_character, voices)
    return replace(specs, weeks=build_weeks(specs)) if weekly else specs


def build_weeks(specs: Specs) -> Weeks | None:
    """Return the weeks of a place; None: its settings name no first one."""
    place = specs.place
    first = place.orchestration.first_week
    if first is None:
        return None
    # In UTC, as the messages are counted; a week begins on the weekday of the first one, and is a partition once it is over.
    weekly = dg.WeeklyPartitionsDefinition(start_date=first.isoformat(), day_offset=first.isoweekday() % 7)
    partitions = dg.MultiPartitionsDefinition({AGENT: specs.agents, WEEK: weekly})
    messages = specs.sources[MESSAGES].replace_attributes(
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
