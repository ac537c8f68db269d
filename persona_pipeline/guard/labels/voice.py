"""Labels of an agent's voice: what somebody says of one of its messages, that it sounds like the agent or does not.

People say it when they are asked (``persona-pipeline label --voice``); users by stars, thumbs and swipes, which importers find.
"""

from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from persona_pipeline.base.documents.json import content_hash, rfc3339
from persona_pipeline.guard.labels.files import (
    LABELLER_PATTERN,
    MOST_NOTE,
    VOICE,
    AnyLabel,
    checked_label,
    load_label_files,
)
from persona_pipeline.world.models import Message

LONGEST_TEXT = 20_000


class MarkSource(StrEnum):
    """How somebody said it: asked for it, or by what users do with messages."""

    PERSON = "person"
    STARS = "stars"
    THUMBS = "thumbs"
    SWIPE = "swipe"
    REGENERATION = "regeneration"


# For how many labels one counts of a person who was asked. A star may be for the answer and not for its voice, and who swipes only
# says that another text was better.
WORTH = {MarkSource.STARS: 0.5, MarkSource.THUMBS: 0.5, MarkSource.SWIPE: 0.25, MarkSource.REGENERATION: 0.25}


class VoiceLabel(AnyLabel):
    """What one labeller says of one text of an agent: whether it sounds like the agent."""

    model_config = ConfigDict(title="Voice label")

    message: str = Field(
        min_length=1, description="The message's id; of a text that was swiped away, of the one that was kept."
    )
    conversation: str = Field(
        description="Where it was said; texts of one conversation are judged by a check that saw none of it."
    )
    said_at: str = Field(description="When, as RFC 3339.", json_schema_extra={"format": "date-time"})
    text: str = Field(min_length=1, max_length=LONGEST_TEXT, description="What was said.")
    on: bool = Field(description="Whether it sounds like the agent.")
    source: Annotated[MarkSource, Field(strict=False)] = Field(description="How the labeller said it.")
    rating: float | None = Field(None, description="The stars or points that were given, as they were.")
    chosen: Literal["random", "uncertain", "given"] = Field(
        "given", description="Drawn by lot, because the check was unsure, or rated by whoever felt like it."
    )
    labeller: str = Field(pattern=LABELLER_PATTERN, description="Who labelled.")
    note: str = Field("", max_length=MOST_NOTE, description="Why, in the labeller's own words.")
    labelled_at: str = Field(description="When, as RFC 3339.", json_schema_extra={"format": "date-time"})

    @property
    def file(self) -> str:
        return VOICE

    @property
    def subject(self) -> str:
        return "message"

    @property
    def order(self) -> tuple[str, ...]:
        return self.agent_id, self.said_at, self.message, self.key, self.labeller

    @property
    def worth(self) -> float:
        """For how many labels of a person who was asked it counts."""
        return WORTH.get(self.source, 1.0)

    @property
    def talk(self) -> str:
        """The conversation, each day of a channel one of its own."""
        return f"{self.conversation} {self.said_at[:10]}"

    @classmethod
    def paths(cls, folder: Path) -> list[Path]:
        return [path for path in [folder / f"{VOICE}.jsonl"] if path.exists()]

    @model_validator(mode="after")
    def _sealed(self) -> Self:
        if self.key != voice_key(self.agent_id, self.message, self.text):
            raise ValueError("its key is not that of agent, message and text: a field or the key was changed by hand")
        return self


def voice_key(agent_id: str, message: str, text: str) -> str:
    """Return the key of what is labelled: SHA-256 of agent, message and text."""
    return content_hash({"agent_id": agent_id, "message": message, "text": text})


def load_voice_labels(folder: Path) -> list[VoiceLabel]:
    """Return the labels of voices in a folder of labels; a missing file has none.

    Raises:
        ConfigError: lines that are no label, and texts that one labeller labelled in two ways, each with its place.
    """
    return load_label_files(VoiceLabel, VoiceLabel.paths(folder))


def voice_label(message: Message, on: bool, labeller: str, source: MarkSource, **more: Any) -> VoiceLabel:
    """Return the label of a message.

    Args:
        more: other fields of the label, such as the text that was swiped away; ``labelled_at``: default now.

    Raises:
        ValueError: a field cannot be so, in one line.
    """
    text = str(more.pop("text", message.text))[:LONGEST_TEXT]
    fields = {
        "key": voice_key(message.agent_id, message.id, text),
        "agent_id": message.agent_id,
        "message": message.id,
        "conversation": message.conversation,
        "said_at": rfc3339(message.created_at),
        "text": text,
        "on": on,
        "source": source,
        "labeller": labeller,
        "labelled_at": rfc3339(datetime.now(UTC)),
    }
    return checked_label(VoiceLabel, {**fields, **more})
