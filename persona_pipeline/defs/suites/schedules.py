"""When every suite runs."""

import dagster as dg

from persona_pipeline.defs.platform import run_tags
from persona_pipeline.defs.platform.settings import orchestration
from persona_pipeline.defs.suites.jobs import run_eval_suites

nightly_suites = dg.ScheduleDefinition(
    name="nightly_suites",
    job=run_eval_suites,
    cron_schedule=orchestration().suites_cron,
    execution_timezone=orchestration().timezone,
    default_status=orchestration().schedule_status,
    description="Runs every eval suite. PERSONA_SUITES_CRON says when.",
    tags=run_tags.request_tags("nightly"),
)
