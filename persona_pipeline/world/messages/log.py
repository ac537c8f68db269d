"""Messages in memory, found by time, speaker and channel; read from a world's folder where there is no store."""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path

from persona_pipeline.world.messages.files import ENDINGS, parse_messages
from persona_pipeline.world.models import Message, Window
from persona_pipeline.world.names import AgentNames, Aliases

MESSAGES = "messages"


@dataclass(frozen=True)
class MessageLog:
    """Messages in order of time (then id), each id once; see ``of``."""

    messages: tuple[Message, ...] = ()

    @classmethod
    def of(cls, messages: Iterable[Message]) -> "MessageLog":
        """Return the log of messages in whatever order; of one id the first counts."""
        found: dict[str, Message] = {}
        for message in messages:
            found.setdefault(message.id, message)
        return cls(tuple(sorted(found.values(), key=_place)))

    def within(
        self, window: Window | None = None, *, agent_id: str | None = None, channels: Collection[str] | None = None
    ) -> list[Message]:
        """Return messages in order of time.

        Args:
            window: None for all times.
            agent_id: only this speaker's; else channels: only in these, direct messages left out.
        """
        if agent_id is not None:
            return _within(self._by_speaker.get(agent_id, ()), window)
        if channels is None:
            return _within(self.messages, window)
        parts = [_within(self._by_channel.get(channel, ()), window) for channel in dict.fromkeys(channels)]
        return parts[0] if len(parts) == 1 else sorted((message for part in parts for message in part), key=_place)

    @property
    def newest(self) -> datetime | None:
        """When the last message was sent."""
        return self.messages[-1].created_at if self.messages else None

    @cached_property
    def _by_speaker(self) -> Mapping[str, list[Message]]:
        found: dict[str, list[Message]] = {}
        for message in self.messages:
            found.setdefault(message.agent_id, []).append(message)
        return found

    @cached_property
    def _by_channel(self) -> Mapping[str, list[Message]]:
        found: dict[str, list[Message]] = {}
        for message in self.messages:
            if message.channel is not None:
                found.setdefault(message.channel, []).append(message)
        return found


def folder_messages(root: Path, names: Mapping[str, AgentNames], *, until: datetime) -> MessageLog:
    """Return the messages of a world's folder, aliases followed; what is not valid in a file is left out, as a store leaves it out.

    Args:
        names: what every agent is called.
        until: those sent later are left out.
    """
    aliases = Aliases.of(names)
    said = (aliases.owned(message) for path in message_files(root) for message in parse_messages(path).messages)
    return MessageLog.of(message for message in said if message.created_at <= until)


def message_files(root: Path) -> list[Path]:
    """Return the message files of a world's folder, sorted."""
    folder = root / MESSAGES
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in ENDINGS) if folder.is_dir() else []


def _place(message: Message) -> tuple[datetime, str]:
    # By code point, whatever a database's locale: a judge is shown, and recordings are keyed by, this order.
    return message.created_at, message.id


def _sent(message: Message) -> datetime:
    return message.created_at


def _within(messages: Sequence[Message], window: Window | None) -> list[Message]:
    if window is None:
        return list(messages)
    # A window's start is left out, its end is in it.
    first = 0 if window.start is None else bisect_right(messages, window.start, key=_sent)
    return list(messages[first : bisect_right(messages, window.end, key=_sent)])
