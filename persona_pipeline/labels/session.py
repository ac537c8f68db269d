"""One labeller at work: what comes next, what was answered, and how far they have come. Page and terminal are views of it."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from persona_pipeline.errors import ConfigError
from persona_pipeline.labels.files import load_labels, write_labels
from persona_pipeline.labels.judgment import Judgment
from persona_pipeline.labels.label import Label, LabellerKind, label_of
from persona_pipeline.labels.queue import labelling_order
from persona_pipeline.propositions.dimensions import ALL_DIMENSIONS

# Below so many labels of a dimension nothing is estimated from them.
TARGET = 50


@dataclass(frozen=True)
class Labeller:
    """Who labels."""

    name: str
    kind: LabellerKind = LabellerKind.PERSON


@dataclass(frozen=True)
class Progress:
    """How many judgments of a dimension the labeller has done of how many that there are."""

    dimension: str
    done: int
    judged: int


@dataclass(frozen=True)
class Answered:
    """What was done last, with what stood there before (None: nothing). ``label`` None: it was skipped."""

    judgment: Judgment
    label: Label | None
    before: Label | None


@dataclass
class Labelling:
    """A session. What is in the files counts, whoever wrote it; every answer is in them when its call returns.

    Attributes:
        judgments: all that may be labelled.

    Raises:
        ConfigError: the label files are not valid, or have labels of the other kind under this name.
    """

    folder: Path
    judgments: Sequence[Judgment]
    labeller: Labeller
    seed: int = 0
    _order: Sequence[Judgment] = field(init=False)
    _by_key: Mapping[str, Judgment] = field(init=False)
    _done: list[Answered] = field(default_factory=list)
    _back: list[str] = field(default_factory=list)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self._order = labelling_order(self.judgments, seed=self.seed)
        self._by_key = {item.key: item for item in self.judgments}
        if any(label.labeller_kind != self.labeller.kind for label in self.labelled().values()):
            other = next(kind for kind in LabellerKind if kind != self.labeller.kind)
            raise ConfigError(f"{self.labeller.name} has labels as a {other} here; name a model by a name of its own")

    def labelled(self) -> dict[str, Label]:
        """Return the labels of this labeller, by key.

        Raises:
            ConfigError: the label files are not valid.
        """
        return {label.key: label for label in load_labels(self.folder) if label.labeller == self.labeller.name}

    def current(self) -> Judgment | None:
        """Return what is to be labelled now: what was taken back, else the next in order, what was skipped last. None: all is done.

        Dimensions that have reached their target wait for the others.
        """
        with self._lock:
            done = self.labelled()
            for key in reversed(self._back):
                if key not in done:
                    return self._by_key[key]
            reached = {item.dimension for item in self._progress(done) if item.done >= TARGET}
            skipped = {item.judgment.key: place for place, item in enumerate(self._done) if item.label is None}
            left = [item for item in self._order if item.key not in done]
            return min(left, key=lambda item: (skipped.get(item.key, -1), item.dimension in reached), default=None)

    def progress(self) -> list[Progress]:
        """Return how far the labeller has come, a dimension each."""
        return self._progress(self.labelled())

    def answer(self, key: str, score: int | None, note: str = "") -> Answered:
        """Write a label. ``score``: 0-9; None: not applicable.

        Raises:
            KeyError: there is no such judgment.
            ValueError: score or note cannot be so.
            ConfigError: the label files are not valid.
        """
        with self._lock:
            judgment = self._by_key[key]
            who = self.labeller
            label = label_of(judgment.request, score, labeller=who.name, kind=who.kind, note=note.strip())
            before = self.labelled().get(key)
            write_labels(self.folder, [label])
            return self._did(Answered(judgment, label, before))

    def skip(self, key: str) -> Answered:
        """Put a judgment at the end of the queue, for this session.

        Raises:
            KeyError: there is no such judgment.
        """
        with self._lock:
            return self._did(Answered(self._by_key[key], None, None))

    def undo(self) -> Answered | None:
        """Take back what was done last in this session and return it; it comes next. None: there is nothing to take back."""
        with self._lock:
            if not self._done:
                return None
            last = self._done[-1]
            if last.label is not None:
                before = [last.before] if last.before else []
                write_labels(self.folder, before, remove=[last.label.identity])
            self._done.pop()
            self._back.append(last.judgment.key)
            return last

    @property
    def last(self) -> Answered | None:
        """What was done last in this session."""
        return self._done[-1] if self._done else None

    def _did(self, answered: Answered) -> Answered:
        self._done.append(answered)
        self._back = [key for key in self._back if key != answered.judgment.key]
        return answered

    def _progress(self, done: Mapping[str, Label]) -> list[Progress]:
        keys: dict[str, list[str]] = {}
        for item in self.judgments:
            keys.setdefault(item.dimension, []).append(item.key)
        return [
            Progress(name, sum(key in done for key in keys[name]), len(keys[name]))
            for name in ALL_DIMENSIONS
            if name in keys
        ]
