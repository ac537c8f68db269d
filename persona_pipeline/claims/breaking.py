"""An agent's case broken by a fault, and another agent's case under its name."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from persona_pipeline.claims.faults import FAULTS, Material, NotApplicableError, stands_for, words_of
from persona_pipeline.scoring import AgentCase
from persona_pipeline.world.models import Message

# Fewer broken messages leave the agent itself: nothing that a claim should see.
FEWEST_CHANGED = 1 / 3
_MOST_LINES = 400


@dataclass(frozen=True)
class BrokenCase:
    """A fault as it was planted.

    Attributes:
        what: what the fault stands for.
        changed: share (0-1) of the agent's messages that differ.
        case: None where it could not be planted; ``why_not`` says why then.
    """

    name: str
    what: str
    changed: float = 0.0
    case: AgentCase | None = None
    why_not: str = ""


def material_of(case: AgentCase) -> Material:
    """Return what an agent's messages can be broken with: the others' lines are taken from before the window where they can."""
    texts = [message.text for message in case.messages]
    now: dict[str, list[str]] = {}
    for messages in case.channels.values():
        for message in messages:
            now.setdefault(message.agent_id, []).append(message.text)
    before = case.earlier_texts()
    lines = {
        agent: said if len(said := before.get(agent, [])) >= len(texts) else [*said, *now.get(agent, [])]
        for agent in {*now, *before}
    }
    others = {agent: said[-_MOST_LINES:] for agent, said in sorted(lines.items()) if agent != case.agent_id}
    return Material(words_of(texts), others, [case.name_of(agent) for agent in sorted({*others, case.agent_id})])


def break_case(case: AgentCase, name: str, seed: int = 0) -> BrokenCase:
    """Return a case with a fault in the agent's own messages of the window: ids, times, places and all others' stay as they are."""
    texts = [message.text for message in case.messages]
    generator = random.Random(case.seed("fault", name, str(seed)))
    what = stands_for(name)
    try:
        broken = FAULTS[name](texts, material_of(case), generator)
    except NotApplicableError as error:
        return BrokenCase(name, what, why_not=str(error))
    changed = sum(old != new for old, new in zip(texts, broken, strict=True)) / len(texts)
    if changed < FEWEST_CHANGED:
        return BrokenCase(name, what, changed, why_not=f"it changes only {changed:.0%} of the messages")
    return BrokenCase(
        name, what, changed, with_texts(case, dict(zip((m.id for m in case.messages), broken, strict=True)))
    )


def with_texts(case: AgentCase, texts: Mapping[str, str]) -> AgentCase:
    """Return the case with other texts of some messages, by id."""

    def told(messages: Sequence[Message]) -> list[Message]:
        return [replace(m, text=texts[m.id]) if m.id in texts else m for m in messages]

    return replace(
        case,
        messages=told(case.messages),
        channels={channel: told(messages) for channel, messages in case.channels.items()},
    )


def under_name_of(case: AgentCase, agent_id: str) -> AgentCase:
    """Return a case as if ``agent_id`` had said what the case's agent said, and the other way round.

    What a claim says of one agent is so held against another's words, without a name that gives it away.
    """
    swap = {case.agent_id: agent_id, agent_id: case.agent_id}

    def told(messages: Sequence[Message]) -> list[Message]:
        return [
            replace(
                m,
                agent_id=swap.get(m.agent_id, m.agent_id),
                recipient=m.recipient and swap.get(m.recipient, m.recipient),
            )
            for m in messages
        ]

    return replace(
        case,
        agent_id=agent_id,
        messages=told(case.messages),
        earlier=told(case.earlier),
        channels={channel: told(messages) for channel, messages in case.channels.items()},
        earlier_channels={channel: told(messages) for channel, messages in case.earlier_channels.items()},
        history={swap.get(name, name): texts for name, texts in case.history.items()},
    )
