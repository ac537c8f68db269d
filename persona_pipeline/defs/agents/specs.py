"""An agent's lineage in the graph: persona, messages, claims -> scores -> verdict -> in character."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial

import dagster as dg

from persona_pipeline.defs.agents.automation import when_changed, with_what_it_rests_on
from persona_pipeline.defs.platform.place import Place
from persona_pipeline.defs.platform.resources import AGENTS
from persona_pipeline.evaluation.changes import BASELINE, MESSAGES, PERSONA
from persona_pipeline.judging.open import RECORDED
from persona_pipeline.world.propositions.models import ALL_DIMENSIONS

# The two dimensions of a partition by weeks; its key has them in this order.
AGENT, WEEK = "agent", "week"


@dataclass(frozen=True)
class Weeks:
    """A partition for each agent and week (UTC, from the setting's first week)."""

    partitions: dg.MultiPartitionsDefinition
    scores: dg.AssetSpec

    def key(self, agent_id: str, week: date) -> dg.MultiPartitionKey:
        """Return the partition of an agent's week."""
        return dg.MultiPartitionKey({AGENT: agent_id, WEEK: week.isoformat()})


@dataclass(frozen=True)
class Specs:
    """The assets of a place, with a partition for each agent. A mapping has an asset for each dimension.

    ``sources``: files and messages, by the name under which a change is recorded.
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
        """The assets that an evaluation makes, from upstream to downstream."""
        return (*self.scores.values(), self.verdicts, self.in_character)

    @property
    def evaluated(self) -> Sequence[dg.AssetSpec]:
        """All assets of an agent, from upstream to downstream."""
        return (*self.sources.values(), *self.judged)


def build_specs(place: Place, *, weekly: bool = True) -> Specs:
    """Return the assets of a place, by weeks too where its settings have them and they are ``weekly``."""
    agents, judge = dg.DynamicPartitionsDefinition(name=place.path(AGENTS)), place.asked.get("judge", RECORDED)

    spec = partial(place.spec, partitions_def=agents)
    personas = spec(
        "personas",
        "sources",
        (),
        {"yaml", "sql"},
        "`personas/<agent>.yaml`: who the agent is, and which corrections are on. The data version is a digest of the file.",
        at="personas",
    )
    messages = spec(
        "messages",
        "sources",
        (),
        {"jsonl", "sql"},
        "What the agent has said, from `messages/` or written to the store by the agents' runtime. The data version counts "
        "their changes and is reported once there are enough new ones or it is quiet.",
        at="messages",
        table="run_messages",
    )
    baselines = spec(
        "baseline_files",
        "sources",
        (),
        {"json"},
        "`baselines/<agent>.json`: golden scores the agent should not drop below.",
        at="baselines",
    )
    propositions = {
        dimension: spec(
            ["proposition_sets", dimension],
            "sources",
            (),
            {"yaml", "sql"},
            f"The agent's claims of {dimension.replace('_', ' ')}, from `propositions/{dimension}/_default.yaml` and "
            "`<agent>.yaml`, merged.",
            at=f"propositions/{dimension}",
            tags={"dimension": dimension},
        )
        for dimension in ALL_DIMENSIONS
    }
    scores = {
        dimension: spec(
            f"{dimension}_scores",
            "scores",
            [personas, messages, propositions[dimension]],
            {judge, "sql"},
            f"The agent's score in {dimension.replace('_', ' ')}, 0-9, claim by claim: rows of `evaluation_scores`.",
            table="evaluation_scores",
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
        "The newest run, a row of `evaluation_runs`, compared with the agent's golden baseline: which scores and claims dropped, "
        "and by how much. Its checks are the gate.",
        table="evaluation_runs",
        automation_condition=with_what_it_rests_on() | when_changed([baselines]),
    )
    in_character = spec(
        "in_character",
        "evaluation",
        [verdicts],
        {"sql"},
        "Is the agent in character? It is not materialized for an agent that drifted or cannot be told: the partition is red, and "
        "so is the backfill. Assets that need an agent in character depend on this one.",
        # It is not made for an agent out of character: a condition about missing assets would request it for ever.
        automation_condition=with_what_it_rests_on(),
    )
    voices = spec(
        "voices",
        "evaluation",
        # It uses messages only, not the judge's scores.
        [personas, messages],
        {"python", "sql"},
        "Does the agent still sound like itself? Its learnt voice, and how far each message since departs from it. Makes no API "
        "calls. Several agents are a run each.",
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
    scores = place.spec(
        "weekly_scores",
        "evaluation",
        # No dependencies: history stays as it was judged until it is requested again.
        (),
        {"sql"},
        "How the agent did in a week, overall and by dimension, in numbers to plot. Several partitions are evaluated "
        "in one run, and the newest results stay as they are.",
        partitions_def=partitions,
    )
    return Weeks(partitions, scores)
