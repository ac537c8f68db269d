"""What is looked after: baselines, judges, counts, old runs, failed runs."""

import dagster as dg

from persona_pipeline.defs.agents.specs import Specs
from persona_pipeline.defs.platform.dagster_internals import AssetJob
from persona_pipeline.defs.platform.place import Place
from persona_pipeline.defs.platform.run_tags import Ours, request_tags
from persona_pipeline.defs.upkeep.assets import build_baseline_review
from persona_pipeline.defs.upkeep.calibration import build_calibration
from persona_pipeline.defs.upkeep.counting import build_check_message_counts
from persona_pipeline.defs.upkeep.retention import build_forget_old_runs
from persona_pipeline.defs.upkeep.sensors import build_run_failure_alert


def build_upkeep(specs: Specs, ours: Ours) -> dg.Definitions:
    """Return what looks after a place; ``ours``: whether a run is one of its world."""
    place = specs.place
    review, calibration = build_baseline_review(specs), build_calibration(place)
    review_baselines = dg.define_asset_job(
        place.name("review_baselines"),
        selection=dg.AssetSelection.assets(review),
        executor_def=place.executor,
        description="Lists the golden baselines that need a person. Judges nothing.",
    )
    review_calibration = dg.define_asset_job(
        place.name("review_calibration"),
        selection=dg.AssetSelection.assets(calibration),
        executor_def=place.executor,
        description="Measures the judges against people's labels. Judges nothing.",
    )
    check_message_counts, forget_old_runs = build_check_message_counts(place), build_forget_old_runs(place, ours)
    return dg.Definitions(
        assets=[review, calibration],
        jobs=[review_baselines, review_calibration, forget_old_runs, check_message_counts],
        schedules=[
            _schedule(
                place,
                "weekly_baseline_review",
                review_baselines,
                place.orchestration.review_cron,
                "Lists the golden baselines that need a person: old, missing, outgrown or of another judge.",
                tags=request_tags("weekly review"),
            ),
            _schedule(
                place,
                "weekly_tidying",
                forget_old_runs,
                "0 5 * * 0",
                "Deletes runs older than PERSONA_KEEP_DAYS, the newest about each agent and suite excepted.",
            ),
            _schedule(
                place,
                "daily_message_check",
                check_message_counts,
                "15 4 * * *",
                "Compares the counts of what agents said with all messages in the store, and mends what differs.",
            ),
        ],
        sensors=[build_run_failure_alert(place, ours)],
    )


def _schedule(
    place: Place, name: str, job: dg.JobDefinition | AssetJob, cron: str, description: str, **more
) -> dg.ScheduleDefinition:
    return dg.ScheduleDefinition(
        name=place.name(name),
        job=job,
        cron_schedule=cron,
        execution_timezone=place.orchestration.timezone,
        default_status=place.orchestration.schedule_status,
        description=description,
        **more,
    )
