"""What changed since it was last recorded, and what must therefore be evaluated again. No Dagster here."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from persona_pipeline.changes.versions import MessageVersion, SourceVersions
from persona_pipeline.propositions import ALL_DIMENSIONS

PERSONA, MESSAGES, BASELINE = "persona", "messages", "baseline"


@dataclass(frozen=True)
class Recorded:
    """The versions last acted upon, by agent, in the shape of ``SourceVersions``; an agent never seen has no entry."""

    personas: Mapping[str, str] = field(default_factory=dict)
    propositions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    baselines: Mapping[str, str] = field(default_factory=dict)
    messages: Mapping[str, str] = field(default_factory=dict)


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
class Changes:
    """What a look at the sources found.

    Attributes:
        work: one entry an agent that has something to do.
        waiting: agents whose new messages are not settled.
        added, removed: agents whose partition comes or goes.
    """

    work: tuple[Work, ...] = ()
    waiting: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


def find_changes(
    now: SourceVersions,
    recorded: Recorded,
    *,
    partitions: Collection[str],
    complete: Collection[str],
    debounce: Debounce,
    at: datetime,
) -> Changes:
    """Return what must be evaluated.

    Args:
        partitions: agents Dagster knows.
        complete: agents whose last whole evaluation was finished; only of those a part can be evaluated alone.
        at: the time of this look.
    """
    work, waiting = [], []
    for agent_id in now.agent_ids:
        reasons = [PERSONA] if now.personas[agent_id] != recorded.personas.get(agent_id) else []
        reasons += [
            dimension
            for dimension in ALL_DIMENSIONS
            if now.propositions[dimension][agent_id] != recorded.propositions.get(dimension, {}).get(agent_id)
        ]
        reasons += [BASELINE] if now.baselines[agent_id] != recorded.baselines.get(agent_id) else []
        said, heard = now.messages[agent_id], recorded.messages.get(agent_id)
        new_messages = str(said) != heard
        if new_messages and debounce.settled(MessageVersion.parse(heard), said, at):
            reasons.append(MESSAGES)
        elif new_messages and not reasons:
            waiting.append(agent_id)
        if agent_id not in partitions:
            reasons = reasons or [PERSONA]
        if reasons:
            part = agent_id in complete and agent_id in partitions and not new_messages
            work.append(Work(agent_id, tuple(reasons), _dimensions(reasons) if part else None))
    return Changes(
        work=tuple(work),
        waiting=tuple(waiting),
        added=tuple(agent_id for agent_id in now.agent_ids if agent_id not in partitions),
        removed=tuple(sorted(set(partitions) - set(now.agent_ids))),
    )


def _dimensions(reasons: Collection[str]) -> tuple[str, ...] | None:
    if PERSONA in reasons or MESSAGES in reasons:
        return None
    return tuple(dimension for dimension in ALL_DIMENSIONS if dimension in reasons)
