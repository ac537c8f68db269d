"""One person at work on an agent's voice: which message comes next, and what was said of it. Page and terminal are views of it."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from persona_pipeline.guard.labels.check import FEWEST, NoCheck, VoiceCheck, learn_check
from persona_pipeline.guard.labels.files import write_label_files
from persona_pipeline.guard.labels.voice import MarkSource, VoiceLabel, load_voice_labels, voice_label
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


@dataclass(frozen=True)
class Done:
    """What was done last, with what stood there before (None: nothing). ``label`` None: it was skipped."""

    asked: Asked
    label: VoiceLabel | None
    before: VoiceLabel | None


@dataclass
class VoiceLabelling:
    """A session. What is in the file counts, whoever wrote it; every answer is in it when its call returns.

    Every second message is drawn by lot, and every other is the one the check is least sure of, once there is a check: those
    teach it most, and those by lot tell how often it is wrong.

    Attributes:
        said: by conversation, what was said in it, oldest first.
    """

    folder: Path
    persona: Persona
    said: Sequence[Sequence[Message]]
    labeller: str
    seed: int = 0
    _by_id: dict[str, Asked] = field(default_factory=dict)
    _done: list[Done] = field(default_factory=list)
    _back: list[Asked] = field(default_factory=list)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        for talk in self.said:
            for place, message in enumerate(talk):
                if message.agent_id == self.persona.agent_id and message.text.strip():
                    before = talk[max(0, place - SHOWN_BEFORE) : place]
                    self._by_id[message.id] = Asked(message, before, "random")
        drawn = sorted(self._by_id, key=lambda name: (seed_from(self.seed, name), name))[:MOST_TO_CHOOSE]
        self._by_id = {name: self._by_id[name] for name in drawn}

    def labels(self) -> list[VoiceLabel]:
        """Return the labels of this agent's voice.

        Raises:
            ConfigError: the label file is not valid.
        """
        return [label for label in load_voice_labels(self.folder) if label.agent_id == self.persona.agent_id]

    def current(self) -> Asked | None:
        """Return what is asked about now: what was taken back, else by turns one by lot and one in doubt. None: all is labelled."""
        with self._lock:
            labels = self.labels()
            own = {label.message for label in labels if label.labeller == self.labeller}
            if self._back:
                return self._back[-1]
            skipped = {done.asked.message.id for done in self._done if done.label is None}
            left = [item for name, item in self._by_id.items() if name not in own]
            left = [item for item in left if item.message.id not in skipped] or left
            check = self._check(labels)
            if not left or check is None or len(own) % 2 == 0:
                return left[0] if left else None
            doubted = min(left[:_LOOKED_AT], key=lambda item: abs(check.score(item.message.text) - 0.5))
            return Asked(doubted.message, doubted.before, "uncertain")

    def answer(self, key: str, on: bool, note: str = "") -> Done:
        """Write a label. ``key``: the message's id.

        Raises:
            KeyError: there is no such message.
            ValueError: the note cannot be so.
            ConfigError: the label file is not valid.
        """
        with self._lock:
            current = self.current()
            asked = current if current and current.message.id == key else self._by_id[key]
            label = voice_label(
                asked.message, on, self.labeller, MarkSource.PERSON, chosen=asked.chosen, note=note.strip()
            )
            before = next((item for item in self.labels() if item.identity == label.identity), None)
            write_label_files(VoiceLabel, self.folder, [label])
            return self._did(Done(asked, label, before))

    def skip(self, key: str) -> Done:
        """Put a message at the end, for this session.

        Raises:
            KeyError: there is no such message.
        """
        with self._lock:
            return self._did(Done(self._by_id[key], None, None))

    def undo(self) -> Done | None:
        """Take back what was done last in this session and return it; it comes next. None: there is nothing to take back."""
        with self._lock:
            if not self._done:
                return None
            last = self._done[-1]
            if last.label is not None:
                before = [last.before] if last.before else []
                write_label_files(VoiceLabel, self.folder, before, remove=[last.label.identity])
            self._done.pop()
            self._back.append(last.asked)
            return last

    @property
    def last(self) -> Done | None:
        """What was done last in this session."""
        return self._done[-1] if self._done else None

    def progress(self) -> dict[str, Any]:
        """Return how many texts anybody labelled on and off, and how many the check takes."""
        labels = self.labels()
        on = sum(label.on for label in labels)
        return {"on": on, "off": len(labels) - on, "needed": FEWEST, "check": str(learn_check(tuple(labels)))}

    def _did(self, done: Done) -> Done:
        self._done.append(done)
        self._back = [item for item in self._back if item.message.id != done.asked.message.id]
        return done

    def _check(self, labels: Sequence[VoiceLabel]) -> VoiceCheck | None:
        known = sorted(labels, key=lambda label: (label.labelled_at, label.key))
        check = learn_check(tuple(known[: len(known) - len(known) % _LEARN_EVERY]))
        return None if isinstance(check, NoCheck) else check
