"""Thumbs up and down: labels of an agent's voice, given where its messages are read, and taken back."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from persona_pipeline.base.files import look_of
from persona_pipeline.guard.labels.files import write_label_files
from persona_pipeline.guard.labels.voice import MarkSource, VoiceLabel, load_voice_labels, voice_label
from persona_pipeline.world.models import Message, grouped

# Of whom swipes and regenerations are labels: of texts that were not sent.
_OF_OTHER_TEXTS = (MarkSource.SWIPE, MarkSource.REGENERATION)


class ChangedMeanwhileError(ValueError):
    """The label is another one than was shown: it was given or taken back elsewhere in between."""

    def __init__(self, now: VoiceLabel | None) -> None:
        said = "no label" if now is None else "a thumb up" if now.on else "a thumb down"
        super().__init__(f"Meanwhile this message has {said} of yours, given in another tab or by another command.")


@dataclass
class Thumbs:
    """One person's thumbs, in the files that ``label --voice`` writes: what is in the files counts, whoever wrote it."""

    folder: Path
    labeller: str
    # What stood there before and after each thumb; None: nothing.
    _done: list[tuple[VoiceLabel | None, VoiceLabel | None]] = field(default_factory=list)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _read: tuple[object, Mapping[str, list[VoiceLabel]]] = (None, {})

    def labels(self) -> Mapping[str, list[VoiceLabel]]:
        """Return the labels of texts that were sent, by message; ConfigError: the label file is not valid."""
        looks = [look_of(path.stat()) for path in VoiceLabel.paths(self.folder)]
        with self._lock:
            if self._read[0] != looks:
                sent = [label for label in load_voice_labels(self.folder) if label.source not in _OF_OTHER_TEXTS]
                self._read = looks, grouped(sent, lambda label: label.message)
            return self._read[1]

    def own(self, message_id: str, agent_id: str) -> VoiceLabel | None:
        """Return the newest label that this person gave a message of an agent, whatever the message said then."""
        labels, wanted = self.labels().get(message_id, ()), (self.labeller, agent_id)
        mine = [label for label in labels if (label.labeller, label.agent_id) == wanted]
        return max(mine, key=lambda label: label.labelled_at, default=None)

    def give(self, message: Message, thumb: str, *, seen: str | None = None) -> None:
        """Write a label (``up``, ``down``), or take it away (""). ``seen``: the ``stamp`` of the one that was shown, if it matters.

        Raises ChangedMeanwhileError where another stands there; ValueError: the message cannot be labelled, or a ConfigError.
        """
        with self._lock:
            before = self.own(message.id, message.agent_id)
            if (before is None) if not thumb else (before is not None and before.on == (thumb == "up")):
                return
            if seen is not None and stamp(before) != seen:
                raise ChangedMeanwhileError(before)
            after = voice_label(message, thumb == "up", self.labeller, MarkSource.PERSON) if thumb else None
            self._write(after, remove=before)
            self._done.append((before, after))

    def undo(self) -> str | None:
        """Take back what was done last since the page was started, and return the message's id; None: there is nothing.

        Raises ChangedMeanwhileError where the label was changed elsewhere since; it is left, and no longer undone.
        """
        with self._lock:
            before, after = self._done[-1] if self._done else (None, None)
            known = after or before
            if known is None:
                return None
            now = self.own(known.message, known.agent_id)
            if stamp(now) != stamp(after):
                self._done.pop()
                raise ChangedMeanwhileError(now)
            self._write(before, remove=after)
            self._done.pop()
            return known.message

    @property
    def can_undo(self) -> bool:
        """Whether anything was done since the page was started."""
        return bool(self._done)

    def _write(self, label: VoiceLabel | None, *, remove: VoiceLabel | None) -> None:
        write_label_files(VoiceLabel, self.folder, [label] if label else [], remove=[remove.identity] if remove else [])


def stamp(label: VoiceLabel | None) -> str:
    """Return by what a label is told from another of the same person and message."""
    return "" if label is None else f"{'up' if label.on else 'down'} {label.labelled_at}"
