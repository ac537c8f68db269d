"""What is shown to the judge: entries in order, with marks where some are left out."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from persona_pipeline.world.models import Message, window_indices


@dataclass(frozen=True)
class Entry:
    """One message of a trajectory. ``message_id`` is for attribution and is not part of the trajectory's content.

    Attributes:
        speaker: display name, or an anonymous label such as ``Speaker A``.
        part: the group it belongs to, such as ``pair 1, earlier``; None where there are no groups.
    """

    speaker: str
    text: str
    message_id: str
    channel: str | None = None
    recipient: str | None = None
    part: str | None = None


@dataclass(frozen=True)
class Omission:
    """Stands where ``count`` entries are left out."""

    count: int


@dataclass(frozen=True)
class Trajectory:
    """Entries and omissions in the order they are shown."""

    items: tuple[Entry | Omission, ...]

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        return tuple(item for item in self.items if isinstance(item, Entry))

    def content(self) -> list[dict[str, Any]]:
        """Return plain data in a stable form: entries are numbered ``m1``, ``m2``, ... and carry no outside ids."""
        content: list[dict[str, Any]] = []
        number = 0
        for item in self.items:
            if isinstance(item, Omission):
                content.append({"omitted": item.count})
                continue
            number += 1
            fields = {
                "part": item.part,
                "speaker": item.speaker,
                "channel": item.channel,
                "to": item.recipient,
            }
            content.append(
                {"id": f"m{number}"} | {k: v for k, v in fields.items() if v is not None} | {"text": item.text}
            )
        return content

    def entry(self, local_id: str) -> Entry | None:
        """Return the entry that ``content()`` numbered so, or None."""
        number = local_id.removeprefix("m")
        if not number.isascii() or not number.isdigit():
            return None
        return self.entries[int(number) - 1] if 1 <= int(number) <= len(self.entries) else None


def windowed(entries: Sequence[Entry], first_n: int, last_n: int) -> Trajectory:
    """Return the trajectory of the first and last entries, omissions marked."""
    items: list[Entry | Omission] = []
    previous = -1
    for index in window_indices(len(entries), first_n, last_n):
        if index > previous + 1:
            items.append(Omission(index - previous - 1))
        items.append(entries[index])
        previous = index
    if previous + 1 < len(entries):
        items.append(Omission(len(entries) - previous - 1))
    return Trajectory(tuple(items))


def message_entry(message: Message, speaker: str, *, recipient: str | None = None, part: str | None = None) -> Entry:
    """Return the entry of a message under a speaker's label."""
    return Entry(speaker, message.text, message.id, message.channel, recipient, part)
