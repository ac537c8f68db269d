"""What changed since it was last recorded, and what must be evaluated again because of it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from persona_pipeline.evaluation.changes.versions import MESSAGES, PERSONA, SOURCES, MessageVersion, SourceVersions
from persona_pipeline.world.propositions.dimensions import ALL_DIMENSIONS

# Versions by agent, by source: 'persona', 'messages', 'baseline', or a dimension, whose claims it is about.
Versions = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class Debounce:
    """When new messages are worth an evaluation: at least ``messages`` of them, or ``quiet`` since the newest."""

    messages: int = 20
    quiet: timedelta = timedelta(minutes=15)

    def settled(self, before: MessageVersion | None, now: MessageVersion, at: datetime) -> bool:
        """Return whether to evaluate what an agent has said since ``before``."""
        if before is None or now.newest is None or abs(now.count - before.count) >= self.messages:
            return True
        silence = at - now.newest
        # A message from the future (a clock that is ahead) is not waited for.
        return silence >= self.quiet or silence < timedelta(0)


@dataclass(frozen=True)
class Work:
    """What to evaluate of one agent.

    Attributes:
        reasons: the sources that changed: 'persona', 'messages', 'baseline' or a dimension.
        dimensions: dimensions to score again; None: everything from the persona on.
    """

    agent_id: str
    reasons: tuple[str, ...]
    dimensions: tuple[str, ...] | None = None

    @property
    def whole(self) -> bool:
        """Whether all of the agent is evaluated."""
        return self.dimensions is None


@dataclass(frozen=True)
class SourceChange:
    """A source that is not as it was recorded."""

    agent_id: str
    source: str
    version: str


def find_changes(
    now: SourceVersions,
    recorded: Versions,
    *,
    known: Collection[str],
    debounce: Debounce,
    at: datetime,
    reading: bool = False,
) -> tuple[list[SourceChange], list[str]]:
    """Return what must be recorded, agent by agent, and the agents whose new messages are not settled.

    Args:
        known: the agents that are partitions; of another one everything is new, whatever was recorded before it was removed, and of
            one whose messages were never recorded.
        at: the time of this look.
        reading: message files are being read just now: half of what they say is no version, and new agents wait for all of it.
    """
    changes, waiting = [], []
    current = now.by_source()
    observed = recorded.get(MESSAGES, {})
    for agent_id in now.agent_ids:
        is_new = agent_id not in known or agent_id not in observed
        if reading and is_new:
            waiting.append(agent_id)
            continue
        for source, versions in current.items():
            version, before = versions[agent_id], recorded.get(source, {}).get(agent_id)
            if version == before and not is_new:
                continue
            heard = MessageVersion.parse(before)
            settled = is_new or (not reading and debounce.settled(heard, now.messages[agent_id], at))
            if source == MESSAGES and not settled:
                waiting.append(agent_id)
            else:
                changes.append(SourceChange(agent_id, source, version))
    return changes, waiting


def work_of(agent_id: str, sources: Collection[str], *, in_parts: bool) -> Work:
    """Return what to evaluate of an agent these sources of which changed; ``in_parts``: a part alone can be evaluated."""
    reasons = tuple(source for source in SOURCES if source in sources)
    whole = not in_parts or PERSONA in sources or MESSAGES in sources
    return Work(agent_id, reasons, None if whole else tuple(name for name in ALL_DIMENSIONS if name in sources))
