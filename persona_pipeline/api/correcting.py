"""Runtime corrections from Python."""

from persona_pipeline.corrections.backend import gate_backend
from persona_pipeline.corrections.gate import DEADLINE_SECONDS, ActionGate
from persona_pipeline.judging.verdict import Backend
from persona_pipeline.world.models import CorrectionSettings
from persona_pipeline.world.world import World


def open_gate(
    world: World,
    *,
    backend: Backend | None = None,
    deadline: float = DEADLINE_SECONDS,
    settings: CorrectionSettings | None = None,
) -> ActionGate:
    """Open the action gate: asked before an agent's message is sent, and never at the price of the message.

    Personas are brought into the store first. ``await gate.check(...)`` in an event loop, ``gate.check_sync(...)`` elsewhere; one
    of the two on one gate.

    Args:
        backend: who judges; None: the live judge of the settings.
        deadline: seconds a check may take in all.
        settings: instead of each agent's own, by which the gate is off unless turned on.

    Raises:
        ConfigError: a persona file is not valid, or there is no key for the live judge.
    """
    world.sync()
    return ActionGate(world, backend or gate_backend(), deadline=deadline, settings=settings)
