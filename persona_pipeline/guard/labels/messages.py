"""Labels of messages: what a person says of one message of an agent, in character, out of character or unclear.

People label by thumbs in ``persona-pipeline view``; users by stars, thumbs and swipes, which importers find. Labels are compared
with the judge's verdicts on the same messages.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from persona_pipeline.base.documents.json import content_hash, rfc3339
from persona_pipeline.guard.labels.files import (
    LABELLER_PATTERN,
    MESSAGES,
    MOST_NOTE,
    VOICE,
    AnyLabel,
    checked_label,
    load_label_files,
)
from persona_pipeline.scoring.messages.verdicts import Role
from persona_pipeline.world.messages.files import cut_keys
from persona_pipeline.world.models import Message, grouped

LONGEST_TEXT = 20_000


class MarkSource(StrEnum):
    """How the labeller said it: asked for it, or by what users do with messages."""

    PERSON = "person"
    STARS = "stars"
    THUMBS = "thumbs"
    SWIPE = "swipe"
    REGENERATION = "regeneration"


# A swipe says that the user liked another text better, not that one of the two is out of character.
OF_OTHER_TEXTS = frozenset((MarkSource.SWIPE, MarkSource.REGENERATION))


class MessageLabel(AnyLabel, frozen=True, title="Message label"):
    """What one labeller says of one text of an agent: whether it is in character."""

    message: str = Field(
        min_length=1, description="The message's id; of a text that was swiped away, the id of the text that was kept."
    )
    conversation: str = Field(description="Where it was said.")
    said_at: str = Field(description="When, as RFC 3339.", json_schema_extra={"format": "date-time"})
    text: str = Field(min_length=1, max_length=LONGEST_TEXT, description="What was said.")
    verdict: Annotated[Role, Field(strict=False)] = Field(
        description="'in' character, 'out' of character or 'unclear'."
    )
    source: Annotated[MarkSource, Field(strict=False)] = Field(description="How the labeller said it.")
    rating: float | None = Field(None, description="The stars or points that were given, as they were.")
    labeller: str = Field(pattern=LABELLER_PATTERN, description="Who labelled.")
    note: str = Field("", max_length=MOST_NOTE, description="Why, in the labeller's own words.")
    labelled_at: str = Field(description="When, as RFC 3339.", json_schema_extra={"format": "date-time"})

    former_file: ClassVar[str] = VOICE
    former_fields: ClassVar[tuple[str, ...]] = ("on", "chosen")

    @property
    def file(self) -> str:
        return MESSAGES

    @property
    def subject(self) -> str:
        return "message"

    @property
    def order(self) -> tuple[str, ...]:
        return self.agent_id, self.said_at, self.message, self.key, self.labeller

    @classmethod
    def paths(cls, folder: Path) -> list[Path]:
        return [path for name in (MESSAGES, VOICE) if (path := folder / f"{name}.jsonl").exists()]

    @model_validator(mode="before")
    @classmethod
    def _of_earlier_releases(cls, data: Any) -> Any:
        """Return the fields of a label of a voice (until 0.2) as those of a label of a message."""
        if not isinstance(data, dict) or "on" not in data or "verdict" in data:
            return data
        on = data["on"]
        verdict = {True: Role.IN, False: Role.OUT}[on] if isinstance(on, bool) else on
        return {**{name: value for name, value in data.items() if name not in cls.former_fields}, "verdict": verdict}

    @model_validator(mode="after")
    def _sealed(self) -> Self:
        if self.key != message_key(self.agent_id, self.message, self.text):
            raise ValueError("its key is not that of agent, message and text: a field or the key was changed by hand")
        return self


def message_key(agent_id: str, message: str, text: str) -> str:
    """Return the key of what is labelled: SHA-256 of agent, message and text."""
    return content_hash({"agent_id": agent_id, "message": message, "text": text})


def load_message_labels(folder: Path) -> list[MessageLabel]:
    """Return the labels of messages in a folder of labels; a missing file has none.

    Raises ``ConfigError``: lines that are not labels, and texts that one labeller labelled in two ways, each with its place.
    """
    return load_label_files(MessageLabel, MessageLabel.paths(folder))


def message_label(message: Message, verdict: Role, labeller: str, source: MarkSource, **more: Any) -> MessageLabel:
    """Return the label of a message.

    ``more``: other fields of the label, such as the text that was swiped away; ``labelled_at``: default now. Raises
    ``ValueError``: a field has an invalid value, in one line.
    """
    text = str(more.pop("text", message.text))[:LONGEST_TEXT]
    fields = {
        "key": message_key(message.agent_id, message.id, text),
        "agent_id": message.agent_id,
        "message": message.id,
        "conversation": message.conversation,
        "said_at": rfc3339(message.created_at),
        "text": text,
        "verdict": verdict,
        "source": source,
        "labeller": labeller,
        "labelled_at": rfc3339(datetime.now(UTC)),
    }
    return checked_label(MessageLabel, {**fields, **more})


def verdicts_of_people(labels: Iterable[MessageLabel], messages: Iterable[Message]) -> dict[str, dict[str, Role]]:
    """Return the verdicts of most people on messages, by agent and message.

    Labels of a text that was edited since are left out, and those from swipes and regenerations, which compare two texts.
    """
    given = grouped((label for label in labels if label.source not in OF_OTHER_TEXTS), lambda label: label.message)
    found: dict[str, dict[str, Role]] = {}
    for message in messages:
        if own := given.get(message.id):
            key = message_key(message.agent_id, message.id, message.text[:LONGEST_TEXT])
            if current := [label for label in own if label.key == key]:
                found.setdefault(message.agent_id, {})[message.id] = majority(current)
    return found


def majority(labels: Iterable[MessageLabel]) -> Role:
    """Return the verdict of most people on one message, each by the newest label; of a tie and of no label, unclear."""
    newest = {label.labeller: label for label in sorted(labels, key=lambda label: (label.labelled_at, label.key))}
    counts = Counter(label.verdict for label in newest.values()).most_common(2)
    if not counts or (len(counts) == 2 and counts[0][1] == counts[1][1]):
        return Role.UNCLEAR
    return counts[0][0]


# Keys of what users did with a message; ``marks`` is a list of objects with name, value and by.
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


def marks_of(message: Message, unread: Counter[str]) -> Iterator[MessageLabel]:
    """Yield labels from users' marks on an agent's message, in character where the user liked it; count other marks in ``unread``.

    A user is named by a digest, always the same: no name or address of a user comes into the repository.
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
        source, liked, rating = found
        yield _label(message, liked, source, _who(mark) or _who(value) or "", rating=rating)
    for reaction in _listed(extras.get("reactions")):
        name = str(reaction.get("name", "")).split("::")[0] if isinstance(reaction, Mapping) else ""
        if name in ("+1", "thumbsup", "-1", "thumbsdown"):
            for user in dict.fromkeys(map(str, _listed(reaction.get("users")))):
                yield _label(message, name in ("+1", "thumbsup"), MarkSource.THUMBS, user)
        else:
            unread[f"reaction {name[:40]}"] += 1
    for name in KEYS.intersection(cut_keys(extras)):
        unread[f"{name} too long to keep"] += 1


def _label(message: Message, liked: bool, source: MarkSource, by: Any, **more: Any) -> MessageLabel:
    user = hashlib.sha256(str(by).encode("utf-8", "surrogatepass")).hexdigest()[:8] if by else "unknown"
    verdict, moment = Role.IN if liked else Role.OUT, rfc3339(message.created_at)
    return message_label(message, verdict, f"user-{user}", source, labelled_at=moment, **more)


def _rated(name: str, value: Any) -> tuple[MarkSource, bool, float | None] | None:
    """Return the source of a rating, whether the user liked the message, and its number; None: it says neither."""
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
