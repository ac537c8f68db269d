"""One labeller at work: what comes next, what was answered, and how far they have come. Page and terminal are views of it.

Judgments are labelled at random, so that what is labelled stands for all that was judged. Of a voice, one person says which
messages sound like the agent.
"""

import threading
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Generic, Literal, Protocol, TypeVar

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.files import look_of
from persona_pipeline.guard.labels.check import FEWEST, NoCheck, VoiceCheck, learn_check
from persona_pipeline.guard.labels.files import (
    Label,
    LabellerKind,
    LabelType,
    label_of,
    load_label_files,
    write_label_files,
)
from persona_pipeline.guard.labels.voice import MarkSource, VoiceLabel, voice_label
from persona_pipeline.judging.verdict import JudgeRequest, Verdict
from persona_pipeline.world.models import Message, Persona, Window, grouped, seed_from
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
    """Return the judgments in the order they are to be labelled: a dimension in turn, each in proportion to what the judge said.

    Within a dimension the order is random, stratified by the judge's score: whenever somebody stops, each band of the scale was
    labelled in proportion to its size, so that no weights are needed. Never by how far judges disagree. The same judgments and seed
    give the same order, whoever labels: what several people label overlaps, and their agreement can be told.
    """
    strata: dict[tuple[str, int | None], list[Judgment]] = defaultdict(list)
    for judgment in judgments:
        strata[judgment.dimension, _band(judgment)].append(judgment)
    by_dimension: dict[str, list[tuple[float, str, Judgment]]] = defaultdict(list)
    for (dimension, band), items in strata.items():
        drawn = sorted(items, key=lambda item: (seed_from(seed, item.key), item.key))
        start = seed_from(seed, dimension, band) / 2**64
        by_dimension[dimension] += [((place + start) / len(drawn), item.key, item) for place, item in enumerate(drawn)]
    turns = [
        (turn, ALL_DIMENSIONS.index(dimension), item)
        for dimension, places in by_dimension.items()
        for turn, (_, _, item) in enumerate(sorted(places, key=lambda place: place[:2]))
    ]
    return [item for _, _, item in sorted(turns, key=lambda turn: turn[:2])]


def _band(judgment: Judgment) -> int | None:
    score = judgment.score
    return None if score is None else next(band.last for band in BANDS if score <= band.last)


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


class Labelled(Protocol):
    """What is labelled; ``key``: names it among all that may be."""

    @property
    def key(self) -> str: ...


Item = TypeVar("Item", bound=Labelled)


@dataclass(frozen=True)
class Answered(Generic[Item, LabelType]):
    """What was done last, with what stood there before (None: nothing). ``label`` None: it was skipped."""

    item: Item
    label: LabelType | None
    before: LabelType | None


class LabellingSession(Generic[Item, LabelType]):
    """A session. What is in the files counts, whoever wrote it; every answer is in them when its call returns."""

    def __init__(self, model: type[LabelType], folder: Path, items: Iterable[Item]) -> None:
        self.folder = folder
        self._model = model
        self._by_key = {item.key: item for item in items}
        self._done: list[Answered[Item, LabelType]] = []
        self._back: list[Item] = []
        self._lock = threading.RLock()
        self._read: tuple[list[str], list[LabelType]] = [], []

    def skip(self, key: str) -> Answered[Item, LabelType]:
        """Put what has this key at the end of the queue, for this session. Raises ``KeyError``: nothing has it."""
        with self._lock:
            return self._did(Answered(self._by_key[key], None, None))

    def undo(self) -> Answered[Item, LabelType] | None:
        """Take back what was done last in this session and return it; it comes next. None: there is nothing to take back."""
        with self._lock:
            if not self._done:
                return None
            last = self._done[-1]
            if last.label is not None:
                before = [last.before] if last.before else []
                write_label_files(self._model, self.folder, before, remove=[last.label.identity])
            self._done.pop()
            self._back.append(last.item)
            return last

    @property
    def last(self) -> Answered[Item, LabelType] | None:
        """What was done last in this session."""
        return self._done[-1] if self._done else None

    def _all_labels(self) -> list[LabelType]:
        """Return the labels of everybody; files that look as they did are not read again."""
        paths = self._model.paths(self.folder)
        looks = [f"{path} {look_of(path.stat())}" for path in paths]
        if looks != self._read[0]:
            self._read = looks, load_label_files(self._model, paths)
        return self._read[1]

    def _taken_back(self, done: Container[str]) -> Item | None:
        """Return what was taken back last and is not labelled again, by whom ever; None: nothing."""
        return next((item for item in reversed(self._back) if item.key not in done), None)

    def _skipped(self) -> dict[str, int]:
        return {done.item.key: place for place, done in enumerate(self._done) if done.label is None}

    def _keep(self, item: Item, label: LabelType) -> Answered[Item, LabelType]:
        before = next((known for known in self._all_labels() if known.identity == label.identity), None)
        write_label_files(self._model, self.folder, [label])
        return self._did(Answered(item, label, before))

    def _did(self, answered: Answered[Item, LabelType]) -> Answered[Item, LabelType]:
        self._done.append(answered)
        self._back = [item for item in self._back if item.key != answered.item.key]
        return answered


class Labelling(LabellingSession[Judgment, Label]):
    """A session on judgments.

    Attributes:
        judgments: all that may be labelled.

    Raises:
        ConfigError: the label files are not valid, or have labels of the other kind under this name.
    """

    def __init__(self, folder: Path, judgments: Sequence[Judgment], labeller: Labeller, seed: int = 0) -> None:
        super().__init__(Label, folder, labelling_order(judgments, seed=seed))
        self.judgments, self.labeller = judgments, labeller
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
            if back := self._taken_back(done):
                return back
            reached = {item.dimension for item in self._progress(done) if item.done >= TARGET}
            skipped = self._skipped()
            left = [item for key, item in self._by_key.items() if key not in done]
            return min(left, key=lambda item: (skipped.get(item.key, -1), item.dimension in reached), default=None)

    def progress(self) -> list[LabellingProgress]:
        """Return how far the labeller has come, a dimension each."""
        return self._progress(self.labelled())

    def answer(self, key: str, score: int | None, note: str = "") -> Answered[Judgment, Label]:
        """Write a label. ``score``: 0-9; None: not applicable.

        Raises ``KeyError``: there is no such judgment; ``ValueError``: score or note cannot be so; ``ConfigError``: the label
        files are not valid.
        """
        with self._lock:
            judgment, who = self._by_key[key], self.labeller
            label = label_of(judgment.request, score, labeller=who.name, kind=who.kind, note=note.strip())
            return self._keep(judgment, label)

    def _progress(self, done: Container[str]) -> list[LabellingProgress]:
        judged = grouped(self.judgments, lambda item: item.dimension)
        return [
            LabellingProgress(name, sum(item.key in done for item in judged[name]), len(judged[name]))
            for name in ALL_DIMENSIONS
            if name in judged
        ]


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
