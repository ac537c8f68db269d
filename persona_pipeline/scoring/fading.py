"""From which message of a scripted conversation on a character is lost: the assert ``fades``.

The input is one value a message, the adherence score of that message. A character counts as lost from the message on from which all
that follows, taken together, lies farthest below the threshold, and at least two messages do. What fades in real conversations is
counted in ``scoring.messages.kinds``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from persona_pipeline.scoring.results import HIGHEST, DimensionEvaluation, weighted_mean

SHORTEST = 5
HELD = 2
THRESHOLD = 5.0


@dataclass(frozen=True)
class MessageValue:
    """One message of the agent: ``number`` counts its messages in the conversation from 1; ``value``: 0-9 (None: not judged)."""

    number: int
    value: float | None


def message_scores(evaluated: DimensionEvaluation) -> dict[str, float]:
    """Return the score (0-9) of each message that was judged by itself (``level: action``): the claims' weighted mean."""
    found: dict[str, list[tuple[float, float]]] = {}
    for row in evaluated.propositions.values():
        for part in row.parts:
            if part.get("raw") is not None and row.weight > 0:
                raw = float(part["raw"])
                found.setdefault(str(part["part"]), []).append((HIGHEST - raw if row.inverted else raw, row.weight))
    return {message_id: weighted_mean(pairs) for message_id, pairs in found.items()}


def character_end(turns: Sequence[MessageValue]) -> tuple[int, bool]:
    """Return the turn from which on the character is lost for good, and whether it is; the last turn where it is not.

    ``turns``: the judged ones of one conversation, at least 2.
    """
    # How far below the threshold all that follows lies, from each turn on.
    below = list(accumulate(THRESHOLD - (turn.value or 0.0) for turn in reversed(turns)))[HELD - 1 :][::-1]
    deepest = max(below)
    return (turns[below.index(deepest)].number, True) if deepest > 0 else (turns[-1].number, False)
