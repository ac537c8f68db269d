"""Messages that ``persona-pipeline watch`` follows, from the store or a growing file, and the lines repeated in them."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from persona_pipeline.corrections.judgment import ClaimFiles
from persona_pipeline.corrections.nudges import OWN_HISTORY, catchphrases_in
from persona_pipeline.corrections.records import recent_messages
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
