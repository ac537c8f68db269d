"""What every run needs: the world, how it is judged, and where small values stay between steps."""

import dagster as dg

from persona_pipeline.defs.platform.event_log_values import event_log_values
from persona_pipeline.defs.platform.place import EVALUATION, VALUES, WORLD, Place
from persona_pipeline.defs.platform.resources import EvaluationSettings, WorldResource, at_place


def build_platform(place: Place) -> dg.Definitions:
    """Return the resources of a world."""
    evaluation = at_place(EvaluationSettings, place)
    return dg.Definitions(
        resources={
            place.name(WORLD): at_place(WorldResource, place)(),
            place.name(EVALUATION): evaluation(**place.asked),
            place.name(VALUES): event_log_values,
        }
    )
