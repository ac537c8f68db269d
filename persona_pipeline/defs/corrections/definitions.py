"""What the corrections did, and when it is counted."""

import dagster as dg

from persona_pipeline.defs.corrections.assets import build_correction_statistics
from persona_pipeline.defs.platform import run_tags
from persona_pipeline.defs.platform.place import Place


def build_corrections(place: Place) -> dg.Definitions:
    """Return what is about the corrections of a place."""
    statistics = build_correction_statistics(place)
    count = dg.define_asset_job(
        place.name("count_corrections"),
        selection=dg.AssetSelection.assets(statistics),
        executor_def=place.executor,
        description="Counts what the gate did lately. Judges nothing.",
    )
    daily = dg.ScheduleDefinition(
        name=place.name("daily_corrections"),
        job=count,
        cron_schedule="0 4 * * *",
        execution_timezone=place.orchestration.timezone,
        default_status=place.orchestration.schedule_status,
        description="Counts what the gate did in the last 30 days.",
        tags=run_tags.request_tags("daily count"),
    )
    return dg.Definitions(assets=[statistics], jobs=[count], schedules=[daily])
