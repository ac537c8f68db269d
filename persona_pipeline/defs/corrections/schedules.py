"""When it is counted what the corrections did."""

import dagster as dg

from persona_pipeline.defs.corrections.jobs import count_corrections
from persona_pipeline.defs.platform import run_tags
from persona_pipeline.defs.platform.settings import orchestration

daily_corrections = dg.ScheduleDefinition(
    name="daily_corrections",
    job=count_corrections,
    cron_schedule="0 4 * * *",
    execution_timezone=orchestration().timezone,
    default_status=orchestration().schedule_status,
    description="Counts what the gate did in the last 30 days.",
    tags=run_tags.request_tags("daily count"),
)
