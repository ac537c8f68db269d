"""The speakers of a channel as their history knows them: in blocks of the size of a window, and what tells them apart."""

import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import log
from typing import Any

import numpy as np

from persona_pipeline.scoring.text.characters import VOICE, WORDS, counted_grams, unit

# How many columns n-grams are folded into, the regression's penalty, steps of conjugate gradients, parts of cross-validation.
_FEWEST_COLUMNS, _MOST_COLUMNS, _PENALTY, _STEPS, _FOLDS = 256, 4096, 1.0, 15, 5

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
        predicted = _predicted(self.models, _folded(lines, self.voice, self.models.shape[1]), self.size).mean(axis=0)
        return Measured(_alike(lines, self.size, self.words), np.moveaxis(predicted, 1, 0))


@lru_cache(maxsize=8)
def learn_voices(history: tuple[tuple[str, ...], ...], size: int) -> KnownVoices:
    """Learn the voices of some speakers from equally many messages of each, cut into blocks of ``size``.

    What tells them apart is a ridge regression of who speaks on the character n-grams of a message.
    """
    texts = [text for own in history for text in own]
    words, voice = (
        _Frequencies(Counter(g for t in texts for g in counted_grams(t, kind)), len(texts)) for kind in (WORDS, VOICE)
    )
    blocks = len(history[0]) // size
    # A power of two, eight times the messages: folded more tightly, n-grams begin to stand for one another.
    width = min(_MOST_COLUMNS, max(_FEWEST_COLUMNS, 1 << (8 * len(texts) - 1).bit_length()))
    rows = _folded(history, voice, width)
    # Neighbouring blocks share their subject, so what is left out at once is a stretch of them.
    fold_of_block = np.arange(blocks) * _FOLDS // blocks
    fold_of = np.tile(np.repeat(fold_of_block, size), len(history))
    target = np.repeat(np.eye(len(history), dtype=np.float32), blocks * size, axis=0) - 1 / len(history)
    models = _ridge(rows.reshape(-1, width), target, fold_of)
    predicted = _predicted(models, rows, size)
    held_out = np.array([predicted[fold, :, block] for block, fold in enumerate(fold_of_block)])
    return KnownVoices(size, Measured(_alike(history, size, words, counted=True), held_out), words, voice, models)


@dataclass(frozen=True)
class _Frequencies:
    holders: Counter[str]
    texts: int

    def weight(self, gram: str, but: int = 0) -> float:
        """Return the smoothed inverse document frequency of an n-gram, ``but`` so many of the texts that hold it."""
        return log((1 + self.texts) / (1 + self.holders[gram] - but)) + 1


def _alike(lines: Lines, size: int, words: _Frequencies, *, counted: bool = False) -> Any:
    """``counted``: the lines are among those the frequencies were counted in.

    Then a block's own lines are left out of them: what nobody said before weighs as much in a block of history as in a window.
    """
    found = []
    for start in range(0, len(lines[0]), size):
        here = [text for own in lines for text in own[start : start + size]] if counted else []
        holders = Counter(gram for text in here for gram in counted_grams(text, WORDS))
        blocks: list[Counter[str]] = []
        for own in lines:
            block: Counter[str] = Counter()
            for text in own[start : start + size]:
                block.update(counted_grams(text, WORDS))
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


def _folded(lines: Lines, voice: _Frequencies, width: int) -> Any:
    """Return a vector of unit length a message (speaker, message, column), its n-grams folded into columns with signs."""
    known: dict[str, tuple[int, float]] = {}
    rows = np.zeros((len(lines), len(lines[0]), width), dtype=np.float32)
    for own, texts in zip(rows, lines, strict=True):
        for row, text in zip(own, texts, strict=True):
            found = counted_grams(text, VOICE)
            for gram in found.keys() - known.keys():
                mark = zlib.crc32(gram.encode("utf-8", "surrogatepass"))
                known[gram] = (mark >> 1) % width, voice.weight(gram) * (1 if mark & 1 else -1)
            for gram, count in found.items():
                column, weight = known[gram]
                row[column] += (1 + log(count)) * weight
    return unit(rows.reshape(-1, width)).reshape(rows.shape)


def _predicted(models: Any, rows: Any, size: int) -> Any:
    """Return by model, speaker, block and other the mean of what the models say of the speaker's messages."""
    found = np.einsum("fcs,amc->fams", models, rows, optimize=True)
    return found.reshape(len(models), rows.shape[0], -1, size, models.shape[2]).mean(axis=3)


def _ridge(train: Any, target: Any, fold_of: Any) -> Any:
    """Return a ridge regression's weights for each fold, learned without it, by conjugate gradients for all at once."""
    learns = (fold_of[None, :] != np.arange(_FOLDS)[:, None]).astype(np.float32)[:, :, None]
    speakers = target.shape[1]

    def flat(values: Any) -> Any:
        return np.moveaxis(values, 0, 1).reshape(values.shape[1], -1)

    def folds(values: Any) -> Any:
        return np.moveaxis(values.reshape(-1, _FOLDS, speakers), 1, 0)

    residual = folds(train.T @ flat(target[None] * learns))
    weights, direction = np.zeros_like(residual), residual
    length = (residual**2).sum(axis=1, keepdims=True)
    for _ in range(_STEPS):
        image = folds(train.T @ flat(folds(train @ flat(direction)) * learns)) + _PENALTY * direction
        step = length / np.maximum((direction * image).sum(axis=1, keepdims=True), 1e-12)
        weights, residual = weights + step * direction, residual - step * image
        shrunk = (residual**2).sum(axis=1, keepdims=True)
        direction, length = residual + shrunk / np.maximum(length, 1e-12) * direction, shrunk
    return weights
