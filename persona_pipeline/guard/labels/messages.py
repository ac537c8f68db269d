"""Labels of messages: in character, out of character or unclear.

People label by thumbs in ``persona-pipeline view``; users by stars, thumbs and swipes, which importers find. Labels are compared
with the judge's verdicts on the same messages. Other tools get and give them as CSV, or as JSON lines as in the world's own file.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from persona_pipeline.base.documents.json import (
    content_hash,
    csv_rows,
    csv_text,
    json_object,
    read_rows,
    rfc3339,
    write_if_changed,
)
from persona_pipeline.base.errors import ConfigError, Problem, did_you_mean
from persona_pipeline.base.text import plain_cell
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


FORMATS = ("csv", "jsonl")
_REMEDY = "nothing was imported; correct the row"
_OF_KEY = ("agent_id", "message", "text")


def export_labels(labels: Iterable[MessageLabel], format: str) -> str:
    """Return labels as a text: ``jsonl`` as they are in the world, ``csv`` with a column for each field.

    In a CSV cell an apostrophe is put before what a spreadsheet would take for a formula; importing takes it away again. Raises
    ``ConfigError``: the format is unknown.
    """
    if format == "jsonl":
        return "".join(label.to_line() for label in labels)
    if format != "csv":
        raise ConfigError(f"format {format!r} is unknown{did_you_mean(format, FORMATS) or '; write csv or jsonl'}")
    names, data = [*MessageLabel.model_fields], (label.model_dump(mode="json") for label in labels)
    return csv_text([names, *([item[name] for name in names] for item in data)])


def read_labels(path: Path, defaults: Mapping[str, str]) -> list[MessageLabel]:
    """Return the labels of a ``.csv`` or ``.jsonl`` file.

    Columns and fields are those of a label. The key may be left out: it follows from agent, message and text. ``defaults``: fields
    of rows that leave them out, such as the labeller. Raises ``ConfigError``: the file is of another kind, or rows are not labels,
    each with its line; a text labelled twice by the same labeller.
    """
    if not path.is_file():
        raise ConfigError(Problem("is not a file; check the path", str(path)))
    problems: list[Problem] = []
    ending = path.suffix.lower()
    if ending == ".csv":
        rows = _csv_rows(path, problems)
    elif ending == ".jsonl":
        rows = read_rows(path, json_object, problems, remedy=_REMEDY)
    else:
        raise ConfigError(Problem("is neither .csv nor .jsonl; rename it or export it as one of them", str(path)))
    labels: dict[tuple[str, str], tuple[int, MessageLabel]] = {}
    for number, row in rows:
        try:
            label = checked_label(MessageLabel, _keyed({**defaults, **row}))
        except ValueError as error:
            problems.append(Problem(f"{error}; {_REMEDY}", str(path), number))
            continue
        first, _ = labels.setdefault(label.identity, (number, label))
        if first != number:
            text = f"{label.labeller} has labelled this {label.subject} in line {first}; {_REMEDY}"
            problems.append(Problem(text, str(path), number))
    if problems:
        raise ConfigError(problems)
    return [label for _, label in labels.values()]


def _keyed(row: dict[str, Any]) -> dict[str, Any]:
    named = [str(row[name]) for name in _OF_KEY if name in row]
    return {**row, "key": message_key(*named)} if "key" not in row and len(named) == len(_OF_KEY) else row


def _csv_rows(path: Path, problems: list[Problem]) -> list[tuple[int, dict[str, Any]]]:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        problems.append(Problem(f"not UTF-8 ({error.reason} at byte {error.start}); save it as UTF-8", str(path)))
        return []
    rows = csv_rows(text, str(path), problems)
    line, header = next(rows, (1, []))
    names, known = [name.strip() for name in header], MessageLabel.model_fields
    for name in names:
        if name not in (*known, *MessageLabel.former_fields):
            hint = did_you_mean(name, known) or f"; the columns are {', '.join(known)}"
            problems.append(Problem(f"unknown column {name!r}{hint}", str(path), line))
    if len(set(names)) < len(names):
        problems.append(Problem("a column stands twice; remove one", str(path), line))
    if problems:
        return []
    found = []
    for line, cells in rows:
        if not any(cell.strip() for cell in cells):
            continue
        if len(cells) != len(names):
            problems.append(Problem(f"the row has {len(cells)} cells, the header {len(names)}", str(path), line))
            continue
        found.append((line, _row({name: plain_cell(cell) for name, cell in zip(names, cells, strict=True) if cell})))
    return found


def _row(cells: dict[str, Any]) -> dict[str, Any]:
    if "on" in cells:
        # A column of releases until 0.2.
        said = str(cells["on"]).strip().lower()
        cells["on"] = {"true": True, "on": True, "false": False, "off": False}.get(said, said)
    if "verdict" in cells:
        cells["verdict"] = cells["verdict"].strip().lower()
    if "rating" in cells:
        with suppress(ValueError):
            cells["rating"] = float(cells["rating"])
    return cells
