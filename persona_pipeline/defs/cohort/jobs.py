"""Many agents in one run, the gate of CI, and taking baselines."""

import dagster as dg

from persona_pipeline.defs.cohort.assets import regression_report
from persona_pipeline.defs.cohort.regression import RegressionConfig, evaluate_by_config, evaluate_everybody
from persona_pipeline.defs.cohort.shards import cohort_report, cohort_shards, evaluate_shard
from persona_pipeline.defs.platform.labels import JUDGE_POOL
from persona_pipeline.defs.platform.resources import WorldResource


@dg.job(
    tags={"persona/cohort": "true"},
    description="Many agents in one run, shard by shard; each agent's assets and checks are reported as if it had run alone.",
)
def evaluate_cohort() -> None:
    cohort_report(cohort_shards().map(evaluate_shard).collect())


@dg.job(description="Every agent in one process; fails when one regressed. Made for CI: `dagster job execute`.")
def persona_regression() -> None:
    # Its config stands under the name of the asset it reports.
    evaluate_everybody.alias("regression_report")()


report_regressions = dg.define_asset_job(
    "report_regressions",
    selection=dg.AssetSelection.assets(regression_report),
    description="Every agent's newest comparison on one page; fails when one regressed. Judges nothing.",
)


@dg.op(pool=JUDGE_POOL)
def capture_baselines(context: dg.OpExecutionContext, world: WorldResource, config: RegressionConfig) -> None:
    """Evaluate the agents and write what was scored in full to `baselines/`."""
    report, _ = evaluate_by_config(context, world, config.model_copy(update={"update_baseline": True}))
    for agent_id, agent in report.agents.items():
        scores = {name: item.score for name, item in agent.evaluation.dimensions.items()}
        context.log.info(f"{agent_id}: {scores}")


@dg.job(description="Take golden baselines: evaluate and write `baselines/<agent>.json`.")
def capture_baseline() -> None:
    capture_baselines()
