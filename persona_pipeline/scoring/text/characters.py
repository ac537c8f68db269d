"""Character n-grams of texts as TF-IDF vectors, with numpy alone: scikit-learn takes longer to import than these take to compute.

The same numbers as scikit-learn's ``TfidfVectorizer`` with ``sublinear_tf`` gives for its analyzers ``char`` and ``char_wb``.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_SPACES = re.compile(r"\s\s+")
# Counts of one text: the numbers of its n-grams, and how often each stands in it.
Counts = tuple[Any, Any]


@dataclass(frozen=True)
class GramKind:
    """Which character n-grams are taken: of ``low`` to ``high`` characters, within words or across them, cased."""

    low: int
    high: int
    within_words: bool = False


# Across words, punctuation and rhythm count: what a reader takes for somebody's voice.
VOICE = GramKind(2, 4)
# Within words, the choice of words and their endings count more.
WORDS = GramKind(3, 5, within_words=True)


def grams(text: str, kind: GramKind) -> Iterable[str]:
    """Yield the n-grams of a text; runs of white space are one space. Within words, a word has a space on either side."""
    if not kind.within_words:
        joined = _SPACES.sub(" ", text)
        for length in range(kind.low, kind.high + 1):
            for start in range(len(joined) - length + 1):
                yield joined[start : start + length]
        return
    for word in text.split():
        padded = f" {word} "
        for length in range(kind.low, kind.high + 1):
            for start in range(max(len(padded) - length, 0) + 1):
                yield padded[start : start + length]
            if length >= len(padded):
                # A word shorter than the n-gram counts once, whole.
                break


class CountedGrams:
    """How often each n-gram stands in each text, counted once: texts are looked at several times, and forgotten together."""

    def __init__(self) -> None:
        self._counted: dict[tuple[str, GramKind], Counter[str]] = {}

    def of(self, text: str, kind: GramKind) -> Counter[str]:
        """Return how often each n-gram stands in a text; do not change it."""
        found = self._counted.get((text, kind))
        if found is None:
            found = self._counted[text, kind] = Counter(grams(text, kind))
        return found


class GramCounts:
    """Numbers n-grams as they come up, so that texts become arrays."""

    def __init__(self, kind: GramKind) -> None:
        self.kind = kind
        self._numbers: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def count(self, text: str) -> Counts:
        """Return the n-grams of a text."""
        found = Counter(grams(text, self.kind))
        numbers = [self._numbers.setdefault(gram, len(self._numbers)) for gram in found]
        return np.array(numbers, dtype=np.int64), np.fromiter(found.values(), dtype=float, count=len(found))


def inverse_frequencies(texts: Sequence[Counts], width: int) -> Any:
    """Return the smoothed inverse document frequency of each n-gram: ln((1 + texts) / (1 + texts with it)) + 1."""
    holders = (
        np.bincount(np.concatenate([numbers for numbers, _ in texts]), minlength=width) if texts else np.zeros(width)
    )
    return np.log((1 + len(texts)) / (1 + holders)) + 1


def vectors(texts: Sequence[Counts], weights: Any) -> Any:
    """Return rows (1 + ln count) x weight of unit length; a text without n-grams is a row of zeros."""
    rows = np.zeros((len(texts), len(weights)), dtype=np.float32)
    for row, (numbers, counts) in zip(rows, texts, strict=True):
        np.add.at(row, numbers, (1 + np.log(counts)) * weights[numbers])
    return unit(rows)


def unit(rows: Any) -> Any:
    """Return rows scaled to length 1; rows of zeros stay."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(lengths > 0, lengths, 1)


def text_vectors(texts: Sequence[str], kind: GramKind) -> Any:
    """Return the TF-IDF rows of some texts, of unit length, their frequencies taken from the texts themselves."""
    counter = GramCounts(kind)
    counts = [counter.count(text) for text in texts]
    return vectors(counts, inverse_frequencies(counts, len(counter)))
