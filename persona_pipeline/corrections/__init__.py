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

_NAMES = {
    "configuration": ("StoredSettings", "read_config", "reset_config", "write_config"),
    "decision": ("Action", "GateDecision", "Outcome"),
    "gate": ("ActionGate", "gate_backend"),
    "interventions": ("Interventions",),
    "nudges": ("AntiConvergence", "RepetitionSuppression", "guidance_block"),
    "statistics": ("CorrectionStatistics", "correction_statistics"),
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
    for module, names in _NAMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
