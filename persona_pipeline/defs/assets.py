"""The lineage of one agent: persona, messages, claims -> scores -> run -> comparison with the baseline."""

import dagster as dg

from persona_pipeline.baselines import find_baseline
from persona_pipeline.defs import metadata, sources
from persona_pipeline.defs.partitions import agents
from persona_pipeline.defs.resources import EvaluationSettings, WorldResource, failing_on_bad_input
from persona_pipeline.evaluation import steps
from persona_pipeline.evaluation.engine import sync_propositions
from persona_pipeline.judging.prompt import PROMPT_VERSION
from persona_pipeline.propositions import ALL_DIMENSIONS, stored_proposition_set
from persona_pipeline.settings import get_settings
from persona_pipeline.world.canonical import content_hash
from persona_pipeline.world.messages import messages_hash

OWNERS = ["team:persona-quality"]
JUDGE_POOL = "judge"
# Changing the judge or its prompt makes every score visibly stale.
JUDGE_VERSION = f"{PROMPT_VERSION}:{get_settings().judge_model}"


@dg.asset(partitions_def=agents, group_name="world", deps=[sources.persona_files], kinds={"yaml"}, owners=OWNERS)
def personas(context: dg.AssetExecutionContext, world: WorldResource) -> dg.MaterializeResult:
    """The persona in the store: name, text and correction settings, from `personas/<agent>.yaml`."""
    with failing_on_bad_input():
        persona = world.open().sync_persona(context.partition_key)
    return dg.MaterializeResult(
        data_version=dg.DataVersion(persona.hash),
        metadata={
            "display_name": persona.display_name,
            "persona": dg.MetadataValue.md(metadata.escaped(persona.persona)),
            "corrections": dg.MetadataValue.json(persona.corrections.model_dump()),
        },
    )


@dg.asset(
    partitions_def=agents, group_name="world", deps=[sources.message_files, personas], kinds={"sql"}, owners=OWNERS
)
def messages(
    context: dg.AssetExecutionContext, world: WorldResource, evaluation: EvaluationSettings
) -> dg.MaterializeResult:
    """The window of messages the agent is evaluated on: `run_messages` in the store, and the window's bounds."""
    with failing_on_bad_input():
        opened = world.open()
        for problem in opened.sync_messages().problems:
            context.log.warning(f"left out: {problem}")
        window, said = steps.open_window(opened, context.partition_key, evaluation.window, evaluation.window_end)
    version = content_hash([window.end.isoformat(), evaluation.window, messages_hash(said)])
    return dg.MaterializeResult(data_version=dg.DataVersion(version), metadata=metadata.messages_metadata(said, window))


def build_proposition_set(dimension: str) -> dg.AssetsDefinition:
    """Return the asset of one dimension's merged claims."""

    @dg.asset(
        name=dimension,
        key_prefix="proposition_sets",
        partitions_def=agents,
        group_name="propositions",
        deps=[sources.proposition_files[dimension], personas],
        kinds={"yaml"},
        tags={"dimension": dimension},
        owners=OWNERS,
        description=f"The agent's claims of {dimension}: the default file's, then the agent's own, merged.",
    )
    def proposition_set(context: dg.AssetExecutionContext, world: WorldResource) -> dg.MaterializeResult:
        with failing_on_bad_input():
            opened = world.open()
            version = sync_propositions(opened, context.partition_key, dimension)
            merged = stored_proposition_set(opened.store, context.partition_key, dimension)
        return dg.MaterializeResult(
            data_version=dg.DataVersion(version), metadata=metadata.propositions_metadata(merged)
        )

    return proposition_set


def build_scores(dimension: str, propositions: dg.AssetsDefinition) -> dg.AssetsDefinition:
    """Return the asset of one dimension's scores."""

    @dg.asset(
        name=f"{dimension}_scores",
        partitions_def=agents,
        group_name="scores",
        deps=[personas, messages, propositions],
        pool=JUDGE_POOL,
        code_version=JUDGE_VERSION,
        kinds={"anthropic", "sql"},
        tags={"dimension": dimension},
        owners=OWNERS,
        description=f"{dimension.replace('_', ' ').capitalize()} of the agent, 0-9, by proposition: rows of `evaluation_scores`.",
    )
    def scores(
        context: dg.AssetExecutionContext, world: WorldResource, evaluation: EvaluationSettings
    ) -> dg.MaterializeResult:
        with failing_on_bad_input():
            opened = world.open()
            judge = evaluation.open_judge(opened)
            run = steps.score_dimension(
                opened, context.partition_key, dimension, judge=judge, samples=evaluation.samples
            )
        scored = run.dimensions.get(dimension)
        version = content_hash(scored.model_dump(mode="json", exclude={"usage"}) if scored else None)
        return dg.MaterializeResult(data_version=dg.DataVersion(version), metadata=metadata.score_metadata(scored))

    return scores


proposition_sets = {dimension: build_proposition_set(dimension) for dimension in ALL_DIMENSIONS}
scores = {dimension: build_scores(dimension, proposition_sets[dimension]) for dimension in ALL_DIMENSIONS}


@dg.asset(partitions_def=agents, group_name="evaluation", deps=list(scores.values()), kinds={"sql"}, owners=OWNERS)
def evaluation_runs(
    context: dg.AssetExecutionContext, world: WorldResource, evaluation: EvaluationSettings
) -> dg.MaterializeResult:
    """The finished run: overall score, dimensions, cost and provenance, a row of `evaluation_runs`."""
    with failing_on_bad_input():
        opened = world.open()
        judge = evaluation.open_judge(opened)
        run = steps.finish_run(opened, context.partition_key, judge=judge, samples=evaluation.samples)
    version = content_hash(run.model_dump(mode="json", exclude={"usage"}))
    return dg.MaterializeResult(data_version=dg.DataVersion(version), metadata=metadata.run_metadata(run))


@dg.asset(
    partitions_def=agents,
    group_name="evaluation",
    deps=[evaluation_runs, sources.baseline_files],
    kinds={"sql"},
    owners=OWNERS,
)
def baseline_comparisons(
    context: dg.AssetExecutionContext, world: WorldResource, evaluation: EvaluationSettings
) -> dg.MaterializeResult:
    """The run beside the agent's golden baseline: what fell, by how much, and which claims."""
    with failing_on_bad_input():
        opened = world.open()
        judge = evaluation.open_judge(opened)
        run = steps.finish_run(opened, context.partition_key, judge=judge, samples=evaluation.samples)
        baseline = find_baseline(opened.root, context.partition_key)
        report = steps.compare_run(opened, run, baseline, evaluation.rules(judge))
    return dg.MaterializeResult(
        data_version=dg.DataVersion(content_hash(report.comparison.model_dump(mode="json"))),
        metadata={
            "regressions": len(report.comparison.regressions),
            "proposition_drops": len(report.comparison.drops),
            "run_id": run.run_id,
            **metadata.findings_metadata(report.findings),
        },
    )


AGENT_ASSETS = [
    personas,
    messages,
    *proposition_sets.values(),
    *scores.values(),
    evaluation_runs,
    baseline_comparisons,
]
