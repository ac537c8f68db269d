"""Features of the writing style of messages, computed for many messages at once with numpy."""

import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from persona_pipeline.scoring.text.tokens import (
    UNKNOWN,
    is_unspaced,
    language_of,
    read_sections,
    tokenize,
)

_MARKS, _COMMAS, _ENDS = '!?;:…—"*()！？；：', ",，、،", ".!?…。！？؟"
# Character n-grams use this number of first characters: more add time but no information about a voice.
MOST_CHARACTERS = 300
# Characters of an n-gram; fewer in scripts without spaces, where five characters are two or three words.
_GRAM, _UNSPACED_GRAM = 5, 3
# A message is compared with this number of the agent's messages before it.
NEAREST_OF = 30
_BLOCK = 100
_USUAL_WORDS, _WORD_CANDIDATES = 60, 600


@dataclass(frozen=True)
class Feature:
    """A feature of a message, with the words for an increase and a decrease."""

    more: str
    less: str


SHAPE = (
    Feature("longer", "shorter"),
    Feature("more words", "fewer words"),
    Feature("more sentences", "fewer sentences"),
    Feature("longer words", "shorter words"),
    Feature("more digits and marks", "fewer digits and marks"),
    Feature("more capitals", "fewer capitals"),
    Feature("more marks such as ! and ?", "fewer marks such as ! and ?"),
    Feature("more commas", "fewer commas"),
)
FEATURES = (
    *SHAPE,
    Feature("more of its usual words", "fewer of its usual words"),
    Feature("closer to its usual wording", "away from its usual wording"),
    Feature("farther from stock language", "closer to stock language"),
    Feature("repeats itself", "repeats itself less"),
)
USUAL_WORDS, WORDING, STOCK, REPEATS = range(len(SHAPE), len(FEATURES))


class Texts:
    """Messages as arrays of code points, with their counts. ``gram``: characters of an n-gram, see ``gram_length``."""

    def __init__(self, texts: Sequence[str], gram: int) -> None:
        # The width of a comma and the encoding of an accent depend on the keyboard, not the voice.
        self.texts = [unicodedata.normalize("NFKC", " ".join(text.split())) for text in texts]
        self._gram = gram

    def __len__(self) -> int:
        return len(self.texts)

    def shape(self) -> Any:
        """Return the features of ``SHAPE``, one row for each message."""
        codes, rows = _codes(self.texts)
        letter, capital, word, unspaced, mark, comma, end = _classes(codes)
        # A word begins at a letter or digit after another character.
        same_row = np.concatenate([[False], rows[1:] == rows[:-1]])
        before = np.concatenate([[False], word[:-1]]) & same_row
        ended = np.concatenate([[False], end[:-1]]) & same_row

        def counted(mask: Any) -> Any:
            return np.bincount(rows[mask], minlength=len(self))

        length = np.maximum(1, np.bincount(rows, minlength=len(self)))
        letters, words = counted(letter), counted(unspaced | (word & ~before))
        sentences = np.maximum(1, counted(end & ~ended))
        share = [counted(mask) / length for mask in (mark, comma)]
        columns = [np.log1p(length), np.log1p(words), np.log1p(sentences), letters / np.maximum(1, words)]
        columns += [1 - letters / length, counted(capital) / np.maximum(1, letters), *share]
        return np.stack(columns, axis=1)

    @cached_property
    def words(self) -> list[list[str]]:
        """The words of each message."""
        return [tokenize(text) for text in self.texts]

    @cached_property
    def grams(self) -> tuple[Any, Any]:
        """Hashes (32 bits) of the different n-grams, sorted, and the number of each in each message, as a sparse matrix."""
        from scipy import sparse

        codes, rows = _codes([f"  {text[:MOST_CHARACTERS]}  " for text in self.texts])
        count = max(0, len(codes) - self._gram + 1)
        hashes = np.zeros(count, np.uint64)
        for place in range(self._gram):
            hashes = (hashes + codes[place : place + count].astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        whole = rows[:count] == rows[self._gram - 1 :]
        known, columns = np.unique((hashes >> np.uint64(32)).astype(np.uint32)[whole], return_inverse=True)
        places = (rows[:count][whole], columns)
        found = sparse.csr_array((np.ones(len(columns), np.float32), places), shape=(len(self), len(known)))
        found.sum_duplicates()
        return known, found

    def overlap(self) -> Any:
        """Return the overlap (0-1) of each message with the nearest of the 30 before it: share of the shorter one's n-grams."""
        matrix = self.grams[1].sign()
        sizes, found = np.diff(matrix.indptr), np.zeros(len(self))
        for start in range(0, len(self), _BLOCK):
            first, end = max(0, start - NEAREST_OF), min(start + _BLOCK, len(self))
            shared = (matrix[start:end] @ matrix[first:end].T).toarray()
            shared /= np.maximum(1, np.minimum(sizes[start:end, None], sizes[None, first:end]))
            back = np.arange(start, end)[:, None] - np.arange(first, end)[None, :]
            found[start:end] = np.where((back > 0) & (back <= NEAREST_OF), shared, 0).max(axis=1)
        return found


def gram_length(texts: Sequence[str]) -> int:
    """Return the length of an n-gram in characters: five, or three if most letters are of a script without spaces."""
    said = " ".join(texts)
    return _UNSPACED_GRAM if 2 * sum(map(is_unspaced, tokenize(said))) > len(said) else _GRAM


def _codes(texts: Sequence[str]) -> tuple[Any, Any]:
    """Return the code points of all texts, and the text of each."""
    codes = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    return codes, np.repeat(np.arange(len(texts)), [len(text) for text in texts])


def _classes(codes: Any) -> list[Any]:
    """Return for each code point: letter, capital, part of a word, single-character word, mark, comma, sentence end."""
    found, places = np.unique(codes, return_inverse=True)
    tests: list[Callable[[str], object]] = [
        str.isalpha, str.isupper, lambda c: c.isalnum() or c == "'", is_unspaced,
        _MARKS.__contains__, _COMMAS.__contains__, _ENDS.__contains__,
    ]  # fmt: skip
    letters = [chr(code) for code in found]
    return [np.array([bool(test(letter)) for letter in letters], dtype=bool)[places] for test in tests]


@dataclass(frozen=True)
class GramCounts:
    """Number of occurrences of each n-gram in texts: sorted hashes and counts."""

    hashes: Any
    counts: Any

    @classmethod
    def of(cls, texts: Texts) -> "GramCounts":
        """Count the n-grams of texts."""
        hashes, counts = texts.grams
        return cls(hashes, counts.sum(axis=0).astype(np.int64))

    def among(self, hashes: Any) -> Any:
        """Return the counts of n-grams, 0 for unknown ones."""
        if not len(self.hashes):
            return np.zeros(len(hashes))
        places = np.minimum(np.searchsorted(self.hashes, hashes), len(self.hashes) - 1)
        return np.where(self.hashes[places] == hashes, self.counts[places], 0)

    def logs(self, texts: Texts, conversations: Any = None) -> Any:
        """Return the mean log-likelihood of the n-grams of each text, with half an n-gram added to every count.

        ``conversations``: of each text, if the texts are the counted ones; each is then scored without its conversation.
        """
        hashes, said = texts.grams[0], texts.grams[1].tocoo()
        held, total = self.among(hashes)[said.col].astype(float), np.float64(self.counts.sum())
        if conversations is not None:
            ours = conversations[said.row]
            _, places = np.unique(ours.astype(np.int64) * len(hashes) + said.col, return_inverse=True)
            held = held - np.bincount(places, said.data)[places]
            total = total - np.bincount(ours, said.data)[ours]
        logs = said.data * np.log((held + 0.5) / (total + 0.5 * (len(self.hashes) + 1)))
        return np.bincount(said.row, logs, len(texts)) / np.maximum(1, np.bincount(said.row, said.data, len(texts)))


def usual_share(texts: Texts, usual: Sequence[Collection[str]]) -> Any:
    """Return the share of each message's words that are usual words. ``usual``: usual words for each message."""
    pairs = zip(texts.words, usual, strict=True)
    return np.array([sum(word in known for word in words) / max(1, len(words)) for words, known in pairs])


def usual_words(texts: Texts, conversations: Any) -> tuple[list[str], list[frozenset[str]]]:
    """Return the 60 most frequent words, and for each message the same from all other conversations."""
    every = Counter(word for words in texts.words for word in words).most_common(_WORD_CANDIDATES)
    here: dict[int, Counter[str]] = {}
    for words, number in zip(texts.words, conversations, strict=True):
        here.setdefault(int(number), Counter()).update(words)
    usual = {}
    for number, counts in here.items():
        left = sorted(((counts[word] - count, word) for word, count in every))[:_USUAL_WORDS]
        usual[number] = frozenset(word for count, word in left if count < 0)
    return [word for word, _ in every[:_USUAL_WORDS]], [usual[int(number)] for number in conversations]


BACKGROUND = "background"
_DATA = Path(__file__).parent / "data"
# Title of each section, and the name of a voice that resembles its lines.
SECTIONS = {
    "assistant": "a stock assistant",
    "courtesy": "a support desk's courtesies",
    "corporate": "a corporate circular",
    "smalltalk": "small talk",
}
# Small talk resembles every character that talks like a person, so it is part of the language, not a change.
NO_CHANGE = "smalltalk"
StockLines = tuple[tuple[str, str], ...]


def languages() -> list[str]:
    """Return the codes of the packaged languages."""
    return sorted(path.stem for path in _DATA.glob("*.txt"))


def everyday(texts: Sequence[str], root: Path | None = None) -> tuple[str, StockLines]:
    """Return the language of texts, and its everyday lines as pairs of section and line; the lines may be empty.

    Args:
        root: a world's folder; the lines in its ``background/<language>.txt`` are added.

    Raises:
        ConfigError: a line of the world's file is in no section.
    """
    language = language_of(texts)
    own = root / BACKGROUND / f"{language}.txt" if root and language != UNKNOWN else None
    return language, (*packaged(language), *(read_sections(own, SECTIONS) if own and own.is_file() else ()))


@cache
def packaged(language: str) -> StockLines:
    """Return the package's everyday lines of a language."""
    path = _DATA / f"{language}.txt"
    return tuple(read_sections(path, SECTIONS)) if path.is_file() else ()
