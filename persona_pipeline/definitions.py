"""What Dagster loads: the world of the environment, which has this code location for itself."""

import dagster as dg

from persona_pipeline.defs.component import build_world
from persona_pipeline.defs.platform.place import Place

_PLACE = Place()

# Of the jobs each names its own; this one is for what is materialized by hand.
defs = dg.Definitions.merge(build_world(_PLACE), dg.Definitions(executor=_PLACE.executor))
