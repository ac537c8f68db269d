"""Thumbs: one person's labels of messages, given in ``view``."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from persona_pipeline.base.files import look_of
from persona_pipeline.guard.labels.messages import (
    OF_OTHER_TEXTS,
    MarkSource,
    MessageLabel,
    load_message_labels,
    message_label,
    message_label_paths,
    write_message_labels,
)
from persona_pipeline.scoring.messages.verdicts import Role
from persona_pipeline.world.models import Message, grouped

# Verdicts by the names of thumbs in forms and addresses.
THUMBS = {"up": Role.IN, "down": Role.OUT, "unclear": Role.UNCLEAR}


class ChangedMeanwhileError(ValueError):
    """The label differs from the one that was shown: another tab or command changed it."""

    def __init__(self, now: MessageLabel | None) -> None:
        said = "no label of yours" if now is None else f"your label “{now.verdict}”"
        super().__init__(f"This message now has {said}, set by another tab or command.")


@dataclass
class Thumbs:
    """A person's thumbs, in the file of message labels."""

    folder: Path
    labeller: str
    # The label before and after each thumb since the page started; None: no label.
    done: list[tuple[MessageLabel | None, MessageLabel | None]] = field(default_factory=list)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _read: tuple[object, Mapping[str, list[MessageLabel]]] = (None, {})

    def labels(self) -> Mapping[str, list[MessageLabel]]:
        """Return the labels of sent texts by message; ConfigError: the label file is not valid."""
        looks = [look_of(path.stat()) for path in message_label_paths(self.folder)]
        with self._lock:
            if self._read[0] != looks:
                sent = [label for label in load_message_labels(self.folder) if label.source not in OF_OTHER_TEXTS]
                self._read = looks, grouped(sent, lambda label: label.message)
            return self._read[1]

    def own(self, message_id: str, agent_id: str) -> MessageLabel | None:
        """Return this person's newest label of a message, of any version of its text."""
        labels, wanted = self.labels().get(message_id, ()), (self.labeller, agent_id)
        mine = [label for label in labels if (label.labeller, label.agent_id) == wanted]
        return max(mine, key=lambda label: label.labelled_at, default=None)

    def give(self, message: Message, thumb: str, *, seen: str | None = None) -> None:
        """Write the label of a thumb (see ``THUMBS``), or remove it ("").

        Args:
            seen: the ``stamp`` of the label that was shown.

        Raises:
            ChangedMeanwhileError: the label differs from the one that was shown.
            ValueError: the message cannot be labelled.
        """
        verdict = THUMBS[thumb] if thumb else None
        with self._lock:
            before = self.own(message.id, message.agent_id)
            if verdict == (before and before.verdict):
                return
            if seen is not None and stamp(before) != seen:
                raise ChangedMeanwhileError(before)
            after = message_label(message, verdict, self.labeller, MarkSource.PERSON) if verdict else None
            self._write(after, remove=before)
            self.done.append((before, after))

    def undo(self) -> str | None:
        """Undo the last thumb since the page started, and return the id of its message; None: nothing to undo.

        Raises:
            ChangedMeanwhileError: the label was changed elsewhere; it stays, and can no longer be undone.
        """
        with self._lock:
            before, after = self.done[-1] if self.done else (None, None)
            known = after or before
            if known is None:
                return None
            now = self.own(known.message, known.agent_id)
            if stamp(now) != stamp(after):
                self.done.pop()
                raise ChangedMeanwhileError(now)
            self._write(before, remove=after)
            self.done.pop()
            return known.message

    def _write(self, label: MessageLabel | None, *, remove: MessageLabel | None) -> None:
        gone = [remove.identity] if remove else []
        write_message_labels(self.folder, [label] if label else [], remove=gone)


def stamp(label: MessageLabel | None) -> str:
    """Return a text that distinguishes a label from others of the same person and message."""
    return "" if label is None else f"{label.verdict} {label.labelled_at}"
