"""Follows agents' messages as they come and says when one no longer sounds like itself. Looks, and never blocks."""

import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

from persona_pipeline.scoring.voice_alarm import LearntVoice, VoiceAlarm, VoiceWatch, learn_stored_voice, stored_voice
from persona_pipeline.world import World
from persona_pipeline.world.aliases import Aliases
from persona_pipeline.world.ingest import parse_messages
from persona_pipeline.world.messages import read_messages
from persona_pipeline.world.models import Message, Window

# A message may reach the store a little after one that was sent later.
_LATE = timedelta(minutes=5)
_FOREVER = datetime.max.replace(tzinfo=UTC)


class MessageSource(Protocol):
    """Somewhere messages come from."""

    def new(self) -> list[Message]:
        """Return the messages that have come since the last call, oldest first."""
        ...


class StoredMessages:
    """Messages of the store after a moment."""

    def __init__(self, world: World, since: datetime) -> None:
        self._world, self._since, self._newest = world, since, since
        self._seen: set[str] = set()

    def new(self) -> list[Message]:
        """Return what has come into the store; messages up to five minutes late are not missed."""
        start = max(self._since, self._newest - _LATE)
        found = read_messages(self._world.store, Window(end=_FOREVER, start=start))
        fresh = [message for message in found if message.id not in self._seen]
        self._newest = max([self._newest, *(message.created_at for message in found)])
        self._seen = {message.id for message in found if message.created_at > self._newest - _LATE}
        return fresh


class FileMessages:
    """Messages of a .jsonl or .csv file that grows, ``aliases`` of agents followed. Lines that are not valid are left out.

    Attributes:
        problems: what is wrong with those that are new.
    """

    def __init__(self, path: Path, aliases: Aliases) -> None:
        self._path, self._aliases, self._size = path, aliases, -1
        self._seen: set[str] = set()
        self._named: set[str] = set()
        self.problems: list[str] = []

    def new(self) -> list[Message]:
        """Return the messages of lines that were added.

        Raises:
            ConfigError: the file cannot be read.
        """
        size = self._path.stat().st_size if self._path.exists() else -1
        if size == self._size and size >= 0:
            return []
        self._size = size
        parsed = parse_messages(self._path)
        self.problems = [text for problem in parsed.problems if (text := str(problem)) not in self._named]
        self._named.update(self.problems)
        fresh = [self._aliases.owned(message) for message in parsed.messages if message.id not in self._seen]
        self._seen.update(message.id for message in fresh)
        return sorted(fresh, key=lambda message: (message.created_at, message.id))


@dataclass
class VoiceWatches:
    """The voices of some agents and how far each has gone. ``notes``: agents that cannot be followed, and why."""

    watches: dict[str, VoiceWatch] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @classmethod
    def learn(
        cls, world: World, agent_ids: Sequence[str], history: Sequence[Message], *, again: bool = False
    ) -> "VoiceWatches":
        """Learn the agents' voices from everybody's ``history``, or take what was learnt before (``learn_stored_voice``).

        Raises:
            ConfigError: an agent has no persona in the store.
        """
        found = cls()
        for agent_id in agent_ids:
            learnt = learn_stored_voice(world.store, agent_id, world.persona(agent_id).hash, history, again=again)
            found.add(learnt)
        return found

    def add(self, learnt: LearntVoice) -> None:
        """Follow a voice from now on, if there is one."""
        if learnt.note:
            self.notes.append(learnt.note)
        if learnt.model is not None:
            self.watches[learnt.agent_id] = VoiceWatch(learnt.model)

    def read(self, messages: Iterable[Message]) -> list[VoiceAlarm]:
        """Hold new messages, oldest first, against their speakers' voices."""
        alarms = []
        for message in messages:
            watch = self.watches.get(message.agent_id)
            # A voice is not held against what it was learnt from.
            if watch is not None and message.created_at > watch.model.provenance.until:
                _, alarm = watch.read(message)
                if alarm is not None:
                    alarms.append(alarm)
        return alarms


def alarm_facts(alarm: VoiceAlarm) -> dict[str, Any]:
    """Return an alarm as plain JSON."""
    return {
        "agent_id": alarm.agent_id,
        "began_at": {"id": alarm.began_at.id, "created_at": alarm.began_at.created_at.isoformat()},
        "raised_at": {"id": alarm.raised_at.id, "created_at": alarm.raised_at.created_at.isoformat()},
        "messages": alarm.messages,
        "quotes": [{"id": message.id, "text": message.text} for message in alarm.quotes],
        "mean_step": alarm.mean_step,
        "usual_step": alarm.usual_step,
    }


@dataclass
class _Followed:
    watch: VoiceWatch
    source: StoredMessages
    loaded: float
    alarm: VoiceAlarm | None = None


class LiveVoices:
    """Whether an agent has lost its voice by now, from what the store has learnt (``watch``) and holds. Safe to share by threads.

    Args:
        seconds: after which the store is asked whether the voice has been learnt anew.
    """

    def __init__(self, world: World, *, seconds: float = 60.0) -> None:
        self._world, self._seconds = world, seconds
        self._followed: dict[str, _Followed] = {}
        self._missing: dict[str, float] = {}
        self._lock = threading.Lock()

    def alarm(self, agent_id: str) -> VoiceAlarm | None:
        """Return the alarm that stands, None when the agent sounds like itself or nothing is known of its voice."""
        with self._lock:
            followed = self._load(agent_id)
            if followed is None:
                return None
            for message in followed.source.new():
                if message.agent_id == agent_id:
                    _, raised = followed.watch.read(message)
                    followed.alarm = raised or followed.alarm
            return followed.alarm if followed.watch.alarmed else None

    def _load(self, agent_id: str) -> _Followed | None:
        now = time.monotonic()
        known = self._followed.get(agent_id)
        if known is not None and now - known.loaded < self._seconds:
            return known
        if now - self._missing.get(agent_id, -self._seconds) < self._seconds:
            return None
        learnt = stored_voice(self._world.store, agent_id)
        if learnt is None or learnt.model is None or learnt.persona_hash != self._world.persona(agent_id).hash:
            self._followed.pop(agent_id, None)
            self._missing[agent_id] = now
            return None
        if known is not None and known.watch.model == learnt.model:
            known.loaded = now
            return known
        source = StoredMessages(self._world, learnt.model.provenance.until)
        self._followed[agent_id] = _Followed(VoiceWatch(learnt.model), source, now)
        return self._followed[agent_id]
