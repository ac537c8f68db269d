"""The agent speaks with somebody else's voice."""

import random
from collections.abc import Sequence

from persona_pipeline.claims.faults.material import Material, NotApplicableError

_FEWEST_LINES = 5


def borrowed(texts: Sequence[str], material: Material, generator: random.Random) -> list[str]:
    """Every message becomes a line that one other agent really said: personas mixed up, or a voice taken over."""
    spoken = {agent: [line for line in lines if line.strip()] for agent, lines in material.others.items()}
    agent = max(sorted(spoken), key=lambda name: len(spoken[name]), default=None)
    if agent is None or len(spoken[agent]) < min(_FEWEST_LINES, len(texts)):
        raise NotApplicableError("no other agent has said enough in its channels")
    lines = spoken[agent]
    found: list[str] = []
    while len(found) < len(texts):
        found += generator.sample(lines, len(lines))
    return found[: len(texts)]
