"""Thumbs up and down: labels of an agent's voice, given where its messages are read, and taken back."""

import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from persona_pipeline.guard.labels.files import write_label_files
from persona_pipeline.guard.labels.voice import MarkSource, VoiceLabel, load_voice_labels, voice_label
from persona_pipeline.world.models import Message

# Of whom swipes and regenerations are labels: of texts that were not sent.
_OF_OTHER_TEXTS = (MarkSource.SWIPE, MarkSource.REGENERATION)


class ChangedMeanwhileError(ValueError):
    """The label is another one than was shown: it was given or taken back elsewhere in between."""

    def __init__(self, now: VoiceLabel | None) -> None:
        said = "no label" if now is None else "a thumb up" if now.on else "a thumb down"
        super().__init__(f"Meanwhile this message has {said} of yours, given in another tab or by another command.")


@dataclass(frozen=True)
class Given:
    """What was done last, with what stood there before and after it (None: nothing)."""

    message: str
    before: VoiceLabel | None
    after: VoiceLabel | None


@dataclass
class Thumbs:
    """One person's thumbs, in the files that ``label --voice`` writes: what is in the files counts, whoever wrote it."""

    folder: Path
    labeller: str
    _done: list[Given] = field(default_factory=list)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _read: tuple[object, Mapping[str, list[VoiceLabel]]] = (None, {})

    def labels(self) -> Mapping[str, list[VoiceLabel]]:
        """Return the labels of texts that were sent, by message.

        Raises:
            ConfigError: the label file is not valid.
        """
        stamps = [(path.stat().st_mtime_ns, path.stat().st_size) for path in VoiceLabel.paths(self.folder)]
        with self._lock:
            if self._read[0] != stamps:
                found: dict[str, list[VoiceLabel]] = defaultdict(list)
                for label in load_voice_labels(self.folder):
                    if label.source not in _OF_OTHER_TEXTS:
                        found[label.message].append(label)
                self._read = stamps, dict(found)
            return self._read[1]

    def own(self, message_id: str, agent_id: str) -> VoiceLabel | None:
        """Return the newest label that this person gave a message of an agent, whatever the message said then."""
        mine = [
            label
            for label in self.labels().get(message_id, ())
            if label.labeller == self.labeller and label.agent_id == agent_id
        ]
        return max(mine, key=lambda label: label.labelled_at, default=None)

    def give(self, message: Message, thumb: str, *, seen: str | None = None) -> Given:
        """Write a label, or take it away.

        Args:
            thumb: ``up``, ``down``, or "": no label.
            seen: the ``stamp`` of the label that was shown; None: whatever it was.

        Raises:
            ChangedMeanwhileError: another label stands there than was shown.
            ValueError: the message cannot be labelled.
            ConfigError: the label file is not valid.
        """
        with self._lock:
            before = self.own(message.id, message.agent_id)
            is_so = (before is None) if not thumb else (before is not None and before.on == (thumb == "up"))
            if is_so:
                return Given(message.id, before, before)
            if seen is not None and stamp(before) != seen:
                raise ChangedMeanwhileError(before)
            after = None
            if thumb:
                after = voice_label(message, thumb == "up", self.labeller, MarkSource.PERSON)
            self._write([after] if after else [], remove=before)
            given = Given(message.id, before, after)
            self._done.append(given)
            return given

    def undo(self) -> Given | None:
        """Take back what was done last since the page was started; None: there is nothing to take back.

        Raises:
            ChangedMeanwhileError: the label was changed elsewhere since; it is left, and no longer undone.
        """
        with self._lock:
            if not self._done:
                return None
            last = self._done[-1]
            known = last.after or last.before
            now = self.own(last.message, known.agent_id) if known else None
            if stamp(now) != stamp(last.after):
                self._done.pop()
                raise ChangedMeanwhileError(now)
            self._write([last.before] if last.before else [], remove=last.after)
            return self._done.pop()

    @property
    def last(self) -> Given | None:
        """What was done last since the page was started."""
        return self._done[-1] if self._done else None

    def _write(self, labels: Iterable[VoiceLabel], *, remove: VoiceLabel | None) -> None:
        write_label_files(VoiceLabel, self.folder, labels, remove=[remove.identity] if remove else [])


def stamp(label: VoiceLabel | None) -> str:
    """Return by what a label is told from another of the same person and message."""
    return "" if label is None else f"{'up' if label.on else 'down'} {label.labelled_at}"
