"""The speakers of a channel as their history knows them: in blocks of the size of a window, and what tells them apart."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations
from math import log, sqrt
from typing import Any

import numpy as np

from persona_pipeline.scoring.text.characters import VOICE, WORDS, CountedGrams, unit
from persona_pipeline.scoring.text.ridge import ridge

# The regression's penalty and the parts of its cross-validation; measured on real dialogue.
_PENALTY, _FOLDS = 60.0, 10
# A message of twice the length says so much more of its speaker; from 200 characters on no more.
_LENGTH_EXPONENT, _LONGEST = 0.2, 200
# Up to so many numbers, zeros included, a table is quicker than a sparse one.
_MOST_CELLS = 8_000_000

# By speaker: its messages, oldest first, as many of each.
Lines = Sequence[Sequence[str]]


@dataclass(frozen=True)
class Measured:
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
    """What ``learn_voices`` learnt. ``blocks``: of history, each judged by a model that did not see it."""

    size: int
    blocks: Measured
    words: "_Frequencies"
    voice: "_Frequencies"
    models: Any

    def measure(self, lines: Lines) -> Measured:
        """Measure new messages of the same speakers in blocks of the same size."""
        counted = CountedGrams()
        rows = _rows(lines, counted, self.words, self.voice)
        predicted = _predicted(self.models, rows, len(lines), self.size).mean(axis=0)
        return Measured(_alike(lines, self.size, counted, self.words), np.moveaxis(predicted, 1, 0))


# Ten megabytes each, and who shares a channel asks one after the other.
@lru_cache(maxsize=2)
def learn_voices(history: tuple[tuple[str, ...], ...], size: int) -> KnownVoices:
    """Learn the voices of some speakers from equally many messages of each, cut into blocks of ``size``.

    What tells them apart is a ridge regression of who speaks on the character n-grams of a message.
    """
    texts, counted = [text for own in history for text in own], CountedGrams()
    words, voice = (
        _Frequencies(Counter(g for t in texts for g in counted.of(t, kind)), len(texts)) for kind in (WORDS, VOICE)
    )
    blocks = len(history[0]) // size
    rows = _rows(history, counted, words, voice)
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
    return KnownVoices(
        size, Measured(_alike(history, size, counted, words, within=True), held_out), words, voice, models
    )


@dataclass(frozen=True)
class _Frequencies:
    holders: Counter[str]
    texts: int

    def weight(self, gram: str, but: int = 0) -> float:
        """Return the smoothed inverse document frequency of an n-gram, ``but`` so many of the texts that hold it."""
        return log((1 + self.texts) / (1 + self.holders[gram] - but)) + 1

    @cached_property
    def columns(self) -> dict[str, tuple[int, float]]:
        """The number and weight of every n-gram of more than one message: what stands in one says nothing of the next."""
        shared = [gram for gram, count in self.holders.items() if count > 1]
        return {gram: (number, self.weight(gram)) for number, gram in enumerate(shared)}


def _alike(lines: Lines, size: int, counted: CountedGrams, words: _Frequencies, *, within: bool = False) -> Any:
    """``within``: the lines are among those the frequencies were counted in.

    Then a block's own lines are left out of them: what nobody said before weighs as much in a block of history as in a window.
    """
    found = []
    for start in range(0, len(lines[0]), size):
        here = [text for own in lines for text in own[start : start + size]] if within else []
        holders = Counter(gram for text in here for gram in counted.of(text, WORDS))
        blocks: list[Counter[str]] = []
        for own in lines:
            block: Counter[str] = Counter()
            for text in own[start : start + size]:
                block.update(counted.of(text, WORDS))
            blocks.append(block)
        numbers = {
            gram: number for number, gram in enumerate(dict.fromkeys(gram for block in blocks for gram in block))
        }
        rows = np.zeros((len(lines), len(numbers)))
        for row, block in zip(rows, blocks, strict=True):
            places = [numbers[gram] for gram in block]
            row[places] = (
                (1 + np.log(list(block.values()))) * [words.weight(gram, holders[gram]) for gram in block]
                if block
                else 0.0
            )
        rows = unit(rows)
        found.append([float(rows[a] @ rows[b]) for a, b in combinations(range(len(lines)), 2)])
    return np.array(found)


def _rows(lines: Lines, counted: CountedGrams, words: _Frequencies, voice: _Frequencies) -> Any:
    """Return a sparse row a message, speaker by speaker: its n-grams of both kinds, each of unit length, by its worth."""
    starts: list[int] = [0]
    columns: list[int] = []
    values: list[float] = []
    for text in (text for own in lines for text in own):
        worth = min(len(text), _LONGEST) ** _LENGTH_EXPONENT
        for kind, frequencies, first in ((WORDS, words, 0), (VOICE, voice, len(words.columns))):
            found = [
                (*known, count)
                for gram, count in counted.of(text, kind).items()
                if (known := frequencies.columns.get(gram)) is not None
            ]
            weighted = [(1 + log(count)) * weight for _, weight, count in found]
            length = sqrt(sum(value * value for value in weighted)) or 1.0
            columns += [first + number for number, _, _ in found]
            values += [value * worth / length for value in weighted]
        starts.append(len(columns))
    shape = len(starts) - 1, len(words.columns) + len(voice.columns)
    if shape[0] * shape[1] <= _MOST_CELLS:
        rows = np.zeros(shape, dtype=np.float32)
        rows[np.repeat(np.arange(shape[0]), np.diff(starts)), columns] = values
        return rows
    # Its import takes longer than a small world's voices.
    from scipy import sparse

    return sparse.csr_array((np.array(values, dtype=np.float32), np.array(columns), np.array(starts)), shape=shape)


def _predicted(models: Any, rows: Any, speakers: int, size: int) -> Any:
    """Return by model, speaker, block and other the mean of what the models say of the speaker's messages."""
    found = rows @ np.moveaxis(models, 0, 1).reshape(rows.shape[1], -1)
    return np.moveaxis(found.reshape(speakers, -1, size, len(models), speakers).mean(axis=2), 2, 0)
