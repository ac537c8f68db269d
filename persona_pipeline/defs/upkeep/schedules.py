"""What is looked at and tidied by the clock. Off until it is switched on."""

import dagster as dg

from persona_pipeline.defs.platform.run_tags import request_tags
from persona_pipeline.defs.platform.settings import orchestration
from persona_pipeline.defs.upkeep.counting import check_message_counts
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
daily_message_check = dg.ScheduleDefinition(
    name="daily_message_check",
    job=check_message_counts,
    cron_schedule="15 4 * * *",
    execution_timezone=orchestration().timezone,
    default_status=orchestration().schedule_status,
    description="Compares the counts of what agents said with all messages in the store, and mends what differs.",
)
