"""Tidying up, and looking at what grows old."""

import dagster as dg

from persona_pipeline.defs.upkeep.assets import baseline_review
from persona_pipeline.defs.upkeep.calibration import calibration
from persona_pipeline.defs.upkeep.retention import delete_old_runs, forget_old_reasons, forget_old_texts

review_baselines = dg.define_asset_job(
    "review_baselines",
    selection=dg.AssetSelection.assets(baseline_review),
    description="Lists the golden baselines that need a person. Judges nothing.",
)

review_calibration = dg.define_asset_job(
    "review_calibration",
    selection=dg.AssetSelection.assets(calibration),
    description="Measures the judges against people's labels. Judges nothing.",
)


@dg.job(
    description="Deletes runs older than PERSONA_KEEP_DAYS, but the newest about each agent and suite. "
    "What the store holds (scores, baselines) stays, but for the words of corrections older than PERSONA_KEEP_TEXT_DAYS and the "
    "claims and reasons of evaluations older than PERSONA_KEEP_REASONS_DAYS."
)
def forget_old_runs() -> None:
    delete_old_runs()
    forget_old_texts()
    forget_old_reasons()
