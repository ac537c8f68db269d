"""What every run needs: the world, how it is judged, and where steps run."""

import dagster as dg

from persona_pipeline.defs.platform.event_log_values import event_log_values
from persona_pipeline.defs.platform.executor import build_executor
from persona_pipeline.defs.platform.resources import EvaluationSettings, WorldResource
from persona_pipeline.defs.platform.settings import orchestration

_SETTINGS = orchestration()
defs = dg.Definitions(
    resources={
        "world": WorldResource(),
        "evaluation": EvaluationSettings(judge=_SETTINGS.judge, window=_SETTINGS.window, max_usd=_SETTINGS.max_usd),
        "values": event_log_values,
    },
    executor=build_executor(_SETTINGS),
)
