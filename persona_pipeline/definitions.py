"""What Dagster loads."""

import warnings

import dagster as dg

# Partitioned asset checks are a preview in Dagster 1.13; the tests hold what we use of them.
warnings.filterwarnings("ignore", category=dg.PreviewWarning)
warnings.filterwarnings("ignore", category=dg.BetaWarning)

from persona_pipeline.defs import assets, checks, jobs, regression, schedules, sensors, sources  # noqa: E402
from persona_pipeline.defs.event_log_values import event_log_values  # noqa: E402
from persona_pipeline.defs.resources import EvaluationSettings, WorldResource  # noqa: E402
from persona_pipeline.defs.settings import orchestration  # noqa: E402

defs = dg.Definitions(
    assets=[*sources.SOURCES, *assets.AGENT_ASSETS, regression.regression_report],
    asset_checks=checks.CHECKS,
    jobs=jobs.JOBS,
    schedules=schedules.SCHEDULES,
    sensors=[sensors.world_changes],
    resources={
        "world": WorldResource(),
        "evaluation": EvaluationSettings(
            judge=orchestration().judge, window=orchestration().window, max_usd=orchestration().max_usd
        ),
        "values": event_log_values,
    },
    # A step costs 0.05 s in the run's process and 2 to 3 s in one of its own; judge calls wait inside the step.
    executor=dg.in_process_executor,
)
