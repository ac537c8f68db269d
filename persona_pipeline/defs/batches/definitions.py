"""Judging at half the price, in message batches."""

import dagster as dg

from persona_pipeline.defs.batches.jobs import build_collect_batches, build_submit_batches
from persona_pipeline.defs.batches.sensors import build_open_batches
from persona_pipeline.defs.platform.place import Place


def build_batches(place: Place) -> dg.Definitions:
    """Return what is about the message batches of a place."""
    collect = build_collect_batches(place)
    return dg.Definitions(jobs=[build_submit_batches(place), collect], sensors=[build_open_batches(place, collect)])
