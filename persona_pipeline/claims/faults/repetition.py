"""The agent is stuck and says the same things over and over."""

import random
from collections.abc import Sequence

from persona_pipeline.claims.faults.material import Material, NotApplicableError

# One line of its own for so many messages.
_STRETCH = 8


def repetition(texts: Sequence[str], material: Material, generator: random.Random) -> list[str]:
    """A few of its own messages come again and again in place of all others: in character, and stuck in a loop."""
    distinct = sorted({text for text in texts if text.strip()})
    if len(distinct) < 3:
        raise NotApplicableError("it said fewer than three different things")
    lines = generator.sample(distinct, max(1, round(len(distinct) / _STRETCH)))
    return [lines[place % len(lines)] for place in range(len(texts))]
