"""Eval suites."""

import dagster as dg

from persona_pipeline.changes.suite_files import suite_files
from persona_pipeline.defs.platform import run_tags
from persona_pipeline.defs.platform.place import Place
from persona_pipeline.defs.suites.assets import build_source, build_suite
from persona_pipeline.defs.suites.jobs import build_run_eval_suites
from persona_pipeline.defs.suites.sensors import build_suite_changes, build_suite_observations
from persona_pipeline.settings import get_settings


def build_suites(place: Place) -> dg.Definitions:
    """Return the eval suites that the world of a place has now."""
    files = suite_files((place.settings or get_settings()).world_root)
    run_eval_suites = build_run_eval_suites(place)
    nightly = dg.ScheduleDefinition(
        name=place.name("nightly_suites"),
        job=run_eval_suites,
        cron_schedule=place.orchestration.suites_cron,
        execution_timezone=place.orchestration.timezone,
        default_status=place.orchestration.schedule_status,
        description="Runs every eval suite. PERSONA_SUITES_CRON says when.",
        tags=run_tags.request_tags("nightly"),
    )
    return dg.Definitions(
        assets=[*(build_source(place, file) for file in files), *(build_suite(place, file) for file in files)],
        jobs=[run_eval_suites],
        schedules=[nightly],
        sensors=[build_suite_observations(place, files), build_suite_changes(place, run_eval_suites)],
    )
