"""The world: who is evaluated, on what they said, and when."""

from typing import TYPE_CHECKING, Any

from persona_pipeline.world.models import (
    CorrectionSettings,
    Entry,
    Message,
    Omission,
    Persona,
    Trajectory,
    Window,
    parse_window,
    window_indices,
    windowed,
)

if TYPE_CHECKING:
    from persona_pipeline.world.world import SyncResult, World

__all__ = [
    "CorrectionSettings",
    "Entry",
    "Message",
    "Omission",
    "Persona",
    "SyncResult",
    "Trajectory",
    "Window",
    "World",
    "parse_window",
    "window_indices",
    "windowed",
]


def __getattr__(name: str) -> Any:
    # World brings in SQLAlchemy; who only needs a trajectory does not pay for it.
    if name in ("World", "SyncResult"):
        from persona_pipeline.world import world

        return getattr(world, name)
    raise AttributeError(name)
