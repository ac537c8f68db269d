"""Counting what the corrections did."""

import dagster as dg

from persona_pipeline.defs.corrections.assets import correction_statistics

count_corrections = dg.define_asset_job(
    "count_corrections",
    selection=dg.AssetSelection.assets(correction_statistics),
    description="Counts what the gate did lately. Judges nothing.",
)
