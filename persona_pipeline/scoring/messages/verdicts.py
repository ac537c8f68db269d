"""The verdict on a message, and the verdicts on the messages of one agent in one window."""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel, Field

from persona_pipeline.judging.verdict import Usage


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


class MessageVerdicts(BaseModel, extra="forbid"):
    """The verdicts on the messages of one agent in one window, in order of time.

    Attributes:
        unscored: number of messages without a verdict, by reason. ``detail``: the first failure in one line.
        left_out: number of older messages that were not asked about.
        model: the judge's model. ``prompt_version``: of the question.
        usage: tokens and price of the calls of this run.
    """

    agent_id: str
    verdicts: list[MessageVerdict] = Field(default_factory=list)
    unscored: dict[str, int] = Field(default_factory=dict)
    detail: str = ""
    left_out: int = 0
    model: str | None = None
    prompt_version: str | None = None
    usage: Usage = Field(default_factory=Usage)

    def count(self, verdict: Role) -> int:
        """Return how many messages have a verdict."""
        return sum(item.verdict is verdict for item in self.verdicts)


def in_order(verdicts: Sequence[MessageVerdict]) -> list[MessageVerdict]:
    """Return verdicts in the order in which their messages were said."""
    return sorted(verdicts, key=lambda item: (item.said_at, item.message))
