"""Labels of an agent's voice: what somebody says of one of its messages, that it sounds like the agent or does not.

People say it by thumbs in ``persona-pipeline view``; users by stars, thumbs and swipes, which importers find.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from persona_pipeline.base.documents.json import content_hash, rfc3339
from persona_pipeline.guard.labels.files import (
    LABELLER_PATTERN,
    MOST_NOTE,
    VOICE,
    AnyLabel,
    checked_label,
    load_label_files,
)
from persona_pipeline.world.messages.files import cut_keys
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


class VoiceLabel(AnyLabel, frozen=True, title="Voice label"):
    """What one labeller says of one text of an agent: whether it sounds like the agent."""

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

    Raises ``ConfigError``: lines that are no label, and texts that one labeller labelled in two ways, each with its place.
    """
    return load_label_files(VoiceLabel, VoiceLabel.paths(folder))


def voice_label(message: Message, on: bool, labeller: str, source: MarkSource, **more: Any) -> VoiceLabel:
    """Return the label of a message.

    ``more``: other fields of the label, such as the text that was swiped away; ``labelled_at``: default now. Raises
    ``ValueError``: a field cannot be so, in one line.
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


# Under these a source says what users did with a message; ``marks`` is a list of objects with name, value and by.
MARKS = "marks"
_RATINGS = ("stars", "rating", "thumbs", "feedback", "annotation")
_OTHER_TEXTS = {"swipes": MarkSource.SWIPE, "regenerations": MarkSource.REGENERATION}
KEYS = frozenset((MARKS, *_RATINGS, *_OTHER_TEXTS, "reactions"))
# Tools keep scores of all kinds beside one another; these names are what users think of an answer.
_OF_USERS = re.compile(r"thumb|star|rating|feedback|annotation|\blike|voice|character|user[ _-]?score", re.IGNORECASE)
_UP = frozenset(("up", "thumbsup", "like", "liked", "positive", "good", "+1"))
_DOWN = frozenset(("down", "thumbsdown", "dislike", "disliked", "negative", "bad", "-1"))
_BY = ("by", "user", "user_id", "userId", "author", "authorUserId")
_INNER = ("rating", "score", "value", "thumbs", "stars")
# From so many of five stars a message is liked, up to so many it is not.
_LIKED, _DISLIKED, _STARS = 4, 2, 5


def marks_of(message: Message, unread: Counter[str]) -> Iterator[VoiceLabel]:
    """Yield what users' marks say of an agent's message, and count in ``unread`` those that say nothing that can be told.

    Who marked is known by a digest, the same for the same user: no name or address of a user comes into the repository.
    """
    extras = message.extras
    for name, source in _OTHER_TEXTS.items():
        # Of a format that says who chose, only where somebody did.
        by = extras.get("swiped_by", None if "swipe_id" in extras else "")
        others = [text for text in _listed(extras.get(name)) if isinstance(text, str) and _other(text, message.text)]
        if others and by is not None:
            yield _label(message, True, source, by)
            yield from (_label(message, False, source, by, text=text) for text in dict.fromkeys(others))
    given = [{"name": name, "value": extras[name]} for name in _RATINGS if name in extras]
    for mark in [*given, *(item for item in _listed(extras.get(MARKS)) if isinstance(item, Mapping))]:
        name, value = str(mark.get("name", "")), mark.get("value")
        found = _rated(name, value) if _OF_USERS.search(name) else None
        if found is None:
            unread[f"{name[:40]} {_shown(value)}".strip()] += 1
            continue
        source, on, rating = found
        yield _label(message, on, source, _who(mark) or _who(value) or "", rating=rating)
    for reaction in _listed(extras.get("reactions")):
        name = str(reaction.get("name", "")).split("::")[0] if isinstance(reaction, Mapping) else ""
        if name in ("+1", "thumbsup", "-1", "thumbsdown"):
            for user in dict.fromkeys(map(str, _listed(reaction.get("users")))):
                yield _label(message, name in ("+1", "thumbsup"), MarkSource.THUMBS, user)
        else:
            unread[f"reaction {name[:40]}"] += 1
    for name in KEYS.intersection(cut_keys(extras)):
        unread[f"{name} too long to keep"] += 1


def _label(message: Message, on: bool, source: MarkSource, by: Any, **more: Any) -> VoiceLabel:
    user = hashlib.sha256(str(by).encode("utf-8", "surrogatepass")).hexdigest()[:8] if by else "unknown"
    return voice_label(message, on, f"user-{user}", source, labelled_at=rfc3339(message.created_at), **more)


def _rated(name: str, value: Any) -> tuple[MarkSource, bool, float | None] | None:
    """Return what a rating is and says, with its number; None: that cannot be told."""
    if isinstance(value, Mapping):
        inner = next(((key, value[key]) for key in _INNER if value.get(key) is not None), None)
        return None if inner is None else _rated(f"{name} {inner[0]}" if inner[0] == "stars" else name, inner[1])
    if isinstance(value, str):
        word = re.sub(r"[\s_]", "", value).lower()
        if word in _UP | _DOWN:
            return MarkSource.THUMBS, word in _UP, None
        try:
            value = float(word)
        except ValueError:
            return None
    if isinstance(value, bool):
        return MarkSource.THUMBS, value, None
    if not isinstance(value, (int, float)):
        return None
    of_stars = "star" in name.lower()
    if value in (-1, 0, 1) and not of_stars:
        # One of five, or a thumb: who says "rating" may mean either.
        return None if value == 1 and name == "rating" else (MarkSource.THUMBS, value > 0, float(value))
    if not 1 <= value <= _STARS or _DISLIKED < value < _LIKED:
        return None
    return MarkSource.STARS, value >= _LIKED, float(value)


def _who(value: Any) -> Any:
    return next((value[key] for key in _BY if value.get(key)), None) if isinstance(value, Mapping) else None


def _other(text: str, kept: str) -> bool:
    return bool(text.strip()) and text.strip() != kept.strip()


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _shown(value: Any) -> str:
    return "" if isinstance(value, (Mapping, list)) else str(value)[:20]
