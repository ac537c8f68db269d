"""Labels of a made-up voice: short sentences of its own, or stock courtesies."""

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from persona_pipeline.guard.labels.messages import MarkSource, MessageLabel, message_label
from persona_pipeline.scoring.messages.verdicts import Role
from persona_pipeline.world.models import Message

START = datetime(2026, 1, 5, 9, tzinfo=UTC)
_OWN = ("Arr, the {0} be leakin' again!", "No {0} on me ship, ye hear?", "Hoist that {0}, lad, quick now!")
_STOCK = (
    "Thank you for reaching out about the {0}.",
    "I apologise for the inconvenience with your {0}.",
    "Please let me know if you have further questions about the {0}.",
)
_THINGS = (
    "mast",
    "anchor",
    "barrel",
    "sail",
    "rope",
    "lantern",
    "compass",
    "plank",
    "galley",
    "rudder",
    "crate",
    "flag",
)


def message(number: int, on: bool, agent_id: str = "ann", together: int = 4) -> Message:
    """The message of a number, said in a conversation with three others."""
    generator = random.Random(f"{number} {on}")
    text = generator.choice(_OWN if on else _STOCK).format(" and the ".join(generator.sample(_THINGS, 2)))
    at = START + timedelta(days=number // together, minutes=number)
    return Message(f"m{number}", agent_id, f"{text} {number}", at, f"talk-{number // together}")


def labels(kinds: Sequence[bool], together: int = 4, agent_id: str = "ann", **fields: Any) -> tuple[MessageLabel, ...]:
    """A label of each message, in or out of character."""
    given = {"source": MarkSource.PERSON, "labeller": "ada", **fields}
    labeller, source = given.pop("labeller"), given.pop("source")
    return tuple(
        message_label(message(n, on, agent_id, together), Role.IN if on else Role.OUT, labeller, source, **given)
        for n, on in enumerate(kinds)
    )


HALF = tuple(n % 2 == 0 for n in range(48))
