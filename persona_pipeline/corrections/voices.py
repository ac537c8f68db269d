"""The voices of running agents, as followed by ``persona-pipeline watch``."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from persona_pipeline.corrections.judgment import ClaimFiles
from persona_pipeline.corrections.nudges import OWN_HISTORY, catchphrases_in
from persona_pipeline.corrections.records import recent_messages
from persona_pipeline.evaluation.voice import followed_text, learn_voice_before
from persona_pipeline.scoring.style.monitor import VoiceAlarm, VoiceWatch
from persona_pipeline.scoring.text.said_again import said_again_statistics
from persona_pipeline.world.messages.files import parse_messages
from persona_pipeline.world.messages.store import read_messages
from persona_pipeline.world.models import Message, Window, grouped
from persona_pipeline.world.names import Aliases
from persona_pipeline.world.propositions.models import FLUENCY
from persona_pipeline.world.world import World

# A message may reach the store a little after one that was sent later.
_LATE = timedelta(minutes=5)
_FOREVER = datetime.max.replace(tzinfo=UTC)


class StoredMessages:
    """Messages of the store after a moment, of all agents."""

    problems: Sequence[str] = ()

    def __init__(self, world: World, since: datetime) -> None:
        self._world, self._since, self._newest = world, since, since
        self._seen: set[str] = set()

    def new(self) -> list[Message]:
        """Return the messages that were stored since the last call. Messages in the world's own files are stored first."""
        self._world.sync_messages()
        start = max(self._since, self._newest - _LATE)
        found = read_messages(self._world.store, Window(end=_FOREVER, start=start))
        fresh = [message for message in found if message.id not in self._seen]
        self._newest = max([self._newest, *(message.created_at for message in found)])
        self._seen = {message.id for message in found if message.created_at > self._newest - _LATE}
        return fresh


class FileMessages:
    """Messages of a .jsonl or .csv file that grows, ``aliases`` of agents followed. Invalid lines are left out.

    Attributes:
        problems: of the new lines.
    """

    def __init__(self, path: Path, aliases: Aliases) -> None:
        self._path, self._aliases, self._size = path, aliases, -1
        self._seen: set[str] = set()
        self.problems: list[str] = []

    def new(self) -> list[Message]:
        """Return the messages of lines that were added. Raises ``ConfigError``: the file cannot be read."""
        self.problems, size = [], self._path.stat().st_size if self._path.exists() else -1
        if size == self._size and size >= 0:
            return []
        self._size = size
        parsed = parse_messages(self._path)
        self.problems = [text for text in map(str, parsed.problems) if text not in self._seen]
        fresh = [self._aliases.owned(message) for message in parsed.messages if message.id not in self._seen]
        self._seen.update(self.problems, (message.id for message in fresh))
        return sorted(fresh, key=lambda message: (message.created_at, message.id))


class VoiceWatches:
    """The voices of some agents and their current states.

    Voices are learnt from messages up to a moment, or stored ones are taken. ConfigError: an agent has no persona in the store.

    Attributes:
        notes: agents that cannot be followed, and why. ``follows``: for the others, the basis of the comparison and its limits.
        looked_at: number of messages compared with a voice.
    """

    def __init__(self, world: World, agent_ids: Sequence[str], moment: datetime, *, again: bool = False) -> None:
        self.notes, self.follows, self.looked_at = list[str](), list[str](), 0
        self._watches: dict[str, tuple[VoiceWatch, datetime]] = {}
        for agent_id in agent_ids:
            state = learn_voice_before(world, agent_id, moment, again=again)
            model, told = state.learnt.model, self.notes
            if state.learnt.note:
                self.notes.append(state.learnt.note)
            if model is not None:
                # A voice is not compared with the messages it was learnt from, or with those of an earlier persona.
                self._watches[agent_id] = VoiceWatch(model), state.learnt.follows_from or model.provenance.until
                told = self.follows
            told += followed_text(state, moment)

    def read(self, messages: Sequence[Message]) -> list[VoiceAlarm]:
        """Compare new messages, oldest first, with their speakers' voices."""
        alarms, by_agent = list[VoiceAlarm](), grouped(messages, lambda message: message.agent_id)
        for agent_id, (watch, start) in self._watches.items():
            said = [message for message in by_agent.get(agent_id, ()) if message.created_at > start]
            self.looked_at += len(said)
            alarms += watch.read(said)[1]
        return sorted(alarms, key=lambda alarm: (alarm.raised_at.created_at, alarm.raised_at.id))


class SaidAgainWatch:
    """Finds repeated lines in agents' conversations after a given moment. Keeps each agent's newest messages."""

    def __init__(self, world: World, agent_ids: Iterable[str], moment: datetime) -> None:
        self._claims = ClaimFiles(world.root, FLUENCY.name)
        with world.store.connect() as connection:
            before = (moment, chr(sys.maxunicode))
            self._own = {name: recent_messages(connection, OWN_HISTORY, before, agent_id=name) for name in agent_ids}

    def read(self, messages: Sequence[Message]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield repetitions in new messages, oldest first: the agent, and both lines as plain JSON; at most twenty per agent."""
        by_agent = grouped(messages, lambda message: message.agent_id)
        for agent_id, known in self._own.items():
            said = by_agent.get(agent_id, [])
            phrases = catchphrases_in(self._claims.of(agent_id))
            yield from ((agent_id, facts) for facts in said_again_statistics(known, said, phrases)["lines"])
            self._own[agent_id] = [*known, *said][-OWN_HISTORY:]


def alarm_facts(alarm: VoiceAlarm) -> dict[str, Any]:
    """Return an alarm as plain JSON."""
    return {
        "agent_id": alarm.agent_id,
        "began_at": {"id": alarm.began_at.id, "created_at": alarm.began_at.created_at.isoformat()},
        "raised_at": {"id": alarm.raised_at.id, "created_at": alarm.raised_at.created_at.isoformat()},
        "messages": alarm.messages,
        "quotes": [{"id": message.id, "text": message.text} for message in alarm.quotes],
        "moved": list(alarm.moved),
        "like": alarm.like,
    }
