"""Many agents in one run, the gate of CI, and taking baselines."""

import dagster as dg

from persona_pipeline.defs.agents.specs import Specs
from persona_pipeline.defs.cohort.regression import (
    REPORT,
    RegressionConfig,
    build_evaluate_everybody,
    evaluate_by_config,
)
from persona_pipeline.defs.cohort.shards import build_cohort_report, build_cohort_shards, build_evaluate_shard
from persona_pipeline.defs.platform.dagster_internals import AssetJob
from persona_pipeline.defs.platform.place import Place
from persona_pipeline.defs.platform.resources import WorldResource


def build_evaluate_cohort(specs: Specs) -> dg.JobDefinition:
    """Return the job that evaluates many agents of a place."""
    place = specs.place
    # In config and logs the steps have the same names at every place.
    shards = build_cohort_shards(place).alias("cohort_shards")
    evaluate = build_evaluate_shard(specs).alias("evaluate_shard")
    report = build_cohort_report(specs).alias("cohort_report")

    @dg.job(
        name=place.name("evaluate_cohort"),
        tags={"persona/cohort": "/".join(place.prefix) or "true"},
        executor_def=place.executor,
        description="Many agents in one run, shard by shard; each agent's assets and checks are reported as if it had run alone.",
    )
    def evaluate_cohort() -> None:
        report(shards().map(evaluate).collect())

    return evaluate_cohort


def build_persona_regression(place: Place) -> dg.JobDefinition:
    """Return the gate of CI."""
    # Its config stands under the name of the asset it reports.
    evaluate = build_evaluate_everybody(place).alias(REPORT)

    @dg.job(
        name=place.name("persona_regression"),
        executor_def=place.executor,
        description="Every agent in one process; fails when one regressed. Made for CI: `dagster job execute`.",
    )
    def persona_regression() -> None:
        evaluate()

    return persona_regression


def build_report_regressions(place: Place, report: dg.AssetsDefinition) -> AssetJob:
    """Return the job that reports how everybody did."""
    return dg.define_asset_job(
        place.name("report_regressions"),
        selection=dg.AssetSelection.assets(report),
        executor_def=place.executor,
        description="Every agent's newest comparison on one page; fails when one regressed. Judges nothing.",
    )


def build_capture_baseline(place: Place) -> dg.JobDefinition:
    """Return the job that takes baselines."""

    @dg.op(name=place.name("capture_baselines"), pool=place.judge_pool)
    @place.bound
    def capture_baselines(context: dg.OpExecutionContext, world: WorldResource, config: RegressionConfig) -> None:
        """Evaluate the agents and write what was scored in full to `baselines/`."""
        report, _ = evaluate_by_config(context, place, world, config, update_baseline=True)
        for agent_id, agent in report.agents.items():
            scores = {name: item.score for name, item in agent.evaluation.dimensions.items()}
            context.log.info(f"{agent_id}: {scores}")

    capture = capture_baselines.alias("capture_baselines")

    @dg.job(
        name=place.name("capture_baseline"),
        executor_def=place.executor,
        description="Take golden baselines: evaluate and write `baselines/<agent>.json`.",
    )
    def capture_baseline() -> None:
        capture()

    return capture_baseline
