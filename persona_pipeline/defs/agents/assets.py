"""The lineage of one agent: persona, messages, claims -> scores -> run -> comparison with the baseline."""

import dagster as dg

from persona_pipeline.baselines import find_baseline
from persona_pipeline.defs.agents import outcomes, sources
from persona_pipeline.defs.agents.partitions import agents
from persona_pipeline.defs.platform.failures import known_failures, retry_unanswered
from persona_pipeline.defs.platform.labels import JUDGE_POOL, JUDGE_VERSION, OWNERS
from persona_pipeline.defs.platform.resources import EvaluationSettings, WorldResource
from persona_pipeline.evaluation import steps
from persona_pipeline.evaluation.history import overall_history
from persona_pipeline.evaluation.syncing import sync_propositions
from persona_pipeline.propositions import ALL_DIMENSIONS, stored_proposition_set


@dg.asset(
    group_name="world",
    deps=[sources.persona_files],
    kinds={"yaml", "sql"},
    partitions_def=agents,
    owners=OWNERS,
)
def personas(context: dg.AssetExecutionContext, world: WorldResource) -> dg.MaterializeResult:
    """The persona in the store: name, text and correction settings, from `personas/<agent>.yaml`."""
    with known_failures():
        persona = world.open().sync_persona(context.partition_key)
    return outcomes.persona_outcome(persona).result()


@dg.asset(
    group_name="world",
    deps=[sources.message_windows, personas],
    kinds={"jsonl", "sql"},
    partitions_def=agents,
    owners=OWNERS,
)
def messages(
    context: dg.AssetExecutionContext, world: WorldResource, evaluation: EvaluationSettings
) -> dg.MaterializeResult:
    """The window of messages the agent is evaluated on: `run_messages` in the store, and the window's bounds."""
    with known_failures():
        opened = world.open()
        for problem in opened.sync_messages().problems:
            context.log.warning(f"left out: {problem}")
        window, said = steps.open_window(opened, context.partition_key, evaluation.window, evaluation.window_end)
    return outcomes.messages_outcome(evaluation.window, window, said).result()


def build_proposition_set(dimension: str) -> dg.AssetsDefinition:
    """Return the asset of one dimension's merged claims."""

    @dg.asset(
        name=dimension,
        key_prefix="proposition_sets",
        group_name="propositions",
        deps=[sources.proposition_files[dimension], personas],
        kinds={"yaml", "sql"},
        tags={"dimension": dimension},
        description=f"The agent's claims of {dimension.replace('_', ' ')}: the default file's, then the agent's own, merged.",
        partitions_def=agents,
        owners=OWNERS,
    )
    def proposition_set(context: dg.AssetExecutionContext, world: WorldResource) -> dg.MaterializeResult:
        with known_failures():
            opened = world.open()
            version = sync_propositions(opened, context.partition_key, dimension)
            merged = stored_proposition_set(opened.store, context.partition_key, dimension)
        return outcomes.propositions_outcome(version, merged).result()

    return proposition_set


def build_scores(dimension: str, propositions: dg.AssetsDefinition) -> dg.AssetsDefinition:
    """Return the asset of one dimension's scores."""

    @dg.asset(
        name=f"{dimension}_scores",
        group_name="scores",
        # Dagster looks one step upstream for what is out of date: the files are named, so that an edit shows here too.
        deps=[personas, messages, propositions, sources.persona_files, sources.proposition_files[dimension]],
        pool=JUDGE_POOL,
        code_version=JUDGE_VERSION,
        kinds={"anthropic", "sql"},
        tags={"dimension": dimension},
        description=f"How the agent does in {dimension.replace('_', ' ')}, 0-9, claim by claim: rows of `evaluation_scores`.",
        partitions_def=agents,
        owners=OWNERS,
    )
    def scores(
        context: dg.AssetExecutionContext, world: WorldResource, evaluation: EvaluationSettings
    ) -> dg.MaterializeResult:
        with known_failures():
            opened = world.open()
            judge = evaluation.open_judge(opened)
            run = steps.score_dimension(
                opened, context.partition_key, dimension, judge=judge, samples=evaluation.samples
            )
        scored = run.dimensions.get(dimension)
        retry_unanswered(scored.unscored_reasons if scored else {}, judge, context.retry_number)
        return outcomes.scores_outcome(scored).result()

    return scores


proposition_sets = {dimension: build_proposition_set(dimension) for dimension in ALL_DIMENSIONS}
scores = {dimension: build_scores(dimension, proposition_sets[dimension]) for dimension in ALL_DIMENSIONS}


@dg.asset(
    group_name="evaluation",
    deps=list(scores.values()),
    kinds={"sql"},
    partitions_def=agents,
    owners=OWNERS,
)
def evaluation_runs(
    context: dg.AssetExecutionContext, world: WorldResource, evaluation: EvaluationSettings
) -> dg.MaterializeResult:
    """The finished run: overall score, dimensions, cost and provenance, a row of `evaluation_runs`."""
    with known_failures():
        opened = world.open()
        run = evaluation.finished_run(opened, context.partition_key)
        history = overall_history(opened.store, context.partition_key, until=run.window_end)
    return outcomes.run_outcome(run, history).result()


@dg.asset(
    group_name="evaluation",
    deps=[evaluation_runs, sources.baseline_files],
    kinds={"sql", "json"},
    partitions_def=agents,
    owners=OWNERS,
)
def baseline_comparisons(
    context: dg.AssetExecutionContext, world: WorldResource, evaluation: EvaluationSettings
) -> dg.MaterializeResult:
    """The run beside the agent's golden baseline: what fell, by how much, and which claims. Its checks are the gate."""
    with known_failures():
        opened = world.open()
        run = evaluation.finished_run(opened, context.partition_key)
        baseline = find_baseline(opened.root, context.partition_key)
        report = steps.compare_run(opened, run, baseline, evaluation.rules(evaluation.open_judge(opened)))
    return outcomes.comparison_outcome(report).result()


AGENT_ASSETS = [
    personas,
    messages,
    *proposition_sets.values(),
    *scores.values(),
    evaluation_runs,
    baseline_comparisons,
]
