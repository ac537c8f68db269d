"""The lineage of one agent as the graph shows it: persona, messages, claims -> scores -> run -> comparison with the baseline."""

from collections.abc import Sequence
from datetime import timedelta

import dagster as dg

from persona_pipeline.defs.agents import sources
from persona_pipeline.defs.agents.partitions import agents
from persona_pipeline.defs.platform.labels import JUDGE_VERSION, OWNERS
from persona_pipeline.defs.platform.settings import orchestration
from persona_pipeline.propositions import ALL_DIMENSIONS

_TOGETHER = "Several agents at once are evaluated in one run, as `evaluate_cohort` does it."


def _spec(
    key: str | list[str], group: str, deps: Sequence[dg.AssetSpec], kinds: set[str], text: str, **more
) -> dg.AssetSpec:
    together = _TOGETHER if more.pop("together", True) else "Several agents are a run each."
    return dg.AssetSpec(
        key,
        deps=deps,
        group_name=group,
        kinds=kinds,
        description=f"{text} {together}",
        partitions_def=agents,
        owners=OWNERS,
        # An evaluation of a past moment, and one of several agents, says itself what it found, and where nothing new is.
        skippable=True,
        **more,
    )


def freshness() -> dg.FreshnessPolicy | None:
    """Return when runs and comparisons count as old; None: never."""
    settings = orchestration()
    if not settings.fresh_hours:
        return None
    hours = timedelta(hours=settings.fresh_hours)
    return dg.FreshnessPolicy.time_window(fail_window=2 * hours, warn_window=hours)


PERSONAS = _spec(
    "personas",
    "world",
    [sources.persona_files],
    {"yaml", "sql"},
    "The persona in the store: name, text and correction settings, from `personas/<agent>.yaml`.",
)
MESSAGES = _spec(
    "messages",
    "world",
    [sources.message_windows, PERSONAS],
    {"jsonl", "sql"},
    "The window of messages the agent is evaluated on: `run_messages` in the store, and the window's bounds.",
)
PROPOSITIONS = {
    dimension: _spec(
        ["proposition_sets", dimension],
        "propositions",
        [sources.proposition_files[dimension], PERSONAS],
        {"yaml", "sql"},
        f"The agent's claims of {dimension.replace('_', ' ')}: the default file's, then the agent's own, merged.",
        tags={"dimension": dimension},
    )
    for dimension in ALL_DIMENSIONS
}
SCORES = {
    dimension: _spec(
        f"{dimension}_scores",
        "scores",
        # Dagster looks one step upstream for what is out of date: the files are named, so that an edit shows here too.
        [PERSONAS, MESSAGES, PROPOSITIONS[dimension], sources.persona_files, sources.proposition_files[dimension]],
        {"anthropic", "sql"},
        f"How the agent does in {dimension.replace('_', ' ')}, 0-9, claim by claim: rows of `evaluation_scores`.",
        tags={"dimension": dimension},
        code_version=JUDGE_VERSION,
    )
    for dimension in ALL_DIMENSIONS
}
RUNS = _spec(
    "evaluation_runs",
    "evaluation",
    list(SCORES.values()),
    {"sql"},
    "The finished run: overall score, dimensions, cost and provenance, a row of `evaluation_runs`.",
    freshness_policy=freshness(),
)
COMPARISONS = _spec(
    "baseline_comparisons",
    "evaluation",
    [RUNS, sources.baseline_files],
    {"sql", "json"},
    "The run beside the agent's golden baseline: what fell, by how much, and which claims. Its checks are the gate.",
    freshness_policy=freshness(),
)
VOICES = _spec(
    "voices",
    "evaluation",
    # No judge's score: from what was said alone.
    [sources.persona_files, sources.message_windows],
    {"python", "sql"},
    "Does the agent still sound like itself? Its voice as it was learnt, and the sum of what does not fit it, message by message. "
    "Asks no judge.",
    together=False,
)
# From upstream to downstream: what an evaluation makes.
ALL = (PERSONAS, MESSAGES, *PROPOSITIONS.values(), *SCORES.values(), RUNS, COMPARISONS)
