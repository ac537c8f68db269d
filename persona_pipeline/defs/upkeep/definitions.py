"""What is looked after: baselines, old runs, failed runs."""

import dagster as dg

from persona_pipeline.defs.upkeep import assets, calibration, counting, jobs, schedules, sensors

defs = dg.Definitions(
    assets=[assets.baseline_review, calibration.calibration],
    jobs=[jobs.review_baselines, jobs.review_calibration, jobs.forget_old_runs, counting.check_message_counts],
    schedules=[schedules.weekly_baseline_review, schedules.weekly_tidying, schedules.daily_message_check],
    sensors=[sensors.run_failure_alert],
)
