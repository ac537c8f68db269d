"""A message as hashed n-grams of characters and words: the same columns in every process, so that a stored model reads anywhere."""

import itertools
import zlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import regex

from persona_pipeline.scoring.text.characters import VOICE, grams

# Half of them for characters, half for words.
COLUMNS = 1 << 16
_HALF = COLUMNS >> 1
# A longer message says more of its speaker; from 200 characters on no more. Measured on real dialogue.
_LENGTH_EXPONENT, _LONGEST = 0.2, 200
_WORD = regex.compile(r"\w+|[^\w\s]+")


def hashed(text: str) -> list[tuple[Any, Any]]:
    """Return, of cased character 2-4-grams and of words and pairs of words, columns and 1 + ln of how often each stands there."""
    words = [word.lower() for word in _WORD.findall(text)]
    pairs = [f"{first} {second}" for first, second in itertools.pairwise(words)]
    return [_columns(Counter(grams(text, VOICE)), 0), _columns(Counter([*words, *pairs]), _HALF)]


def _columns(found: Counter[str], first: int) -> tuple[Any, Any]:
    marks = (zlib.crc32(gram.encode("utf-8", "surrogatepass")) for gram in found)
    columns = np.fromiter(marks, dtype=np.int64, count=len(found)) % _HALF + first
    return columns, 1 + np.log(np.fromiter(found.values(), dtype=float, count=len(found)))


def weighted(found: Sequence[tuple[Any, Any]], inverse_frequencies: Any) -> tuple[Any, Any]:
    """Return columns and values of the vector of a ``hashed`` message: characters and words each of length 1 before columns are
    added up."""
    parts = []
    for columns, values in found:
        values = values * inverse_frequencies[columns]
        length = float(np.linalg.norm(values))
        parts.append((columns, values / length if length else values))
    return np.concatenate([columns for columns, _ in parts]), np.concatenate([values for _, values in parts])


def worth(text: str) -> float:
    """Return how much a message counts for its length."""
    return min(len(text), _LONGEST) ** _LENGTH_EXPONENT
