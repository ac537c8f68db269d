"""Labels of messages: in character, out of character or unclear.

People label by thumbs in ``persona-pipeline view``; users by stars, thumbs and swipes, which importers find. Labels are compared
with the judge's verdicts on the same messages.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from persona_pipeline.base.documents.json import content_hash, rfc3339, write_if_changed
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
from persona_pipeline.world.models import Message, grouped

LONGEST_TEXT = 20_000


class MarkSource(StrEnum):
    """Origin of a label: a person who was asked, or a user's action."""

    PERSON = "person"
    STARS = "stars"
    THUMBS = "thumbs"
    SWIPE = "swipe"
    REGENERATION = "regeneration"


# A swipe says that the user liked another text better, not that one of the two is out of character.
OF_OTHER_TEXTS = frozenset((MarkSource.SWIPE, MarkSource.REGENERATION))


class MessageLabel(AnyLabel, frozen=True, title="Message label"):
    """A labeller's verdict on a text of an agent."""

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
    """Return the key of a label: SHA-256 of agent, message and text."""
    return content_hash({"agent_id": agent_id, "message": message, "text": text})


def load_message_labels(folder: Path) -> list[MessageLabel]:
    """Return the labels of messages in a folder of labels; a missing file has none.

    Raises ``ConfigError``: lines that are not labels, and texts that one labeller labelled in two ways, each with its place.
    """
    return load_label_files(MessageLabel, message_label_paths(folder))


def message_label_paths(folder: Path) -> list[Path]:
    """Return the files of labels of messages in a folder: the current one, and that of releases until 0.2."""
    return [path for name in (MESSAGES, VOICE) if (path := folder / f"{name}.jsonl").exists()]


def write_message_labels(
    folder: Path, labels: Iterable[MessageLabel], *, remove: Collection[tuple[str, str]] = ()
) -> list[Path]:
    """Add labels, replacing those with the same identity, and return the changed files.

    The file is sorted and replaced atomically; several processes may write. Labels in a file of an earlier release move to the
    current one. ``remove``: identities of labels to delete. Raises ``ConfigError``: existing labels do not load.
    """
    from filelock import FileLock

    folder.mkdir(parents=True, exist_ok=True)
    path, former = (folder / f"{name}.jsonl" for name in (MESSAGES, VOICE))
    with FileLock(folder / ".lock"):
        known = {label.identity: label for label in load_message_labels(folder) if label.identity not in remove}
        merged = (known | {label.identity: label for label in labels}).values()
        ordered = sorted(merged, key=lambda item: (item.agent_id, item.said_at, item.message, item.key, item.labeller))
        text = "".join(label.to_line() for label in ordered)
        changed = [path] if text and write_if_changed(path, text) else []
        # After the current file is written, so that a crash loses no label.
        gone = [item for item in (former, *([] if text else [path])) if item.exists()]
        for item in gone:
            item.unlink()
    return [*changed, *gone]


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
