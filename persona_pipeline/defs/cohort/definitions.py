"""Everybody at once."""

import dagster as dg

from persona_pipeline.defs.cohort import assets, jobs, schedules

defs = dg.Definitions(
    assets=[assets.regression_report],
    jobs=[jobs.evaluate_cohort, jobs.persona_regression, jobs.report_regressions, jobs.capture_baseline],
    schedules=[schedules.nightly],
)
