"""One person at work on an agent's voice: which message comes next, and what was said of it. Page and terminal are views of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from persona_pipeline.guard.labels.check import FEWEST, NoCheck, VoiceCheck, learn_check
from persona_pipeline.guard.labels.session import Answered, LabellingSession
from persona_pipeline.guard.labels.voice import MarkSource, VoiceLabel, voice_label
from persona_pipeline.world.models import Message, Persona, seed_from

# So many messages before the one that is asked about are shown, and after so many answers the check is learnt anew.
SHOWN_BEFORE, _LEARN_EVERY = 4, 8
# Of an agent that has said more, so many messages are drawn to choose from.
MOST_TO_CHOOSE, _LOOKED_AT = 1000, 100


@dataclass(frozen=True)
class Asked:
    """A message that is asked about, what was said before it, and why it was chosen."""

    message: Message
    before: Sequence[Message]
    chosen: Literal["random", "uncertain"]

    @property
    def key(self) -> str:
        return self.message.id


class VoiceLabelling(LabellingSession[Asked, VoiceLabel]):
    """A session on an agent's voice.

    Every second message is drawn by lot, and every other is the one the check is least sure of, once there is a check: those
    teach it most, and those by lot tell how often it is wrong.

    Args:
        said: by conversation, what was said in it, oldest first.
    """

    def __init__(
        self, folder: Path, persona: Persona, said: Sequence[Sequence[Message]], labeller: str, seed: int = 0
    ) -> None:
        own = {
            message.id: Asked(message, talk[max(0, place - SHOWN_BEFORE) : place], "random")
            for talk in said
            for place, message in enumerate(talk)
            if message.agent_id == persona.agent_id and message.text.strip()
        }
        drawn = sorted(own, key=lambda name: (seed_from(seed, name), name))[:MOST_TO_CHOOSE]
        super().__init__(VoiceLabel, folder, [own[name] for name in drawn])
        self.persona, self.labeller = persona, labeller

    def labels(self) -> list[VoiceLabel]:
        """Return the labels of this agent's voice; ConfigError: the label file is not valid."""
        return [label for label in self._all_labels() if label.agent_id == self.persona.agent_id]

    def current(self) -> Asked | None:
        """Return what is asked about now: what was taken back, else by turns one by lot and one in doubt. None: all is labelled."""
        with self._lock:
            labels = self.labels()
            own = {label.message for label in labels if label.labeller == self.labeller}
            if back := self._taken_back(own):
                return back
            skipped = self._skipped()
            left = [item for name, item in self._by_key.items() if name not in own]
            left = [item for item in left if item.key not in skipped] or left
            if not left or len(own) % 2 == 0:
                return left[0] if left else None
            check = self._check(labels)
            if isinstance(check, NoCheck):
                return left[0]
            doubted = min(left[:_LOOKED_AT], key=lambda item: abs(check.score(item.message.text) - 0.5))
            return Asked(doubted.message, doubted.before, "uncertain")

    def answer(self, key: str, on: bool, note: str = "") -> Answered[Asked, VoiceLabel]:
        """Write a label. ``key``: the message's id.

        Raises ``KeyError``: there is no such message; ``ValueError``: the note cannot be so; ``ConfigError``: the label file is
        not valid.
        """
        with self._lock:
            current = self.current()
            asked = current if current and current.key == key else self._by_key[key]
            label = voice_label(
                asked.message, on, self.labeller, MarkSource.PERSON, chosen=asked.chosen, note=note.strip()
            )
            return self._keep(asked, label)

    def progress(self) -> dict[str, Any]:
        """Return how many texts anybody labelled on and off, and what the check that was learnt last says."""
        labels = self.labels()
        on = sum(label.on for label in labels)
        check = self._check(labels)
        # What is still missing is counted by every label, and takes no training.
        said = learn_check(tuple(labels)) if isinstance(check, NoCheck) else check
        return {"on": on, "off": len(labels) - on, "needed": FEWEST, "check": str(said)}

    def _check(self, labels: Sequence[VoiceLabel]) -> VoiceCheck | NoCheck:
        known = sorted(labels, key=lambda label: (label.labelled_at, label.key))
        return learn_check(tuple(known[: len(known) - len(known) % _LEARN_EVERY]))
