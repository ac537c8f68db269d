"""Runtime corrections: keep agents in character while they run, at the price of no message ever."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from persona_pipeline.corrections.configuration import StoredSettings, read_config, reset_config, write_config
    from persona_pipeline.corrections.decision import Action, GateDecision, Outcome
    from persona_pipeline.corrections.gate import ActionGate, gate_backend
    from persona_pipeline.corrections.interventions import Interventions
    from persona_pipeline.corrections.nudges import AntiConvergence, RepetitionSuppression, guidance_block
    from persona_pipeline.corrections.statistics import CorrectionStatistics, correction_statistics

_MODULES = {
    "Action": "persona_pipeline.corrections.decision",
    "ActionGate": "persona_pipeline.corrections.gate",
    "AntiConvergence": "persona_pipeline.corrections.nudges",
    "CorrectionStatistics": "persona_pipeline.corrections.statistics",
    "GateDecision": "persona_pipeline.corrections.decision",
    "Interventions": "persona_pipeline.corrections.interventions",
    "Outcome": "persona_pipeline.corrections.decision",
    "RepetitionSuppression": "persona_pipeline.corrections.nudges",
    "StoredSettings": "persona_pipeline.corrections.configuration",
    "correction_statistics": "persona_pipeline.corrections.statistics",
    "gate_backend": "persona_pipeline.corrections.gate",
    "guidance_block": "persona_pipeline.corrections.nudges",
    "read_config": "persona_pipeline.corrections.configuration",
    "reset_config": "persona_pipeline.corrections.configuration",
    "write_config": "persona_pipeline.corrections.configuration",
}
__all__ = [
    "Action",
    "ActionGate",
    "AntiConvergence",
    "CorrectionStatistics",
    "GateDecision",
    "Interventions",
    "Outcome",
    "RepetitionSuppression",
    "StoredSettings",
    "correction_statistics",
    "gate_backend",
    "guidance_block",
    "read_config",
    "reset_config",
    "write_config",
]


def __getattr__(name: str) -> Any:
    # Nudges need no database and statistics no judge: each name brings in its own module only.
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
