"""Personas, messages, windows of time, and trajectories with marks where messages are left out."""

import hashlib
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from itertools import count
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, Field, model_validator

from persona_pipeline.base.documents.json import content_hash
from persona_pipeline.base.errors import ConfigError


def _not_blank(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be empty")
    return value


NotBlank = Annotated[str, AfterValidator(_not_blank)]


# The gate's verdict on the message replaced these settings. Files and requests that have them are still read.
REPLACED_SETTINGS = ("voice_check", "facts_check")


class CorrectionSettings(BaseModel, extra="forbid", frozen=True):
    """Runtime corrections of an agent (spec/2 ``agent_evaluation_config``). All off by default.

    Attributes:
        action_gate_threshold: score 0-9 an action must reach.
        convergence_threshold, repetition_threshold: shares 0-1 above which a nudge is given.
        max_correction_attempts: rejections before the text goes through.
        shadow_mode: enabled corrections only measure and record.
    """

    action_gate_enabled: bool = False
    action_gate_threshold: float = Field(default=5.0, ge=0, le=9, allow_inf_nan=False)
    anti_convergence_enabled: bool = False
    convergence_threshold: float = Field(default=0.6, ge=0, le=1, allow_inf_nan=False)
    repetition_suppression_enabled: bool = False
    repetition_threshold: float = Field(default=0.3, ge=0, le=1, allow_inf_nan=False)
    max_correction_attempts: int = Field(default=2, ge=0, le=10)
    shadow_mode: bool = False

    @model_validator(mode="before")
    @classmethod
    def _without_replaced(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        return {name: value for name, value in data.items() if name not in REPLACED_SETTINGS}


@dataclass(frozen=True)
class Persona:
    """Who an agent is. ``persona`` is the text its system prompt is built from; ``aliases``: other names it speaks under."""

    agent_id: str
    display_name: str
    persona: str
    corrections: CorrectionSettings = field(default_factory=CorrectionSettings)
    aliases: tuple[str, ...] = ()

    @property
    def hash(self) -> str:
        """SHA-256 of the parts of the persona that a judge sees (name and text)."""
        return content_hash({"display_name": self.display_name, "persona": self.persona})


@dataclass(frozen=True)
class Message:
    """One message as it was sent. A direct message has ``recipient`` and no ``channel``; times are UTC.

    Attributes:
        speaker, addressee: the names its source has for ``agent_id`` and ``recipient``, where those are aliases of agents.
        extras: what else its source says of it, JSON values by key (``extras.bounded_extras``). No judge and no page is shown them.
    """

    id: str
    agent_id: str
    text: str
    created_at: datetime
    channel: str | None = None
    recipient: str | None = None
    run_id: str | None = None
    synthetic: bool = False
    speaker: str | None = None
    addressee: str | None = None
    extras: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def is_direct(self) -> bool:
        return self.channel is None

    @property
    def conversation(self) -> str:
        """Where it was said: the channel, or the two parties of a direct message in a fixed order."""
        if self.channel is not None:
            return f"#{self.channel}"
        return "dm:" + "+".join(sorted((self.agent_id, self.recipient or "")))


@dataclass(frozen=True)
class Window:
    """A span of time, ``start`` excluded and ``end`` included; ``start`` None means from the first message."""

    end: datetime
    start: datetime | None = None

    def __contains__(self, moment: datetime) -> bool:
        return moment <= self.end and (self.start is None or moment > self.start)

    def previous(self) -> "Window | None":
        """Return the window of the same length before this one; None when this one is unbounded."""
        if self.start is None:
            return None
        return Window(end=self.start, start=self.start - (self.end - self.start))

    @classmethod
    def ending(cls, end: datetime, length: timedelta | None) -> "Window":
        """Return the window of a length (None: everything) that ends at a moment."""
        return cls(end=end, start=None if length is None else end - length)


def seed_from(*parts: Any) -> int:
    """Return a 64-bit seed from content, the same on every machine and Python."""
    digest = hashlib.sha256("\x1f".join(str(part) for part in parts).encode("utf-8", "surrogatepass"))
    return int.from_bytes(digest.digest()[:8], "big")


Item = TypeVar("Item")
Name = TypeVar("Name", bound=Hashable)


def grouped(items: Iterable[Item], name: Callable[[Item], Name]) -> dict[Name, list[Item]]:
    """Return items by a name that each has, names and items in the order of their coming."""
    found: dict[Name, list[Item]] = {}
    for item in items:
        found.setdefault(name(item), []).append(item)
    return found


PAUSE = timedelta(hours=1)


def conversations(messages: Iterable[Message]) -> list[int]:
    """Return a number for each message, the same within a conversation: one place, no pause of an hour.

    ``messages``: in order of time.
    """
    latest: dict[str, tuple[int, datetime]] = {}
    numbers: list[int] = []
    fresh = count()
    for message in messages:
        number, last = latest.get(message.conversation, (-1, message.created_at))
        if number < 0 or message.created_at - last >= PAUSE:
            number = next(fresh)
        numbers.append(number)
        latest[message.conversation] = (number, message.created_at)
    return numbers


_WINDOW = re.compile(r"([0-9]{1,6})([hd])")
_HOURS = {"h": 1, "d": 24}


def window_indices(length: int, first_n: int, last_n: int) -> list[int]:
    """Return the indexes of the first ``first_n`` and the last ``last_n`` of ``length`` entries, each once, ascending.

    Raises ``ValueError``: an argument is negative.
    """
    if min(length, first_n, last_n) < 0:
        raise ValueError("length, first_n and last_n must not be negative")
    if first_n + last_n >= length:
        return list(range(length))
    return [*range(first_n), *range(length - last_n, length)]


def parse_window(text: str) -> timedelta:
    """Return the length of a window such as ``12h`` or ``7d``: whole hours or days.

    Raises ``ConfigError``: the text is something else.
    """
    match = _WINDOW.fullmatch(text)
    if not match:
        raise ConfigError(f"window {text!r} is not a length of time; write whole hours or days such as 12h or 7d")
    return timedelta(hours=int(match[1]) * _HOURS[match[2]])


@dataclass(frozen=True)
class Entry:
    """One message of a trajectory. ``message_id`` is for attribution and is not part of the trajectory's content.

    ``speaker``: display name, or an anonymous label such as ``Speaker A``. ``part``: its group, such as ``pair 1, earlier``; None:
    without groups.
    """

    speaker: str
    text: str
    message_id: str
    channel: str | None = None
    recipient: str | None = None
    part: str | None = None


@dataclass(frozen=True)
class Omission:
    """Mark of ``count`` left out entries."""

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
            fields = {"part": item.part, "speaker": item.speaker, "channel": item.channel, "to": item.recipient}
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
    items: list[Entry | Omission] = [entries[index] for index in window_indices(len(entries), first_n, last_n)]
    if len(items) < len(entries):
        items.insert(first_n, Omission(len(entries) - len(items)))
    return Trajectory(tuple(items))


def message_entry(message: Message, speaker: str, *, recipient: str | None = None, part: str | None = None) -> Entry:
    """Return the entry of a message under a speaker's label."""
    return Entry(speaker, message.text, message.id, message.channel, recipient, part)
