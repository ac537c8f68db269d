"""One labeller at work on judgments: what comes next, what was answered, and how far they have come.

Judgments are labelled at random, so that what is labelled stands for all that was judged.
"""

import threading
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from statistics import fmean

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.files import look_of
from persona_pipeline.guard.labels.files import (
    Label,
    LabellerKind,
    label_of,
    load_label_files,
    write_label_files,
)
from persona_pipeline.judging.verdict import JudgeRequest, Verdict
from persona_pipeline.world.models import Window, grouped, seed_from
from persona_pipeline.world.propositions.models import ALL_DIMENSIONS


@dataclass(frozen=True)
class Band:
    """Scores that mean about the same: ``first`` to ``last``, both included."""

    first: int
    last: int
    words: str


BANDS = (
    Band(0, 0, "false beyond doubt"),
    Band(1, 3, "mostly false"),
    Band(4, 5, "mixed"),
    Band(6, 8, "mostly true"),
    Band(9, 9, "true beyond doubt"),
)

JudgeVersion = tuple[str | None, str | None]


@dataclass(frozen=True)
class Judgment:
    """One judged claim: what was shown and asked, and what judges said.

    ``request``: with claim, transcript and the persona that was shown (None: none was); of the first sample. ``window``: the
    newest window it is part of. ``verdicts``: every answer to it and its repeats, of any judge; never empty.
    """

    request: JudgeRequest
    window: Window
    verdicts: Sequence[Verdict]

    @property
    def key(self) -> str:
        """By which labels and verdicts find each other."""
        return self.request.key

    @property
    def dimension(self) -> str:
        return self.request.dimension

    @property
    def judged(self) -> tuple[str, str, str, str, Sequence[Verdict]]:
        """Key, agent, dimension and claim's id, with every verdict on it."""
        asked = self.request
        return self.key, asked.agent_id, asked.dimension, asked.proposition_id, self.verdicts

    @property
    def by_judge(self) -> Mapping[JudgeVersion, Sequence[Verdict]]:
        """The verdicts by (model, prompt version), in the order they were given."""
        return grouped(self.verdicts, lambda verdict: (verdict.model, verdict.prompt_version))

    @property
    def score(self) -> float | None:
        """Mean raw score, 0-9, as the claim is written; None: no judge gave one."""
        scores = [verdict.score for verdict in self.verdicts if verdict.score is not None]
        return fmean(scores) if scores else None


def labelling_order(judgments: Iterable[Judgment], *, seed: int = 0) -> list[Judgment]:
    """Return the judgments in the order they are to be labelled: the dimensions in turn, at random within each.

    The same judgments and seed give the same order, whoever labels: what several people label overlaps, and their agreement can
    be measured.
    """
    drawn = sorted(judgments, key=lambda item: (seed_from(seed, item.key), item.key))
    by_dimension = grouped(drawn, lambda item: item.dimension)
    turns = zip_longest(*(by_dimension[name] for name in ALL_DIMENSIONS if name in by_dimension))
    return [item for turn in turns for item in turn if item is not None]


# Below so many labels of a dimension nothing is estimated from them.
TARGET = 50


@dataclass(frozen=True)
class Labeller:
    """Who labels."""

    name: str
    kind: LabellerKind = LabellerKind.PERSON


@dataclass(frozen=True)
class LabellingProgress:
    """How many judgments of a dimension the labeller has done of how many that there are."""

    dimension: str
    done: int
    judged: int


@dataclass(frozen=True)
class Answered:
    """What was done last, with the label that was there before (None: none). ``label`` None: it was skipped."""

    item: Judgment
    label: Label | None
    before: Label | None


class Labelling:
    """A session on judgments. The files are what counts, whoever wrote them; every answer is in them when its call returns.

    Attributes:
        judgments: all that may be labelled.

    Raises:
        ConfigError: the label files are not valid, or have labels of the other kind under this name.
    """

    def __init__(self, folder: Path, judgments: Sequence[Judgment], labeller: Labeller, seed: int = 0) -> None:
        self.folder, self.judgments, self.labeller = folder, judgments, labeller
        self._by_key = {item.key: item for item in labelling_order(judgments, seed=seed)}
        self._done: list[Answered] = []
        self._back: list[Judgment] = []
        self._lock = threading.RLock()
        self._read: tuple[list[str], list[Label]] = [], []
        if any(label.labeller_kind != labeller.kind for label in self.labelled().values()):
            other = next(kind for kind in LabellerKind if kind != labeller.kind)
            raise ConfigError(f"{labeller.name} has labels as a {other} here; name a model by a name of its own")

    def labelled(self) -> dict[str, Label]:
        """Return the labels of this labeller, by key; ConfigError: the label files are not valid."""
        return {label.key: label for label in self._all_labels() if label.labeller == self.labeller.name}

    def current(self) -> Judgment | None:
        """Return what is to be labelled now: what was taken back, else the next in order, what was skipped last. None: all is done.

        Dimensions that have reached their target wait for the others.
        """
        with self._lock:
            done = self.labelled()
            # What was taken back last and is not labelled again, by whom ever.
            if back := next((item for item in reversed(self._back) if item.key not in done), None):
                return back
            reached = {item.dimension for item in self._progress(done) if item.done >= TARGET}
            skipped = {item.item.key: place for place, item in enumerate(self._done) if item.label is None}
            left = [item for key, item in self._by_key.items() if key not in done]
            return min(left, key=lambda item: (skipped.get(item.key, -1), item.dimension in reached), default=None)

    def progress(self) -> list[LabellingProgress]:
        """Return how far the labeller has come, a dimension each."""
        return self._progress(self.labelled())

    def answer(self, key: str, score: int | None, note: str = "") -> Answered:
        """Write a label. ``score``: 0-9; None: not applicable.

        Raises ``KeyError``: there is no such judgment; ``ValueError``: score or note cannot be so; ``ConfigError``: the label
        files are not valid.
        """
        with self._lock:
            judgment, who = self._by_key[key], self.labeller
            label = label_of(judgment.request, score, labeller=who.name, kind=who.kind, note=note.strip())
            before = next((known for known in self._all_labels() if known.identity == label.identity), None)
            write_label_files(Label, self.folder, [label])
            return self._did(Answered(judgment, label, before))

    def skip(self, key: str) -> Answered:
        """Put the judgment with this key at the end of the queue, for this session. Raises ``KeyError``: there is none."""
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
                write_label_files(Label, self.folder, before, remove=[last.label.identity])
            self._done.pop()
            self._back.append(last.item)
            return last

    @property
    def last(self) -> Answered | None:
        """What was done last in this session."""
        return self._done[-1] if self._done else None

    def _did(self, answered: Answered) -> Answered:
        self._done.append(answered)
        self._back = [item for item in self._back if item.key != answered.item.key]
        return answered

    def _all_labels(self) -> list[Label]:
        """Return the labels of all labellers; files that look as they did are not read again."""
        paths = Label.paths(self.folder)
        looks = [f"{path} {look_of(path.stat())}" for path in paths]
        if looks != self._read[0]:
            self._read = looks, load_label_files(Label, paths)
        return self._read[1]

    def _progress(self, done: Container[str]) -> list[LabellingProgress]:
        judged = grouped(self.judgments, lambda item: item.dimension)
        return [
            LabellingProgress(name, sum(item.key in done for item in judged[name]), len(judged[name]))
            for name in ALL_DIMENSIONS
            if name in judged
        ]
