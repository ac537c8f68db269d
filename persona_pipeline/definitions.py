"""What Dagster loads."""

import warnings

import dagster as dg

# Partitioned asset checks are a preview in Dagster 1.13; the tests hold what we use of them.
warnings.filterwarnings("ignore", category=dg.PreviewWarning)
warnings.filterwarnings("ignore", category=dg.BetaWarning)

from persona_pipeline.defs import (  # noqa: E402
    alerts,
    assets,
    batches,
    checks,
    corrections,
    jobs,
    regression,
    review,
    schedules,
    sensors,
    sources,
    suites,
    suites_automation,
    suites_job,
)
from persona_pipeline.defs.event_log_values import event_log_values  # noqa: E402
from persona_pipeline.defs.executor import build_executor  # noqa: E402
from persona_pipeline.defs.resources import EvaluationSettings, WorldResource  # noqa: E402
from persona_pipeline.defs.settings import orchestration  # noqa: E402

defs = dg.Definitions(
    assets=[
        *sources.SOURCES,
        *assets.AGENT_ASSETS,
        regression.regression_report,
        review.baseline_review,
        corrections.correction_statistics,
        *suites.SUITE_SOURCES,
        *suites.SUITE_ASSETS,
    ],
    asset_checks=checks.CHECKS,
    jobs=[
        *jobs.JOBS,
        batches.submit_batches,
        batches.collect_batches,
        corrections.count_corrections,
        suites_job.run_eval_suites,
    ],
    schedules=[*schedules.SCHEDULES, corrections.daily_corrections, suites_automation.nightly_suites],
    sensors=[
        sensors.agent_partitions,
        sensors.world_changes,
        alerts.run_failure_alert,
        batches.open_batches,
        suites_automation.suite_targets,
        suites_automation.suite_changes,
    ],
    resources={
        "world": WorldResource(),
        "evaluation": EvaluationSettings(
            judge=orchestration().judge, window=orchestration().window, max_usd=orchestration().max_usd
        ),
        "values": event_log_values,
    },
    executor=build_executor(orchestration()),
)
