"""What a scorer is given: one agent, its window of messages and the channels around it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from persona_pipeline.propositions.models import PropositionSet
from persona_pipeline.scoring.text.agreement import AgreementLexicon
from persona_pipeline.world.models import Message, Window, seed_from
from persona_pipeline.world.trajectory import Entry, message_entry


@dataclass(frozen=True)
class AgentCase:
    """The input of every scorer.

    Attributes:
        messages: the agent's own in the window, in order of time, direct ones included.
        earlier: the agent's own in the window before, of the same length; empty for an unbounded window.
        channels: every message of each channel the agent spoke in, in the window.
        earlier_channels: the same channels in the window before.
        history: what each speaker of ``channels`` said before the window, in all channels, oldest first; without it the
            earlier channels stand in.
        names: display names by agent id.
        samples: judgments asked for per claim.
        repeats: more of them for single claims, by dimension and claim.
        lexicon: what counts as agreement; None: English.
    """

    agent_id: str
    display_name: str
    persona: str
    window: Window
    messages: Sequence[Message]
    earlier: Sequence[Message] = ()
    channels: Mapping[str, Sequence[Message]] = field(default_factory=dict)
    earlier_channels: Mapping[str, Sequence[Message]] = field(default_factory=dict)
    history: Mapping[str, Sequence[str]] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    samples: int = 1
    repeats: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    lexicon: AgreementLexicon | None = None

    def samples_of(self, propositions: PropositionSet) -> dict[str, int]:
        """Return how often each claim of a set is judged."""
        more = self.repeats.get(propositions.dimension, {})
        return {item.id: more.get(item.id, self.samples) for item in propositions.propositions}

    def name_of(self, agent_id: str) -> str:
        return self.names.get(agent_id, agent_id)

    def entry(self, message: Message) -> Entry:
        """Return the message under its speaker's real name."""
        recipient = None if message.recipient is None else self.name_of(message.recipient)
        return message_entry(message, self.name_of(message.agent_id), recipient=recipient)

    def seed(self, *parts: str) -> int:
        """Return a seed that depends on who and which messages, never on what they say."""
        return seed_from(self.agent_id, *parts, *(message.id for message in self.messages))

    def group_channels(self) -> dict[str, Sequence[Message]]:
        """Return the channels in which somebody else spoke too."""
        return {
            channel: messages
            for channel, messages in self.channels.items()
            if len({message.agent_id for message in messages}) > 1
        }

    def earlier_texts(self) -> dict[str, list[str]]:
        """Return what each speaker said before the window, oldest first."""
        if self.history:
            return {agent_id: list(texts) for agent_id, texts in self.history.items()}
        found: dict[str, list[str]] = {}
        everything = (message for messages in self.earlier_channels.values() for message in messages)
        for message in sorted(everything, key=lambda message: (message.created_at, message.id)):
            found.setdefault(message.agent_id, []).append(message.text)
        return found

    def own_count(self, messages: Sequence[Message]) -> int:
        return sum(message.agent_id == self.agent_id for message in messages)
