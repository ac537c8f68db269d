"""What can be run: one agent, many agents, the gate of CI, baselines, and tidying up."""

import dagster as dg

from persona_pipeline.defs import assets, checks, cohort, regression, retention, review
from persona_pipeline.defs.partitions import agents

evaluate_agent = dg.define_asset_job(
    "evaluate_agent",
    selection=dg.AssetSelection.assets(*assets.AGENT_ASSETS) | dg.AssetSelection.checks(*checks.CHECKS),
    partitions_def=agents,
    description="One agent from its files to the comparison with its baseline; fails when it regressed.",
)
evaluate_cohort = cohort.evaluate_cohort_job
persona_regression = dg.define_asset_job(
    "persona_regression",
    selection=dg.AssetSelection.assets(regression.regression_report),
    description="Every agent in one process; fails when one regressed. Made for CI: `dagster job execute`.",
)
review_baselines = dg.define_asset_job(
    "review_baselines",
    selection=dg.AssetSelection.assets(review.baseline_review),
    description="Lists the golden baselines that need a person. Judges nothing.",
)
forget_old_runs = retention.forget_old_runs


@dg.job(description="Take golden baselines: evaluate and write `baselines/<agent>.json`.")
def capture_baseline() -> None:
    regression.capture_baselines()


JOBS = [evaluate_agent, evaluate_cohort, persona_regression, capture_baseline, review_baselines, forget_old_runs]
