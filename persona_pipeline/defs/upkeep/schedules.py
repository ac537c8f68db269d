"""What is looked at and tidied by the clock. Off until it is switched on."""

import dagster as dg

from persona_pipeline.defs.platform.run_tags import request_tags
from persona_pipeline.defs.platform.settings import orchestration
from persona_pipeline.defs.upkeep.jobs import forget_old_runs, review_baselines

weekly_baseline_review = dg.ScheduleDefinition(
    name="weekly_baseline_review",
    job=review_baselines,
    cron_schedule=orchestration().review_cron,
    execution_timezone=orchestration().timezone,
    default_status=orchestration().schedule_status,
    description="Lists the golden baselines that need a person: old, missing, outgrown or of another judge.",
    tags=request_tags("weekly review"),
)
weekly_tidying = dg.ScheduleDefinition(
    name="weekly_tidying",
    job=forget_old_runs,
    cron_schedule="0 5 * * 0",
    execution_timezone=orchestration().timezone,
    default_status=orchestration().schedule_status,
    description="Deletes runs older than PERSONA_KEEP_DAYS, the newest about each agent and suite excepted.",
)
