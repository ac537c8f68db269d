"""How alike agents write: TF-IDF of cased character n-grams, with numpy alone, since scikit-learn takes longer to import than that
takes to compute, and every evaluation does it.

The numbers are those of scikit-learn's ``TfidfVectorizer`` with ``sublinear_tf`` for its analyzers ``char`` and ``char_wb``. Word
overlap hardly moves when voices merge; spelling, punctuation and rhythm do. Texts of unequal length are not comparable.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from math import log
from typing import Any

import numpy as np

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


def worth(text: str) -> float:
    """Return how much a message counts for its length."""
    return min(len(text), _LONGEST) ** _LENGTH_EXPONENT


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


@dataclass(frozen=True)
class Frequencies:
    """In how many of some texts each n-gram stands."""

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


def vectors(counted: Sequence[Counter[str]], weight: Callable[[str], float]) -> Any:
    """Return rows (1 + ln count) x weight of unit length; a text without n-grams is a row of zeros."""
    numbers = {gram: number for number, gram in enumerate(dict.fromkeys(chain.from_iterable(counted)))}
    rows = np.zeros((len(counted), len(numbers)))
    for row, found in zip(rows, counted, strict=True):
        row[[numbers[gram] for gram in found]] = 1 + np.log(list(found.values()))
    rows *= [weight(gram) for gram in numbers]
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(lengths > 0, lengths, 1)


def text_vectors(texts: Sequence[str], kind: GramKind) -> Any:
    """Return the TF-IDF rows of some texts, of unit length, their frequencies taken from the texts themselves."""
    counted = [Counter(grams(text, kind)) for text in texts]
    return vectors(counted, Frequencies(Counter(chain.from_iterable(counted)), len(texts)).weight)
