"""How alike agents write: TF-IDF of cased character n-grams, with numpy alone, since scikit-learn takes longer to import than that
takes to compute, and every evaluation does it; and how much nearer the voices of a channel have come than they were.

The numbers are those of scikit-learn's ``TfidfVectorizer`` with ``sublinear_tf`` for its analyzers ``char`` and ``char_wb``. Word
overlap hardly moves when voices merge; spelling, punctuation and rhythm do. Texts of unequal length are not comparable.

Nearness has two measures, mean over the channel's pairs, in standard deviations of blocks of the same speakers' history that have
the window's size: how alike the two sound now (cosine of character n-gram TF-IDF), and how far apart they lie along what has told
them apart so far (ridge regression of who speaks on their earlier messages; no block is judged by a model that saw
it). A change of subject moves the two in opposite directions, merging moves both the same way, so their sum sees more than
either.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from itertools import combinations, permutations
from math import copysign, log, sqrt
from operator import add
from statistics import fmean
from types import MappingProxyType
from typing import Any

import numpy as np

from persona_pipeline.scoring.text.agreement import UNKNOWN, language_of

# What each speaker said.
Voices = Mapping[str, Sequence[str]]

_SPACES = re.compile(r"\s\s+")


@dataclass(frozen=True)
class GramKind:
    """Which character n-grams are taken: of ``low`` to ``high`` characters, within words or across them, cased."""

    low: int
    high: int
    within_words: bool = False


# Across words, punctuation and rhythm count: what a reader takes for somebody's voice.
VOICE = GramKind(2, 4)
# A longer message says more of its speaker; from 200 characters on no more. Measured on real dialogue.
_LENGTH_EXPONENT, _LONGEST = 0.2, 200
# Within words, the choice of words and their endings count more.
WORDS = GramKind(3, 5, within_words=True)


def grams(text: str, kind: GramKind) -> list[str]:
    """Return the n-grams of a text; runs of white space are one space. Within words, a word has a space on either side."""
    if kind.within_words:
        return [gram for word in text.split() for gram in _of_word(word, kind.low, kind.high)]
    return _slices(_SPACES.sub(" ", text), kind.low, kind.high)


# Few words make most of what is said.
@lru_cache(maxsize=4096)
def _of_word(word: str, low: int, high: int) -> list[str]:
    padded = f" {word} "
    # A word shorter than the n-gram counts once, whole.
    return _slices(padded, low, high) if len(padded) >= low else [padded]


def _slices(text: str, low: int, high: int) -> list[str]:
    found, some = list[str](), [""] * len(text)
    for length in range(1, high + 1):
        # Each, and the letter that follows it.
        some = list(map(add, some, text[length - 1 :]))
        found += some if length >= low else ()
    return found


class _Numbers(dict[str, int]):
    """The numbers of n-grams; what is new has the next one."""

    def __missing__(self, gram: str) -> int:
        number = self[gram] = len(self)
        return number


def worth(text: str) -> float:
    """Return how much a message counts for its length."""
    return min(len(text), _LONGEST) ** _LENGTH_EXPONENT


class CountedGrams:
    """How often each n-gram stands in each of some texts: n-grams by number, in the order they are met, each text counted once.

    Args:
        known: numbers of n-grams that have one already; they are not changed.
    """

    def __init__(self, kind: GramKind, known: Mapping[str, int] = MappingProxyType({})) -> None:
        self._kind, self.numbers = kind, _Numbers(known)
        self._counted: dict[str, tuple[Any, Any]] = {}

    def of(self, text: str) -> tuple[Any, Any]:
        """Return the numbers of a text's n-grams and how often each stands in it; do not change them."""
        found = self._counted.get(text)
        if found is None:
            counts = Counter(grams(text, self._kind))
            numbers, values = map(self.numbers.__getitem__, counts), counts.values()
            found = np.fromiter(numbers, np.int64, len(counts)), np.fromiter(values, np.float64, len(counts))
            self._counted[text] = found
        return found

    def among(self, texts: Sequence[str]) -> tuple[Any, Any, Any]:
        """Return the numbers and counts of some texts, one text after the other, and how many belong to each."""
        found = [self.of(text) for text in texts] or [(np.zeros(0, dtype=np.int64), np.zeros(0))]
        numbers, counts = (np.concatenate(part) for part in zip(*found, strict=True))
        return numbers, counts, [len(own) for own, _ in found][: len(texts)]


@dataclass(frozen=True)
class Frequencies:
    """In how many of some texts each n-gram stands, by its number."""

    numbers: Mapping[str, int]
    holders: Any
    texts: int

    @classmethod
    def of(cls, counted: CountedGrams, texts: Sequence[str]) -> "Frequencies":
        """Count the texts that hold each n-gram."""
        numbers, _, _ = counted.among(texts)
        return cls(counted.numbers, np.bincount(numbers, minlength=len(counted.numbers)), len(texts))

    def weights(self, numbers: Any, but: Any = 0) -> Any:
        """Return the smoothed inverse document frequency of n-grams, ``but`` so many of the texts that hold each."""
        held, known = np.zeros(len(numbers)), numbers < len(self.holders)
        held[known] = self.holders[numbers[known]]
        return np.log((1 + self.texts) / (1 + held - but)) + 1

    @cached_property
    def columns(self) -> Any:
        """The column of every n-gram of more than one message, else -1: what stands in one says nothing of the next."""
        shared = self.holders > 1
        return np.where(shared, np.cumsum(shared) - 1, -1)

    @property
    def width(self) -> int:
        """How many n-grams have a column."""
        return int((self.holders > 1).sum())


def vectors(counted: Sequence[tuple[Any, Any]], weights: Callable[[Any], Any]) -> Any:
    """Return rows (1 + ln count) x weight of unit length; a text without n-grams is a row of zeros.

    Args:
        counted: of each text the numbers of its n-grams, and how often each stands in it; a number may come more than once.
        weights: what the n-grams with these numbers weigh.
    """
    present, places = np.unique(np.concatenate([numbers for numbers, _ in counted]), return_inverse=True)
    rows = np.zeros((len(counted), len(present)))
    np.add.at(
        rows,
        (np.repeat(np.arange(len(counted)), [len(numbers) for numbers, _ in counted]), places),
        np.concatenate([counts for _, counts in counted]),
    )
    rows = np.where(rows > 0, 1 + np.log(np.maximum(rows, 1)), 0) * weights(present)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(lengths > 0, lengths, 1)


def text_vectors(texts: Sequence[str], kind: GramKind) -> Any:
    """Return the TF-IDF rows of some texts, of unit length, their frequencies taken from the texts themselves."""
    counted = CountedGrams(kind)
    return vectors([counted.of(text) for text in texts], Frequencies.of(counted, texts).weights)


# Further steps change nothing that can be measured: the penalty is strong.
_STEPS = 6
# Of two tables, to the bit what (a * b).sum(axis=0) is, in a quarter of the time.
_products = partial(np.einsum, "ij,ij->j")


def ridge(rows: Any, targets: Any, weights: Any, penalty: float) -> Any:
    """Return a column of weights for each target, by conjugate gradients: scikit-learn's ``Ridge`` would make every evaluation wait
    a second for its import.

    Args:
        rows: an array or a sparse one (rows x columns). targets, weights: rows x targets; a row of weight 0 is not learnt from.
        penalty: added to the squared error for each squared unit of weight.
    """
    back = rows.T if isinstance(rows, np.ndarray) else rows.T.tocsr()
    residual = back @ (targets * weights)
    found, direction = np.zeros_like(residual), residual
    length = _products(residual, residual)
    for _ in range(_STEPS):
        image = back @ ((rows @ direction) * weights) + penalty * direction
        step = length / np.maximum(_products(direction, image), 1e-12)
        found, residual = found + step * direction, residual - step * image
        shrunk = _products(residual, residual)
        direction, length = residual + shrunk / np.maximum(length, 1e-12) * direction, shrunk
    return found


# The regression's penalty and the parts of its cross-validation; measured on real dialogue.
_PENALTY, _FOLDS = 60.0, 10
# Up to so many numbers, zeros included, a table is quicker than a sparse one.
_MOST_CELLS = 8_000_000

# By speaker: its messages, oldest first, as many of each.
Lines = Sequence[Sequence[str]]


@dataclass(frozen=True)
class MeasuredBlocks:
    """Blocks of messages, measured.

    Attributes:
        alike: cosine similarity (0-1) of each pair of speakers (columns, in order of ``combinations``) in each block (rows).
        likeness: by block, speaker and other, how like the other's history the speaker's messages are.
    """

    alike: Any
    likeness: Any

    @property
    def margins(self) -> Any:
        """By block, speaker and other: how much more like its own history than like the other's."""
        return np.diagonal(self.likeness, axis1=1, axis2=2)[:, :, None] - self.likeness

    @property
    def apart(self) -> Any:
        """By block and pair: the mean of both margins."""
        margins = self.margins
        speakers = range(margins.shape[1])
        return np.array([(margins[:, a, b] + margins[:, b, a]) / 2 for a, b in combinations(speakers, 2)]).T


@dataclass(frozen=True)
class KnownVoices:
    """What ``learn_voices`` learnt.

    Attributes:
        blocks: of history, each judged by a model that did not see it.
        alone: by speaker, how alike (0-1) a block is to the next one of the same speaker.
    """

    size: int
    blocks: MeasuredBlocks
    words: Frequencies
    voice: Frequencies
    models: Any
    alone: Sequence[float]

    def measure(self, lines: Lines) -> MeasuredBlocks:
        """Measure new messages of the same speakers in blocks of the same size."""
        words, voice = CountedGrams(WORDS, self.words.numbers), CountedGrams(VOICE, self.voice.numbers)
        rows = _rows(lines, (words, self.words), (voice, self.voice))
        predicted = _predicted(self.models, rows, len(lines), self.size).mean(axis=0)
        return MeasuredBlocks(_alike(lines, self.size, words, self.words), np.moveaxis(predicted, 1, 0))


def learn_voices(history: Lines, size: int) -> KnownVoices:
    """Learn the voices of some speakers from equally many messages of each, cut into blocks of ``size``.

    What tells them apart is a ridge regression of who speaks on the character n-grams of a message.
    """
    texts, counted, spoken = [text for own in history for text in own], CountedGrams(WORDS), CountedGrams(VOICE)
    words, voice = Frequencies.of(counted, texts), Frequencies.of(spoken, texts)
    blocks = len(history[0]) // size
    rows = _rows(history, (counted, words), (spoken, voice))
    # Neighbouring blocks share their subject, so what is left out at once is a stretch of them.
    folds = min(_FOLDS, blocks)
    fold_of_block = np.arange(blocks) * folds // blocks
    fold_of = np.tile(np.repeat(fold_of_block, size), len(history))
    target = np.repeat(np.eye(len(history), dtype=np.float32), blocks * size, axis=0) - 1 / len(history)
    learns = np.repeat(fold_of[:, None] != np.arange(folds), len(history), axis=1).astype(np.float32)
    models = ridge(rows, np.tile(target, folds), learns, _PENALTY)
    models = np.moveaxis(models.reshape(-1, folds, len(history)), 1, 0)
    predicted = _predicted(models, rows, len(history), size)
    held_out = np.array([predicted[fold, :, block] for block, fold in enumerate(fold_of_block)])
    measured = MeasuredBlocks(_alike(history, size, counted, words, within=True), held_out)
    return KnownVoices(size, measured, words, voice, models, _alone(history, size, counted, words))


def _alike(lines: Lines, size: int, counted: CountedGrams, words: Frequencies, *, within: bool = False) -> Any:
    """``within``: the lines are among those the frequencies were counted in.

    Then a block's own lines are left out of them: what nobody said before weighs as much in a block of history as in a window.
    """
    found = []
    for start in range(0, len(lines[0]), size):
        blocks = [counted.among(own[start : start + size])[:2] for own in lines]
        here = np.sort(np.concatenate([numbers for numbers, _ in blocks])) if within else np.zeros(0)

        def weights(numbers: Any, here: Any = here) -> Any:
            return words.weights(numbers, np.searchsorted(here, numbers, "right") - np.searchsorted(here, numbers))

        rows = vectors(blocks, weights)
        found.append((rows @ rows.T)[np.triu_indices(len(lines), 1)])
    return np.array(found)


def _alone(lines: Lines, size: int, counted: CountedGrams, words: Frequencies) -> list[float]:
    twos = len(lines[0]) // (2 * size)
    halves = [
        [text for start in range(first * size, 2 * size * twos, 2 * size) for text in own[start : start + size]]
        for own in lines
        for first in (0, 1)
    ]
    found = _alike(halves, size, counted, words, within=True).mean(axis=0)
    places = {pair: place for place, pair in enumerate(combinations(range(len(halves)), 2))}
    return [float(found[places[2 * speaker, 2 * speaker + 1]]) for speaker in range(len(lines))]


def _rows(lines: Lines, *kinds: tuple[CountedGrams, Frequencies]) -> Any:
    """Return a sparse row a message, speaker by speaker: its n-grams of each kind, each of unit length, by its worth."""
    texts = [text for own in lines for text in own]
    worths = np.array([worth(text) for text in texts])
    parts, width = [], 0
    for counted, frequencies in kinds:
        numbers, counts, sizes = counted.among(texts)
        row, known = np.repeat(np.arange(len(texts)), sizes), numbers < len(frequencies.columns)
        row, numbers, counts = row[known], numbers[known], counts[known]
        columns = frequencies.columns[numbers]
        row, numbers, counts, columns = (part[columns >= 0] for part in (row, numbers, counts, columns))
        values = (1 + np.log(counts)) * frequencies.weights(numbers)
        lengths = np.sqrt(np.bincount(row, values**2, len(texts)))
        parts.append((row, width + columns, values * (worths / np.where(lengths > 0, lengths, 1))[row]))
        width += frequencies.width
    row, columns, values = (np.concatenate(part) for part in zip(*parts, strict=True))
    shape = len(texts), width
    if shape[0] * shape[1] <= _MOST_CELLS:
        rows = np.zeros(shape, dtype=np.float32)
        rows[row, columns] = values
        return rows
    # Its import takes longer than a small world's voices.
    from scipy import sparse

    return sparse.csr_array((values.astype(np.float32), (row, columns)), shape=shape)


def _predicted(models: Any, rows: Any, speakers: int, size: int) -> Any:
    """Return by model, speaker, block and other the mean of what the models say of the speaker's messages."""
    found = rows @ np.moveaxis(models, 0, 1).reshape(rows.shape[1], -1)
    return np.moveaxis(found.reshape(speakers, -1, size, len(models), speakers).mean(axis=2), 2, 0)


# Fewer messages a block say nothing of a voice; more than the most say little more, and leave fewer blocks of a history.
FEWEST_MESSAGES, MOST_MESSAGES, FEWEST_BLOCKS = 3, 60, 3
# Two that are less alike than this share of what either is to itself have not merged, however much nearer they came. Of stretches
# of 20 messages of one speaker, one in a hundred is less like the next; chosen on half of the episodes and of the chats.
CLOSE = 0.6
# Messages of history that are looked at, of one speaker and of all together.
_MOST_HISTORY, _MOST_HISTORY_OF_ALL = 1000, 4000
# Variance of the sum of both measures that few blocks are shrunk to, and how many blocks it is worth. Measured on real dialogue:
# pairs of one channel correlate at 0.4, the two measures at -0.1.
_PAIRS_CORRELATE, _PRIOR_BLOCKS = 0.4, 4


@dataclass(frozen=True)
class PairNearness:
    """Of two speakers: cosine similarity now (0-1), and z, positive when they have come nearer.

    ``close``: they are alike enough, and of one language, for that to mean that they merge.
    """

    similarity: float
    z: float | None = None
    close: bool = False


@dataclass(frozen=True)
class Approach:
    """Of a speaker towards another.

    Attributes:
        way: how far it has come towards the other's voice: 0 as ever, 1 as like it as the other itself was.
        z: how much less its messages are like its own history and more like the other's, as a standard normal quantile.
    """

    way: float
    z: float


@dataclass(frozen=True)
class Nearness:
    """How near the voices of one channel and window have come.

    Attributes:
        similarity: mean cosine similarity of all pairs, 0-1; None below two speakers.
        z: positive when the voices have come nearer, as a standard normal quantile; None says ``missing`` why.
        n_references: blocks of history compared with.
        messages_per_agent: messages of each speaker in every block.
        parts: z of each part of the window, oldest first; ``z`` is their mean.
        pairs: by sorted pair of speakers.
        toward: by (speaker, other), how far the first has gone over to the second's voice.
    """

    similarity: float | None
    z: float | None = None
    n_references: int = 0
    messages_per_agent: int = 0
    parts: tuple[float, ...] = ()
    pairs: Mapping[tuple[str, str], PairNearness] = field(default_factory=dict)
    toward: Mapping[tuple[str, str], Approach] = field(default_factory=dict)
    missing: str | None = None


def nearness(current: Voices, history: Voices, *, size: int | None = None) -> Nearness:
    """Compare the speakers of a channel now with the same speakers before.

    A window longer than ``size`` (by default 60 messages a speaker, or a third of the history if that is less) is compared in
    parts of that size.

    Args:
        current: each speaker's messages of the window, oldest first.
        history: each speaker's earlier messages, oldest first, of this and other channels.
    """
    spoken = {name: [text for text in texts if text.strip()] for name, texts in current.items()}
    names = sorted(name for name, texts in spoken.items() if texts)
    if len(names) < 2:
        return Nearness(None, missing="fewer than two speakers")
    earlier = {name: [text for text in history.get(name, ()) if text.strip()] for name in names}
    known = [name for name in names if len(earlier[name]) >= FEWEST_BLOCKS * FEWEST_MESSAGES]
    enough = [name for name in known if len(spoken[name]) >= FEWEST_MESSAGES]
    if len(enough) < 2:
        short = ", ".join(name for name in names if name not in enough)
        least = f"{FEWEST_MESSAGES} messages now and {FEWEST_BLOCKS * FEWEST_MESSAGES} before"
        return Nearness(_similarity(spoken, names), missing=f"{short}: fewer than {least}")
    count, available = (min(len(texts[name]) for name in enough) for texts in (spoken, earlier))
    size = min(size or MOST_MESSAGES, count, available // FEWEST_BLOCKS)
    blocks = min(available, _MOST_HISTORY, _MOST_HISTORY_OF_ALL // len(enough)) // size
    # Both end with the newest message.
    learnt = learn_voices([earlier[name][-blocks * size :] for name in enough], size)
    said = {name: spoken[name][-(count // size) * size :] for name in enough}
    languages = {name: language_of(texts) for name, texts in said.items()}
    now = learnt.measure(list(said.values()))
    own = dict(zip(enough, learnt.alone, strict=True))
    alike = zip(combinations(enough, 2), now.alike.mean(axis=0), strict=True)
    near = {pair for pair, value in alike if value >= CLOSE * min(own[name] for name in pair)}
    close = {(a, b) for a, b in near if len({languages[a], languages[b]} - {UNKNOWN}) < 2}
    return _compared(enough, learnt.blocks, now, size, close)


def _compared(
    names: Sequence[str], before: MeasuredBlocks, now: MeasuredBlocks, size: int, close: Collection[tuple[str, str]]
) -> Nearness:
    pairs = list(combinations(names, 2))
    nearer = [
        a - b
        for a, b in zip(_standardized(before.alike, now.alike), _standardized(before.apart, now.apart), strict=True)
    ]
    parts = _quantiles(nearer[0].mean(axis=1), nearer[1].mean(axis=1), _prior(len(pairs)))
    toward, was_like, is_like = {}, before.likeness.mean(axis=0), now.likeness.mean(axis=0)
    for a, b in permutations(range(len(names)), 2):
        margins = _standardized(before.margins[:, a, b : b + 1], now.margins[:, a, b : b + 1])
        lost = _quantiles(-margins[0][:, 0], -margins[1][:, 0], 1.0)
        apart = float(was_like[b, b] - was_like[a, b])
        way = float(is_like[a, b] - was_like[a, b]) / apart if apart > 0 else 0.0
        toward[names[a], names[b]] = Approach(way, fmean(lost))
    return Nearness(
        similarity=float(now.alike.mean()),
        z=fmean(parts),
        n_references=len(before.alike),
        messages_per_agent=size,
        parts=tuple(parts),
        pairs={
            pair: PairNearness(
                float(now.alike[:, index].mean()),
                fmean(_quantiles(nearer[0][:, index], nearer[1][:, index], _prior(1))),
                pair in close,
            )
            for index, pair in enumerate(pairs)
        },
        toward=toward,
    )


def _standardized(before: Any, now: Any) -> tuple[Any, Any]:
    """Return values (rows are blocks, columns pairs) in standard deviations of those before, pooled over the pairs."""
    mean, spread = before.mean(axis=0), sqrt(float(before.var(axis=0, ddof=1).mean())) or 1.0
    return (before - mean) / spread, (now - mean) / spread


def _prior(pairs: int) -> float:
    return 2 * (1 - 0.1) * (1 + (pairs - 1) * _PAIRS_CORRELATE) / pairs


def _quantiles(before: Any, now: Any, prior: float) -> list[float]:
    """Return how unusual each new value is, as a standard normal quantile: t, with the variance of a new value."""
    degrees = _PRIOR_BLOCKS + len(before) - 1
    variance = (_PRIOR_BLOCKS * prior + (len(before) - 1) * float(before.var(ddof=1))) / degrees
    spread = sqrt(variance * (1 + 1 / len(before)))
    return [normal_quantile(float(value) / spread, degrees) for value in now]


def normal_quantile(t: float, degrees: float) -> float:
    """Return the standard normal quantile of a value of Student's t (Wallace, 1959; within 0.05 for five degrees and more)."""
    return copysign((8 * degrees + 1) / (8 * degrees + 3) * sqrt(degrees * log(1 + t * t / degrees)), t)


def _similarity(spoken: Voices, names: Sequence[str]) -> float:
    count = min(len(spoken[name]) for name in names)
    rows = text_vectors(["\n".join(spoken[name][-count:]) for name in names], WORDS)
    return fmean(float(rows[a] @ rows[b]) for a, b in combinations(range(len(names)), 2))
