"""How much nearer the voices of a channel have come to each other, in units of how much that varies when nobody drifts.

Two measures, mean over the channel's pairs, in standard deviations of blocks of the same speakers' history that have the
window's size: how alike the two sound now (cosine of character n-gram TF-IDF), and how far apart they lie along what has told
them apart so far (ridge regression on their earlier messages; no block is judged by a model that saw it). A
change of subject moves the two in
opposite directions, merging moves both the same way, so their sum sees more than either.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, permutations
from math import copysign, log, sqrt
from typing import Any

import numpy as np

from persona_pipeline.scoring.text.characters import (
    VOICE,
    WORDS,
    Counts,
    GramCounts,
    GramKind,
    inverse_frequencies,
    together,
    unit,
    vectors,
)

Voices = Mapping[str, Sequence[str]]

# Fewer messages a block say nothing of a voice; more than the most say little more, and leave fewer blocks of a history.
FEWEST_MESSAGES, MOST_MESSAGES, FEWEST_BLOCKS = 3, 60, 3
# Messages of history that are looked at, of one speaker and of all together.
_MOST_HISTORY, _MOST_HISTORY_OF_ALL = 1000, 4000
# Of the regression: how many columns n-grams are folded into, its penalty, steps of conjugate gradients, parts of cross-validation.
_FEWEST_COLUMNS, _MOST_COLUMNS, _PENALTY, _STEPS, _FOLDS = 256, 4096, 1.0, 15, 5
# Variance of the sum of both measures that few blocks are shrunk to, and how many blocks it is worth. Measured on real dialogue:
# pairs of one channel correlate at 0.4, the two measures at -0.1.
_PAIRS_CORRELATE, _PRIOR_BLOCKS = 0.4, 4


@dataclass(frozen=True)
class PairNearness:
    """Of two speakers: cosine similarity now and before (0-1), and z, positive when they have come nearer."""

    similarity: float
    reference_mean: float | None = None
    z: float | None = None


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
        reference_mean, reference_sd: of the same number in the blocks of history.
        z: positive when the voices have come nearer, as a standard normal quantile; None says ``missing`` why.
        n_references: blocks of history compared with.
        messages_per_agent: messages of each speaker in every block.
        pairs: by sorted pair of speakers.
        toward: by (speaker, other), how far the first has gone over to the second's voice.
    """

    similarity: float | None
    reference_mean: float | None = None
    reference_sd: float | None = None
    z: float | None = None
    n_references: int = 0
    messages_per_agent: int = 0
    pairs: Mapping[tuple[str, str], PairNearness] = field(default_factory=dict)
    toward: Mapping[tuple[str, str], Approach] = field(default_factory=dict)
    missing: str | None = None


def nearness(current: Voices, history: Voices) -> Nearness:
    """Compare the speakers of a channel now with the same speakers before.

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
    return _compare({name: spoken[name] for name in enough}, {name: earlier[name] for name in enough})


def _compare(current: Mapping[str, list[str]], history: Mapping[str, list[str]]) -> Nearness:
    names = sorted(current)
    count, available = min(map(len, current.values())), min(map(len, history.values()))
    size = min(count, MOST_MESSAGES, available // FEWEST_BLOCKS)
    blocks = min(available, _MOST_HISTORY, _MOST_HISTORY_OF_ALL // len(names)) // size
    parts = count // size
    # By speaker: blocks of history, then parts of the window; each ends with the newest message.
    texts = [(*history[name][-blocks * size :], *current[name][-parts * size :]) for name in names]
    alike = _block_similarity(_counted(texts, WORDS, blocks * size), size)
    likeness = _block_likeness(_folded(_counted(texts, VOICE, blocks * size)), size, blocks)
    margins = np.diagonal(likeness, axis1=1, axis2=2)[:, :, None] - likeness
    apart = np.array([(margins[:, a, b] + margins[:, b, a]) / 2 for a, b in combinations(range(len(names)), 2)]).T
    first, second = _standardized(alike, blocks), -_standardized(apart, blocks)
    both = first + second
    z = _score(both.mean(axis=1), blocks, _prior(both.shape[1]))
    by_pair = [_score(both[:, index], blocks, _prior(1)) for index in range(both.shape[1])]
    channel = alike.mean(axis=1)
    return Nearness(
        similarity=float(channel[blocks:].mean()),
        reference_mean=float(channel[:blocks].mean()),
        reference_sd=float(channel[:blocks].std(ddof=1)),
        z=z,
        n_references=blocks,
        messages_per_agent=size,
        pairs={
            pair: PairNearness(float(alike[blocks:, index].mean()), float(alike[:blocks, index].mean()), by_pair[index])
            for index, pair in enumerate(combinations(names, 2))
        },
        toward={
            (names[a], names[b]): Approach(
                _way(likeness[:blocks].mean(axis=0), likeness[blocks:].mean(axis=0), a, b),
                _score(-_standardized(margins[:, a, b : b + 1], blocks)[:, 0], blocks, 1.0),
            )
            for a, b in permutations(range(len(names)), 2)
        },
    )


@dataclass(frozen=True)
class _Lines:
    """The n-grams of each speaker's messages, and how much each n-gram weighs."""

    counts: Sequence[Sequence[Counts]]
    weights: Any


def _counted(texts: Sequence[Sequence[str]], kind: GramKind, known: int) -> _Lines:
    counter = GramCounts(kind)
    counts = [[counter.count(text) for text in own] for own in texts]
    return _Lines(counts, inverse_frequencies([line for own in counts for line in own[:known]], len(counter)))


def _block_similarity(lines: _Lines, size: int) -> Any:
    """Return the cosine similarity of each pair of speakers (columns) in each block (rows)."""
    pairs = list(combinations(range(len(lines.counts)), 2))
    found = []
    for start in range(0, len(lines.counts[0]), size):
        rows = vectors([together(own[start : start + size]) for own in lines.counts], lines.weights)
        found.append([float(rows[a] @ rows[b]) for a, b in pairs])
    return np.array(found)


def _block_likeness(rows: Any, size: int, blocks: int) -> Any:
    """Return by block, speaker and other how like the other's history the speaker's messages are.

    ``rows`` has a vector for each message of each speaker. Every block is judged by those of ``_FOLDS`` models that did not
    learn from it, the window by all of them.
    """
    speakers, columns = rows.shape[0], rows.shape[2]
    train = rows[:, : blocks * size].reshape(-1, columns)
    fold_of = np.tile(np.repeat(np.arange(blocks) * _FOLDS // blocks, size), speakers)
    target = np.repeat(np.eye(speakers, dtype=np.float32), blocks * size, axis=0) - 1 / speakers
    models = _ridge(train, target, fold_of)
    predicted = np.einsum("fcs,amc->fams", models, rows, optimize=True)
    fold_of_block = np.arange(blocks) * _FOLDS // blocks
    means = predicted.reshape(_FOLDS, speakers, -1, size, speakers).mean(axis=3)
    held_out = [means[fold, :, block] for block, fold in enumerate(fold_of_block)]
    window = means[:, :, blocks:].mean(axis=0)
    return np.array([*held_out, *np.moveaxis(window, 1, 0)])


def _way(before: Any, now: Any, a: int, b: int) -> float:
    apart = float(before[b, b] - before[a, b])
    return float(now[a, b] - before[a, b]) / apart if apart > 0 else 0.0


def _ridge(train: Any, target: Any, fold_of: Any) -> Any:
    """Return a ridge regression's weights for each fold, learned without it, by conjugate gradients for all at once."""
    learns = (fold_of[None, :] != np.arange(_FOLDS)[:, None]).astype(np.float32)[:, :, None]
    folds, speakers = _FOLDS, target.shape[1]

    def flat(values: Any) -> Any:
        return np.moveaxis(values, 0, 1).reshape(values.shape[1], -1)

    def apply(weights: Any) -> Any:
        seen = np.moveaxis((train @ flat(weights)).reshape(-1, folds, speakers), 1, 0) * learns
        return np.moveaxis((train.T @ flat(seen)).reshape(-1, folds, speakers), 1, 0) + _PENALTY * weights

    residual = np.moveaxis((train.T @ flat(target[None] * learns)).reshape(-1, folds, speakers), 1, 0)
    weights, direction = np.zeros_like(residual), residual
    length = (residual**2).sum(axis=1, keepdims=True)
    for _ in range(_STEPS):
        image = apply(direction)
        step = length / np.maximum((direction * image).sum(axis=1, keepdims=True), 1e-12)
        weights = weights + step * direction
        residual = residual - step * image
        shrunk = (residual**2).sum(axis=1, keepdims=True)
        direction = residual + shrunk / np.maximum(length, 1e-12) * direction
        length = shrunk
    return weights


def _folded(lines: _Lines) -> Any:
    """Return a vector of unit length a message, its n-grams folded into few columns with random signs."""
    generator = np.random.default_rng(0)
    messages = sum(map(len, lines.counts))
    # A power of two, eight times the messages: folded more tightly, n-grams begin to stand for one another.
    width = min(_MOST_COLUMNS, max(_FEWEST_COLUMNS, 1 << (8 * messages - 1).bit_length()))
    columns = generator.integers(width, size=len(lines.weights))
    signed = lines.weights * generator.choice([-1.0, 1.0], size=len(lines.weights))
    rows = [
        np.bincount(columns[numbers], (1 + np.log(counts)) * signed[numbers], minlength=width)
        for own in lines.counts
        for numbers, counts in own
    ]
    return unit(np.array(rows, dtype=np.float32)).reshape(len(lines.counts), -1, width)


def _standardized(values: Any, blocks: int) -> Any:
    """Return values (rows are blocks, columns pairs) in standard deviations of the first ``blocks``, pooled over the pairs."""
    known = values[:blocks]
    spread = sqrt(float(known.var(axis=0, ddof=1).mean()))
    return (values - known.mean(axis=0)) / (spread or 1.0)


def _prior(pairs: int) -> float:
    return 2 * (1 - 0.1) * (1 + (pairs - 1) * _PAIRS_CORRELATE) / pairs


def _score(values: Any, blocks: int, prior: float) -> float:
    """Return how unusual the values after the first ``blocks`` are, as a standard normal quantile: t, for a new value."""
    variance = (_PRIOR_BLOCKS * prior + (blocks - 1) * float(values[:blocks].var(ddof=1))) / (
        _PRIOR_BLOCKS + blocks - 1
    )
    degrees = _PRIOR_BLOCKS + blocks - 1
    quantiles = [
        normal_quantile(float(value) / sqrt(variance * (1 + 1 / blocks)), degrees) for value in values[blocks:]
    ]
    return sum(quantiles) / len(quantiles)


def normal_quantile(t: float, degrees: float) -> float:
    """Return the standard normal quantile of a value of Student's t (Wallace, 1959; within 0.05 for five degrees and more)."""
    return copysign((8 * degrees + 1) / (8 * degrees + 3) * sqrt(degrees * log(1 + t * t / degrees)), t)


def _similarity(spoken: Mapping[str, Sequence[str]], names: Sequence[str]) -> float:
    counter = GramCounts(WORDS)
    count = min(len(spoken[name]) for name in names)
    texts = [together([counter.count(text) for text in spoken[name][-count:]]) for name in names]
    rows = vectors(texts, inverse_frequencies(texts, len(counter)))
    pairs = [float(rows[a] @ rows[b]) for a, b in combinations(range(len(names)), 2)]
    return sum(pairs) / len(pairs)
