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
from statistics import fmean
from typing import Any

from persona_pipeline.scoring.text.characters import WORDS, text_vectors
from persona_pipeline.scoring.text.known_voices import Measured, learn_voices

Voices = Mapping[str, Sequence[str]]

# Fewer messages a block say nothing of a voice; more than the most say little more, and leave fewer blocks of a history.
FEWEST_MESSAGES, MOST_MESSAGES, FEWEST_BLOCKS = 3, 60, 3
# Messages of history that are looked at, of one speaker and of all together.
_MOST_HISTORY, _MOST_HISTORY_OF_ALL = 1000, 4000
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
        parts: z of each part of the window, oldest first; ``z`` is their mean.
        pairs: by sorted pair of speakers.
        toward: by (speaker, other), how far the first has gone over to the second's voice.
    """

    similarity: float | None
    reference_mean: float | None = None
    reference_sd: float | None = None
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
    learnt = learn_voices(tuple(tuple(earlier[name][-blocks * size :]) for name in enough), size)
    return _compared(
        enough, learnt.blocks, learnt.measure([spoken[name][-(count // size) * size :] for name in enough]), size
    )


def _compared(names: Sequence[str], before: Measured, now: Measured, size: int) -> Nearness:
    pairs = list(combinations(names, 2))
    nearer = [
        a - b
        for a, b in zip(_standardized(before.alike, now.alike), _standardized(before.apart, now.apart), strict=True)
    ]
    parts = _quantiles(nearer[0].mean(axis=1), nearer[1].mean(axis=1), _prior(len(pairs)))
    channel = before.alike.mean(axis=1)
    toward = {}
    for a, b in permutations(range(len(names)), 2):
        margins = _standardized(before.margins[:, a, b : b + 1], now.margins[:, a, b : b + 1])
        lost = _quantiles(-margins[0][:, 0], -margins[1][:, 0], 1.0)
        way = _way(before.likeness.mean(axis=0), now.likeness.mean(axis=0), a, b)
        toward[names[a], names[b]] = Approach(way, fmean(lost))
    return Nearness(
        similarity=float(now.alike.mean()),
        reference_mean=float(channel.mean()),
        reference_sd=float(channel.std(ddof=1)),
        z=fmean(parts),
        n_references=len(channel),
        messages_per_agent=size,
        parts=tuple(parts),
        pairs={
            pair: PairNearness(
                float(now.alike[:, index].mean()),
                float(before.alike[:, index].mean()),
                fmean(_quantiles(nearer[0][:, index], nearer[1][:, index], _prior(1))),
            )
            for index, pair in enumerate(pairs)
        },
        toward=toward,
    )


def _way(before: Any, now: Any, a: int, b: int) -> float:
    apart = float(before[b, b] - before[a, b])
    return float(now[a, b] - before[a, b]) / apart if apart > 0 else 0.0


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
