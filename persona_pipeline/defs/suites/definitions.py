"""Eval suites."""

import dagster as dg

from persona_pipeline.defs.suites import assets, jobs, schedules, sensors

defs = dg.Definitions(
    assets=[*assets.SUITE_SOURCES, *assets.SUITE_ASSETS],
    jobs=[jobs.run_eval_suites],
    schedules=[schedules.nightly_suites],
    sensors=[sensors.suite_observations, sensors.suite_changes],
)
