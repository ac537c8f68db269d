"""The verdict on a message."""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel


class Role(StrEnum):
    """Whether a message is in character."""

    IN = "in"
    OUT = "out"
    UNCLEAR = "unclear"


class MessageVerdict(BaseModel, extra="forbid", frozen=True):
    """What a reader says of one message of an agent.

    Attributes:
        message: its id. ``said_at``: UTC.
        conversation: the place where the message was said and when that conversation began; messages of one conversation are
            not independent of each other.
        claims: ids of the claims that it breaks; empty where it contradicts the persona's facts alone.
        quote: the words that decide, as they are in the message. ``reason``: at most 15 words of the reader.
    """

    message: str
    conversation: str
    said_at: datetime
    verdict: Role
    claims: tuple[str, ...] = ()
    quote: str = ""
    reason: str = ""


def in_order(verdicts: Sequence[MessageVerdict]) -> list[MessageVerdict]:
    """Return verdicts in the order in which their messages were said."""
    return sorted(verdicts, key=lambda item: (item.said_at, item.message))
