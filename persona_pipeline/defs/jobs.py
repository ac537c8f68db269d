"""What can be run: one agent, many agents, the gate of CI, a new baseline."""

import dagster as dg

from persona_pipeline.defs import assets, checks, cohort, regression
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


@dg.job(description="Take golden baselines: evaluate and write `baselines/<agent>.json`.")
def capture_baseline() -> None:
    regression.capture_baselines()


JOBS = [evaluate_agent, evaluate_cohort, persona_regression, capture_baseline]
