"""A message as hashed character n-grams: the same columns in every process, so that a stored model can be read anywhere."""

import zlib
from collections import Counter
from math import sqrt
from typing import Any

import numpy as np

from persona_pipeline.scoring.text.characters import VOICE, grams

COLUMNS = 1 << 15
_MOST_WORDS = 40


def hashed(text: str) -> tuple[Any, Any]:
    """Return the columns of a message's cased character 2-4-grams, and 1 + ln of how often each n-gram stands in it."""
    found = Counter(grams(text, VOICE))
    columns = np.fromiter((zlib.crc32(gram.encode()) for gram in found), dtype=np.int64, count=len(found)) % COLUMNS
    counts = np.fromiter(found.values(), dtype=float, count=len(found))
    return columns, 1 + np.log(counts)


def weighted(text: str, inverse_frequencies: Any) -> tuple[Any, Any]:
    """Return columns and values of a message's vector, of length 1 before n-grams of one column are added up."""
    columns, values = hashed(text)
    values = values * inverse_frequencies[columns]
    length = float(np.linalg.norm(values))
    return columns, values / length if length else values


def evidence_of(text: str) -> float:
    """Return how much a message's log-odds count: the root of its words, up to 40. An "ok" says little of who said it."""
    return sqrt(min(len(text.split()), _MOST_WORDS))
