"""Repetition between messages of an agent: shared n-grams, openers, phrases, near copies and catchphrases, with the score of the
share.

The parts of each message are cached, so that a check of a sliding window only costs its new messages.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import astuple, dataclass
from functools import lru_cache
from itertools import combinations
from statistics import fmean
from typing import TypeVar

import numpy as np

from persona_pipeline.scoring.results import HIGHEST, PropositionResult, algorithmic_row
from persona_pipeline.scoring.text.tokens import (
    OPENER_LENGTH,
    SharedPhrase,
    corpus_repetition,
    extract_ngrams,
    maximal_repeated,
    shared_openers,
    tokenize,
)
from persona_pipeline.world.propositions.models import Catchphrase

NGRAM_LENGTH = 3
# An opener, or a phrase of this length in tokens, in more than this number of messages is repetition at any share.
PHRASE_LENGTH, MOST_HOLDERS = 4, 2
# A near copy has at least this number of words, and this share of the longer message's words is in the other in the same order. A
# message that has the lower share in common with two others or more shares a template with them. Both also need shared trigrams,
# because common words alone give two long messages half of their words in the same order.
COPY_WORDS, COPY_SHARE, TEMPLATE_SHARE, COPY_GRAMS = 6, 0.7, 0.5, 0.1
KEPT = 16_384
# Most tokens of a message in a comparison of order, whose time grows with the product of both lengths.
_MOST_TOKENS = 2_000

Words = tuple[str, ...]
Gram = TypeVar("Gram", bound=Hashable)


def shares_of_ngrams(grams: Sequence[Collection[Gram]]) -> list[float]:
    """Return for each message with n-grams, given as its distinct ones, the share (0-1) that is also in another."""
    holders = Counter(gram for each in grams for gram in each)
    return [sum(holders[gram] > 1 for gram in each) / len(each) for each in grams if each]


@dataclass(frozen=True)
class NearCopy:
    """Two messages that are nearly the same, by their places (from 0), and their similarity.

    ``share`` (0-1) is the longest common subsequence of their tokens over the tokens of the longer one.
    """

    first: int
    second: int
    share: float


# Messages in a window, most and fewest earlier messages of an agent that define its usual level, and the share of their stretches
# that may exceed a limit.
WINDOW, MOST_USUAL, FEWEST_USUAL, USUAL_SHARE = 5, 400, 100, 0.01


@dataclass(frozen=True)
class Level:
    """Level of repetition in a stretch of messages, or the usual level of an agent; by default the one that is the same for all.

    Attributes:
        share: see ``Repetition``.
        opener, phrase: number of messages of a stretch that begin with, or contain, the same words.
        copy: share (0-1) of the longer message in common with its near copy or template; pairs: number of such pairs.
    """

    share: float = 0.0
    opener: float = MOST_HOLDERS
    phrase: float = MOST_HOLDERS
    copy: float = 0.0
    pairs: float = 0.0

    def reasons(self, usual: "Level") -> tuple[str, ...]:
        """Return in which respects this is more than usual, apart from the share: ``opener``, ``phrase``, ``copy``."""
        found = {
            "opener": self.opener > usual.opener,
            "phrase": self.phrase > usual.phrase,
            "copy": self.pairs > usual.pairs or self.copy > usual.copy,
        }
        return tuple(name for name, holds in found.items() if holds)

    def exceeds(self, threshold: float, usual: "Level") -> bool:
        """Return whether this is too much: a share above the threshold and the usual share, or any of ``reasons``."""
        return self.share > max(threshold, usual.share) or bool(self.reasons(usual))


@dataclass(frozen=True)
class Repetition:
    """Repetition between messages.

    Attributes:
        level: its extent; ``share``: mean share (0-1) of a message's trigrams that are also in another of the messages.
        phrases: maximal repeated phrases of three or more tokens.
        openers: first three tokens that two or more messages have in common.
        copies: pairs of messages that are nearly the same, or that share a template with a third.
        exempt: ignored catchphrases, because their rate is within its range.
    """

    level: Level
    phrases: tuple[SharedPhrase, ...] = ()
    openers: tuple[SharedPhrase, ...] = ()
    copies: tuple[NearCopy, ...] = ()
    exempt: tuple[str, ...] = ()

    @property
    def share(self) -> float:
        return self.level.share


def find_repetition(messages: Sequence[str], catchphrases: Sequence[Catchphrase] = ()) -> Repetition:
    """Measure the repetition between messages.

    A catchphrase whose rate (uses a message) is within its range is removed from every message first.
    """
    names, read = _read_all(messages, catchphrases)
    level = _level(read)
    if level == _NONE:
        return Repetition(level, exempt=names)
    # A unique mark between the parts, so that phrases do not span a removed catchphrase.
    joined = [_joined(item.parts, number) for number, item in enumerate(read)]
    return Repetition(
        level,
        phrases=tuple(maximal_repeated(joined, NGRAM_LENGTH)),
        openers=tuple(shared_openers([item.parts[0] for item in read if item.parts], OPENER_LENGTH)),
        copies=tuple(_copies(read)),
        exempt=names,
    )


def usual_repetition(history: Sequence[str], catchphrases: Sequence[Catchphrase] = ()) -> Level:
    """Return the usual level in five messages of an agent; with fewer than 100 earlier messages the one that is the same for all.

    At most one stretch in a hundred exceeds the usual level.

    Args:
        history: its own earlier messages, oldest first; the last 400 count.
    """
    latest = history[-MOST_USUAL:]
    if len(latest) < FEWEST_USUAL:
        return Level()
    stretches = [latest[start : start + WINDOW] for start in range(len(latest) - WINDOW + 1)]
    found = [astuple(_level(_read_all(texts, catchphrases)[1])) for texts in stretches]
    place = -1 - int(USUAL_SHARE * len(found))
    share, opener, phrase, copy, pairs = (sorted(values)[place] for values in zip(*found, strict=True))
    return Level(share, max(MOST_HOLDERS, opener), max(MOST_HOLDERS, phrase), copy, pairs)


@lru_cache(maxsize=KEPT)
def _level(read: tuple["_Read", ...]) -> Level:
    # Openers, phrases and near copies all share a trigram.
    if len(set().union(*[item.grams for item in read])) == sum(len(item.grams) for item in read):
        return _NONE
    openers = Counter(item.parts[0][:OPENER_LENGTH] for item in read if item.parts)
    copies = _copies(read)
    phrases = Counter(gram for item in read for gram in item.phrases)
    return Level(
        share=fmean(shares_of_ngrams([item.grams for item in read])),
        opener=max((count for opener, count in openers.items() if len(opener) == OPENER_LENGTH), default=0),
        phrase=max(phrases.values(), default=0),
        copy=max((copy.share for copy in copies), default=0.0),
        pairs=len(copies),
    )


_NONE = Level(0.0, 0.0, 0.0, 0.0, 0.0)


def excessive_repetition(
    messages: Sequence[str], threshold: float, catchphrases: Sequence[Catchphrase] = (), history: Sequence[str] = ()
) -> Repetition | None:
    """Return ``find_repetition`` of messages if the repetition is too much (``Level.exceeds``), else None.

    Faster than ``find_repetition``: phrases and history are read only if the repetition is too much.

    Args:
        history: see ``usual_repetition``.
    """
    level = _level(_read_all(messages, catchphrases)[1])
    if not level.exceeds(threshold, Level()) or not level.exceeds(threshold, usual_repetition(history, catchphrases)):
        return None
    return find_repetition(messages, catchphrases)


def _read_all(
    messages: Sequence[str], catchphrases: Sequence[Catchphrase]
) -> tuple[tuple[str, ...], tuple["_Read", ...]]:
    exempt = exempt_phrases(messages, catchphrases)
    phrases = tuple(exempt.values())
    return tuple(exempt), tuple(_read(message, phrases) for message in messages)


def exempt_phrases(messages: Sequence[str], catchphrases: Sequence[Catchphrase]) -> dict[str, Words]:
    """Return the catchphrases with a rate within its range, which do not count as repetition, with their words."""
    rates = [(item, phrase_rate(messages, item.phrase)) for item in catchphrases] if messages else []
    held = [item.phrase for item, rate in rates if rate > 0 and item.min_rate <= rate <= item.max_rate]
    return {phrase: tuple(tokenize(phrase)) for phrase in held}


@dataclass(frozen=True, slots=True)
class _Read:
    """A message: its tokens between exempt phrases, and its distinct trigrams."""

    parts: tuple[Words, ...]
    grams: frozenset[Words]

    @property
    def tokens(self) -> list[str]:
        return [token for part in self.parts for token in part]

    @property
    def phrases(self) -> set[Words]:
        return {
            part[start : start + PHRASE_LENGTH] for part in self.parts for start in range(len(part) - PHRASE_LENGTH + 1)
        }


@lru_cache(maxsize=KEPT)
def _read(message: str, exempt: tuple[Words, ...]) -> _Read:
    parts = without(tuple(tokenize(message)), exempt)
    grams = [frozenset(zip(part, part[1:], part[2:], strict=False)) for part in parts]
    return _Read(parts, grams[0] if len(grams) == 1 else frozenset().union(*grams))


@lru_cache(maxsize=KEPT)
def phrase_uses(text: str, phrase: str) -> int:
    """Return the number of uses of a phrase in a text, word by word, ignoring case and punctuation."""
    # Two spaces between words, so that uses in a row do not share one.
    words, wanted = ("  ".join(tokenize(item)) for item in (text, phrase))
    return f" {words} ".count(f" {wanted} ") if wanted else 0


def phrase_rate(texts: Sequence[str], phrase: str) -> float:
    """Return the rate of a phrase in texts, in uses a message."""
    return sum(phrase_uses(text, phrase) for text in texts) / len(texts)


def _copies(read: Sequence[_Read]) -> list[NearCopy]:
    pairs = list(_resembling(read))
    partners = Counter(place for pair in pairs for place in (pair.first, pair.second))
    return [
        pair
        for pair in pairs
        if pair.share >= COPY_SHARE or max(partners[pair.first], partners[pair.second]) >= MOST_HOLDERS
    ]


def _resembling(read: Sequence[_Read]) -> Iterator[NearCopy]:
    for (first, a), (second, b) in combinations(enumerate(read), 2):
        least = max(1, COPY_GRAMS * min(len(a.grams), len(b.grams)))
        if len(a.grams & b.grams) >= least and (share := _common(a.tokens, b.tokens)) is not None:
            yield NearCopy(first, second, share)


def _common(a: Sequence[str], b: Sequence[str]) -> float | None:
    """Return the share of the longer message's tokens that the other has in the same order; None when below ``TEMPLATE_SHARE``.

    Only the first ``_MOST_TOKENS`` tokens count. Bit-parallel (Hyyrö, 2004): a zero in ``row`` is a token in common.
    """
    a, b = a[:_MOST_TOKENS], b[:_MOST_TOKENS]
    longer, shorter = max(len(a), len(b)), min(len(a), len(b))
    if shorter < COPY_WORDS or (Counter(a) & Counter(b)).total() < TEMPLATE_SHARE * longer:
        return None
    places: dict[str, int] = {}
    for place, token in enumerate(a):
        places[token] = places.get(token, 0) | 1 << place
    row = whole = (1 << len(a)) - 1
    for token in b:
        met = row & places.get(token, 0)
        row = (row + met | row - met) & whole
    share = (len(a) - row.bit_count()) / longer
    return share if share >= TEMPLATE_SHARE else None


def without(tokens: Words, phrases: Sequence[Words]) -> tuple[Words, ...]:
    """Return the parts of a message between the phrases; if more than one begins at a place, the longest is removed."""
    parts: list[Words] = []
    start = position = 0
    ordered = sorted((phrase for phrase in phrases if phrase), key=len, reverse=True)
    while ordered and position < len(tokens):
        held = next((phrase for phrase in ordered if tokens[position : position + len(phrase)] == phrase), None)
        if held is None:
            position += 1
            continue
        parts.append(tokens[start:position])
        position += len(held)
        start = position
    parts.append(tokens[start:])
    return tuple(part for part in parts if part)


def _joined(parts: Sequence[Words], number: int) -> list[str]:
    tokens: list[str] = []
    for index, part in enumerate(parts):
        tokens += [f" {number}.{index}"] * bool(tokens) + list(part)
    return tokens


def ngram_score(share: float) -> float:
    """Return the 0-9 score of a share of repeated n-grams: piecewise linear through ``NGRAM_SCORE_POINTS``.

    Raises:
        ValueError: the share is not within 0-1.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"share {share!r} is not within 0 and 1")
    shares, scores = zip(*NGRAM_SCORE_POINTS, strict=True)
    return float(np.interp(share, shares, scores))


# Lengths of n-grams in the score; messages of a stretch, within which repetition is counted; most messages of history that are
# measured for comparison.
NGRAM_LENGTHS, STRETCH, MOST_HISTORY = (3, 5), 20, 400
# (share of repeated n-grams, score 0-9): 0.074 is the 95th percentile of intact five-message windows of real
# dialogue.
NGRAM_SCORE_POINTS = ((0.0, 9.0), (0.074, 7.0), (0.3, 3.0), (1.0, 0.0))


def ngram_part(
    texts: Sequence[str], history: Sequence[str] = ()
) -> tuple[PropositionResult, dict[str, dict[str, float | None]]]:
    """Return the ``_ngram`` row and the repetition between messages by n-gram length.

    More messages share more n-grams by chance. So the share is a mean over stretches of ``STRETCH`` consecutive messages,
    independent of the window's length; a shorter window is one stretch. An n-gram length that no message reaches does not count
    in the score, because it has no measurement.

    Args:
        history: the agent's own earlier messages, oldest first, measured the same way and shown for comparison.
    """
    repetition = {
        str(n): {
            "cross_message_share": stretch_share(texts, n),
            "own_history": stretch_share(history[-MOST_HISTORY:], n, stretch=min(STRETCH, len(texts))),
            "corpus_repetition": corpus_repetition(texts, n),
        }
        for n in NGRAM_LENGTHS
    }
    claim = "No phrase of three or five words comes back in another message"
    if len(texts) < 2:
        return algorithmic_row("_ngram", claim, None, "one message has nothing to repeat"), repetition
    measured = {n: share for n, values in repetition.items() if (share := values["cross_message_share"]) is not None}
    if not measured:
        return algorithmic_row("_ngram", claim, None, "no message is three words long"), repetition
    score = fmean(map(ngram_score, measured.values()))
    before = {n: values["own_history"] for n, values in repetition.items()}
    shown = ", ".join(
        f"{share:.1%} of {n}-grams" + ("" if (usual := before[n]) is None else f" (before: {usual:.1%})")
        for n, share in measured.items()
    )
    return algorithmic_row("_ngram", claim, score, f"{shown} also stand in another message"), repetition


def stretch_share(texts: Sequence[str], n: int, stretch: int = STRETCH) -> float | None:
    """Return the mean share (0-1) of a message's n-grams that are in another of its stretch; None without n-grams.

    Stretches of ``stretch`` consecutive messages cover the texts evenly; the last ones may overlap.
    """
    if len(texts) < 2 or stretch < 2:
        return None
    count = -(-len(texts) // stretch)
    size = min(stretch, len(texts))
    starts = [round(index * (len(texts) - size) / max(count - 1, 1)) for index in range(count)]
    grams = [extract_ngrams(text, n) for text in texts]
    shares = [share for start in starts for share in shares_of_ngrams(grams[start : start + size])]
    return fmean(shares) if shares else None


def catchphrase_part(
    texts: Sequence[str], catchphrases: Sequence[Catchphrase]
) -> tuple[PropositionResult | None, dict[str, dict[str, float | bool]]]:
    """Return the ``_catchphrase`` row (None without catchphrases) and each phrase's rate in uses per message."""
    if not catchphrases:
        return None, {}
    rates: dict[str, dict[str, float | bool]] = {}
    for item in catchphrases:
        rate = phrase_rate(texts, item.phrase)
        in_range = item.min_rate <= rate <= item.max_rate
        rates[item.phrase] = {"rate": rate, "min_rate": item.min_rate, "max_rate": item.max_rate, "in_range": in_range}
    kept = sum(bool(values["in_range"]) for values in rates.values())
    score = HIGHEST * kept / len(rates)
    reasoning = f"{kept} of {len(rates)} catchphrases are used as often as they should be"
    row = algorithmic_row("_catchphrase", "Catchphrases are used neither too rarely nor too often", score, reasoning)
    return row, rates
