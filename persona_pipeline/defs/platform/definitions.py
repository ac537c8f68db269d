"""What every run needs: the world, how it is judged, and where small values stay between steps."""

import dagster as dg

from persona_pipeline.defs.platform.event_log_values import event_log_values
from persona_pipeline.defs.platform.place import EVALUATION, VALUES, WORLD, Place
from persona_pipeline.defs.platform.resources import EvaluationSettings, WorldResource, at_place


def build_platform(place: Place) -> dg.Definitions:
    """Return the resources of a world."""
    settings = place.orchestration
    evaluation = at_place(EvaluationSettings, place)
    return dg.Definitions(
        resources={
            place.name(WORLD): at_place(WorldResource, place)(),
            place.name(EVALUATION): evaluation(judge=settings.judge, window=settings.window, max_usd=settings.max_usd),
            place.name(VALUES): event_log_values,
        }
    )
