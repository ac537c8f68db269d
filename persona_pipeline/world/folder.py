"""A world's folder without a store: its messages and names in memory, for reading a past state of it."""

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path

from persona_pipeline.world.aliases import Aliases, read_names
from persona_pipeline.world.ingest import parse_messages
from persona_pipeline.world.models import Message, Window
from persona_pipeline.world.reading import ENDINGS
from persona_pipeline.world.world import FUTURE_GRACE, MESSAGES, utc_now


@dataclass(frozen=True)
class FolderWorld:
    """Reads like a ``World``, and writes nothing. What is not valid in a message file is left out, as there."""

    root: Path
    clock: Callable[[], datetime] = utc_now

    @property
    def rules_root(self) -> Path:
        """The folder of what decides: its own."""
        return self.root

    def messages(
        self,
        window: Window | None = None,
        *,
        agent_id: str | None = None,
        channels: Iterable[str] | None = None,
        synthetic: bool = False,
    ) -> list[Message]:
        """Return messages in order of time, none of the future; see ``World.messages``."""
        places = None if channels is None else set(channels)
        return [
            message
            for message in self._in(window)
            if agent_id in (None, message.agent_id)
            and (places is None or message.channel in places)
            and message.synthetic == synthetic
        ]

    def _in(self, window: Window | None) -> list[Message]:
        if window is None:
            return self._messages

        def sent(message: Message) -> datetime:
            return message.created_at

        # A window's start is left out, its end is in it.
        first = 0 if window.start is None else bisect_right(self._messages, window.start, key=sent)
        return self._messages[first : bisect_right(self._messages, window.end, key=sent)]

    def display_names(self) -> dict[str, str]:
        """Return the display name of everybody with a persona."""
        return {agent_id: item.display_name or agent_id for agent_id, item in read_names(self.root).items()}

    def newest_message_time(self) -> datetime | None:
        """Return when the newest message was sent that is not in the future."""
        return self._messages[-1].created_at if self._messages else None

    @cached_property
    def _messages(self) -> list[Message]:
        folder = self.root / MESSAGES
        paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in ENDINGS) if folder.is_dir() else []
        aliases, latest = Aliases.of(read_names(self.root)), self.clock() + FUTURE_GRACE
        found: dict[str, Message] = {}
        for path in paths:
            for message in parse_messages(path).messages:
                found.setdefault(message.id, aliases.owned(message))
        kept = (message for message in found.values() if message.created_at <= latest)
        return sorted(kept, key=lambda message: (message.created_at, message.id))
