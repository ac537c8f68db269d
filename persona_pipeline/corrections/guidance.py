"""What an agent is told for one turn: a block appended to its prompt, used once and stored nowhere."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

HEADING = "### Conversation Guidance"


class Intervention(StrEnum):
    """The two that speak up before an agent writes."""

    ANTI_CONVERGENCE = "anti_convergence"
    REPETITION = "repetition_suppression"


@dataclass(frozen=True)
class Nudge:
    """One piece of guidance, and the share (0-1) that rose above its threshold."""

    kind: Intervention
    text: str
    share: float
    threshold: float


def guidance_block(nudges: Sequence[Nudge]) -> str | None:
    """Return the nudges under one heading; None when there is none."""
    if not nudges:
        return None
    return "\n\n".join([HEADING, *(nudge.text for nudge in nudges)])
