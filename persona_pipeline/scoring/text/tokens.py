"""Words of messages in any script: lower-case, no punctuation, scripts without spaces by character; how rich they are, and how many
of them and of their n-grams messages have in common.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean
from typing import Any

import numpy as np
import regex

_SCRIPTS_WITHOUT_SPACES = (
    *("Han", "Hiragana", "Katakana", "Bopomofo", "Yi", "Tibetan", "Thai", "Lao", "Khmer", "Myanmar"),
    *("Tai_Le", "New_Tai_Lue", "Tai_Tham", "Tai_Viet", "Javanese", "Balinese"),
)
_UNSPACED = "[{}&&[\\p{{L}}\\p{{N}}]]".format("".join(rf"\p{{scx={name}}}" for name in _SCRIPTS_WITHOUT_SPACES))
# Variation selectors and the keycap sign are marks that belong to emoji, so they go with them.
_DELETED = regex.compile(r"[^\p{L}\p{M}\p{N}_\s]+|[\uFE00-\uFE0F\u20E3]+")
_HAS_UNSPACED = regex.compile(_UNSPACED, regex.V1)
_TOKEN = regex.compile(rf"{_UNSPACED}\p{{M}}*|(?:(?!{_UNSPACED})\S)+", regex.V1)
_SPACED_TOKEN = regex.compile(r"\S+")
# The same deletions for plain ASCII, where a table is ten times as fast as a pattern.
_ASCII_DELETED = {code: None for code in range(128) if _DELETED.match(chr(code))}


def tokenize(text: str) -> list[str]:
    """Return the tokens of a text in order.

    Characters that are neither letters, marks, digits nor underscores are deleted, so ``it's`` is one token
    ``its`` and ``and/or`` is ``andor``. Letters of scripts that put no spaces between words (Chinese, Japanese,
    Thai, Lao, Khmer, Myanmar, Tibetan and others) are one token each, together with their marks. Emoji leave
    nothing. A text without words has no tokens.
    """
    if text.isascii():
        return text.lower().translate(_ASCII_DELETED).split()
    kept = _DELETED.sub("", text.lower())
    pattern = _TOKEN if _HAS_UNSPACED.search(kept) else _SPACED_TOKEN
    return pattern.findall(kept)


def is_unspaced(token: str) -> bool:
    """Return whether a token is of a script that puts no spaces between words, and so one character."""
    return _HAS_UNSPACED.match(token) is not None


# In Latin letters these are the full stop, ! and ?.
_SENTENCE_END = regex.compile(r"\p{Sentence_Terminal}+")
_MOST_STRETCHES = 20
# ASCII symbols are on a keyboard's punctuation keys and count; the underscore is a word character.
_PUNCTUATION = regex.compile(r"[[\p{P}--_]$+<=>^`|~]", regex.V1)


@dataclass(frozen=True)
class VocabularyStats:
    """Of one agent's messages.

    Attributes:
        unique_word_ratio: distinct tokens / tokens, 0-1.
        average_sentence_length: tokens / sentence, sentences end at runs of ``.``, ``!`` and ``?`` or of another script's marks
            (``。``, ``؟``).
        punctuation_density: punctuation marks / characters of the messages joined by a space, 0-1.
    """

    unique_word_ratio: float
    average_sentence_length: float
    punctuation_density: float


def vocabulary_stats(messages: Sequence[str]) -> VocabularyStats:
    """Return the vocabulary statistics of some messages; all 0 when they hold no word."""
    text = " ".join(messages)
    tokens = tokenize(text)
    if not tokens:
        return VocabularyStats(0.0, 0.0, 0.0)
    sentences = sum(1 for sentence in _SENTENCE_END.split(text) if tokenize(sentence))
    return VocabularyStats(
        unique_word_ratio=len(set(tokens)) / len(tokens),
        # A lone dot inside a word leaves no sentence empty-handed, so there is always at least one.
        average_sentence_length=len(tokens) / max(sentences, 1),
        punctuation_density=len(_PUNCTUATION.findall(text)) / len(text),
    )


def pairwise_similarity(agents: Mapping[str, Sequence[str]]) -> dict[tuple[str, str], float]:
    """Return the Jaccard similarity (0-1) of each two agents' vocabularies, keyed by sorted pair of names.

    How often a word is used does not matter. A pair without any word is 0.
    """
    words = {
        agent: {token for message in messages for token in tokenize(message)} for agent, messages in agents.items()
    }
    return {(a, b): overlap(words[a], words[b]) for a, b in combinations(sorted(agents), 2)}


def sampled_similarity(agents: Mapping[str, Sequence[str]], tokens: int = 50) -> float | None:
    """Return the mean over pairs of the Jaccard similarity (0-1) of equally long stretches of their messages.

    The longer two texts, the more words they share, so each is cut into stretches of ``tokens`` tokens (of what the shorter one
    has, if that is less), and every stretch of one is compared with every stretch of the other, up to 20 of each. None below two
    agents with words.
    """
    spoken = {name: [token for text in texts for token in tokenize(text)] for name, texts in agents.items()}
    spoken = {name: found for name, found in spoken.items() if found}
    means = []
    for first, second in combinations(sorted(spoken), 2):
        length = min(tokens, len(spoken[first]), len(spoken[second]))
        ours, theirs = (_stretches(spoken[name], length) for name in (first, second))
        means.append(fmean(len(a & b) / len(a | b) for a in ours for b in theirs))
    return fmean(means) if means else None


def _stretches(tokens: Sequence[str], length: int) -> list[set[str]]:
    count = min(len(tokens) // length, _MOST_STRETCHES)
    return [set(tokens[index * length : (index + 1) * length]) for index in range(count)]


_COLD_PAIRS = 20_000_000
_PAIRS_AT_ONCE = 2_000_000
_GROUPS_AT_ONCE = 512


def mean_overlap(corpus: Sequence[Sequence[str]], n: int) -> float:
    """Return the mean Jaccard similarity (0-1) of the n-gram sets of all pairs of messages, given as tokens.

    N-grams that few sets hold ("cold") are paired directly, by a sparse product; those that very many hold ("hot"), such as
    those of one opener, are counted by groups of sets that are alike in size and in hot n-grams. The line between them is drawn
    so that the cold ones make at most ``_COLD_PAIRS`` pairs: drawn lower, sets would fall into far more groups. At least two
    messages.
    """
    weights = Counter(tuple(tokens) for tokens in corpus if len(tokens) >= n)
    pairs = len(corpus) * (len(corpus) - 1) / 2
    same = sum(weight * (weight - 1) // 2 for weight in weights.values())
    if not weights:
        return 0.0
    rows, columns = _grams(list(weights), n)
    return (same + _sum_of_overlaps(rows, columns, np.fromiter(weights.values(), dtype=float))) / pairs


def _grams(corpus: Sequence[Sequence[str]], n: int) -> tuple[Any, Any]:
    """Return the distinct n-grams of each message as (message, number of the n-gram), ordered by message."""
    numbers: dict[str, int] = {}
    tokens = np.fromiter((numbers.setdefault(token, len(numbers)) for each in corpus for token in each), dtype=np.int64)
    lengths = np.fromiter(map(len, corpus), dtype=np.int64, count=len(corpus))
    rows = np.repeat(np.arange(len(corpus)), lengths)
    grams = tokens
    for step in range(1, n):
        # Renumbered at each step, so that two numbers always fit into one.
        grams = _renumbered(grams[:-1] * len(numbers) + tokens[step:])
    within = rows[: len(grams)] == rows[n - 1 :]
    found = np.unique(rows[: len(grams)][within] * (int(grams.max()) + 1) + grams[within])
    rows, columns = np.divmod(found, int(grams.max()) + 1)
    return rows, _renumbered(columns)


def _sum_of_overlaps(rows: Any, columns: Any, weights: Any) -> float:
    """Return the sum of weight x weight x Jaccard over all pairs of different messages."""
    sizes = np.bincount(rows, minlength=len(weights))
    holders = np.bincount(columns)
    is_hot = (holders > _most_cold_holders(holders))[columns]
    is_cold = (holders[columns] > 1) & ~is_hot
    hot_columns = _renumbered(columns[is_hot])
    bits = _bits(rows[is_hot], hot_columns, len(sizes))
    total = _cold_pairs(rows[is_cold], _renumbered(columns[is_cold]), sizes, weights, bits)
    return total + (_hot_pairs(rows[is_hot], hot_columns, sizes, weights) if len(hot_columns) else 0.0)


def _most_cold_holders(holders: Any) -> int:
    """Return how many sets may hold an n-gram for all n-grams up to there to make no more pairs than the budget."""
    ordered = np.sort(holders)
    pairs = np.cumsum(ordered * (ordered - 1) // 2)
    within = int(np.searchsorted(pairs, _COLD_PAIRS, side="right"))
    if within == len(ordered):
        return int(ordered[-1])
    return int(ordered[within]) - 1


def _renumbered(columns: Any) -> Any:
    return np.unique(columns, return_inverse=True)[1]


def _bits(rows: Any, columns: Any, count: int) -> Any:
    """Return the hot n-grams of each set as bits, a row of 64-bit words a set."""
    words = int(columns.max()) // 64 + 1 if len(columns) else 0
    bits = np.zeros((count, words), dtype=np.uint64)
    np.bitwise_or.at(bits, (rows, columns // 64), np.uint64(1) << (columns % 64).astype(np.uint64))
    return bits


def _cold_pairs(rows: Any, columns: Any, sizes: Any, weights: Any, hot_bits: Any) -> float:
    """Return what pairs that share a cold n-gram have beyond what their hot ones alone would give them."""
    from scipy import sparse

    if not len(rows):
        return 0.0
    incidence = sparse.csr_array(
        (np.ones(len(rows), dtype=np.int32), (rows, columns)), shape=(len(sizes), columns.max() + 1)
    )
    by_column = incidence.T.tocsr()
    expected = np.cumsum(incidence @ np.diff(by_column.indptr))
    total, start = 0.0, 0
    while start < len(sizes):
        done = expected[start - 1] if start else 0
        end = max(start + 1, int(np.searchsorted(expected, done + _PAIRS_AT_ONCE)))
        found = (incidence[start:end] @ by_column).tocoo()
        above = found.col > found.row + start
        first, second, shared = found.row[above] + start, found.col[above], found.data[above]
        common = np.zeros(len(first), dtype=np.int64)
        for word in range(hot_bits.shape[1]):
            common += np.bitwise_count(hot_bits[first, word] & hot_bits[second, word])
        both = sizes[first] + sizes[second]
        gain = (shared + common) / (both - shared - common) - common / (both - common)
        total += float(np.sum(weights[first] * weights[second] * gain))
        start = end
    return total


def _hot_pairs(rows: Any, columns: Any, sizes: Any, weights: Any) -> float:
    """Return the same sum as if sets shared the hot n-grams only, counted by groups of sets that are alike."""
    from scipy import sparse

    # Sets are told apart by their size and the sum of a random number for each n-gram: equal sums are equal sets,
    # but for a chance of about 1e-7 at a million sets.
    marks = np.random.default_rng(0).integers(1, 2**63, size=(int(columns.max()) + 1, 2), dtype=np.uint64)
    keys = np.zeros((len(sizes), 3), dtype=np.uint64)
    np.add.at(keys, (rows, 0), marks[columns, 0])
    np.add.at(keys, (rows, 1), marks[columns, 1])
    keys[:, 2] = sizes
    held = np.flatnonzero(keys[:, 0])
    _, first, group = np.unique(keys[held], axis=0, return_index=True, return_inverse=True)
    group = group.ravel()
    size = sizes[held][first].astype(float)
    weight = np.bincount(group, weights[held])
    self_pairs = np.bincount(group, weights[held] ** 2)
    incidence = sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=(len(sizes), columns.max() + 1))[
        held[first]
    ]
    by_column = incidence.T.tocsr()
    total = 0.0
    for start in range(0, len(size), _GROUPS_AT_ONCE):
        found = (incidence[start : start + _GROUPS_AT_ONCE] @ by_column).tocoo()
        here, there, common = found.row + start, found.col, found.data
        similarity = common / (size[here] + size[there] - common)
        total += float(np.sum(weight[here] * weight[there] * similarity))
        same = here == there
        total -= float(np.sum(self_pairs[here[same]] * similarity[same]))
    return total / 2


_FEW_MESSAGES = 100


def extract_ngrams(text: str, n: int) -> list[str]:
    """Return the distinct n-grams (``n`` at least 1) of a text in order of first occurrence, tokens joined by a space."""
    return ngrams_of(tokenize(text), n)


def ngrams_of(tokens: Sequence[str], n: int) -> list[str]:
    """Return the distinct n-grams of a list of tokens; see ``extract_ngrams``."""
    if n < 1:
        raise ValueError(f"n must be at least 1, not {n}")
    return list(dict.fromkeys(" ".join(tokens[i : i + n]) for i in range(len(tokens) - n + 1)))


def overlap(a: Collection[str], b: Collection[str]) -> float:
    """Return the Jaccard similarity of two collections taken as sets; 0.0 when both are empty."""
    first, second = set(a), set(b)
    union = len(first | second)
    return len(first & second) / union if union else 0.0


def corpus_repetition(messages: Sequence[str], n: int) -> float:
    """Return the mean Jaccard similarity of the n-gram sets of all pairs of messages.

    Fewer than two messages give 0.0, a pair without n-grams counts 0. Exact, and about linear in the number of messages
    (``mean_overlap``).
    """
    if len(messages) < 2:
        return 0.0
    corpus = [tokenize(message) for message in messages]
    if len(corpus) > _FEW_MESSAGES:
        return mean_overlap(corpus, n)
    sets = [frozenset(ngrams_of(tokens, n)) for tokens in corpus]
    return math.fsum(overlap(a, b) for a, b in combinations(sets, 2)) / (len(sets) * (len(sets) - 1) / 2)


OPENER_LENGTH = 3


@dataclass(frozen=True)
class SharedPhrase:
    """A phrase (tokens joined by a space), how many messages hold it, and its length in tokens."""

    phrase: str
    messages: int
    length: int


def maximal_repeated(corpus: Sequence[Sequence[str]], n: int = 3) -> list[SharedPhrase]:
    """Return the phrases of ``n`` or more tokens that two or more messages, given as tokens, share, and no parts of them.

    Most messages first, then longest, then in order of first occurrence. Repetition inside one message does
    not count.

    Raises:
        ValueError: ``n`` is below 1.
    """
    if n < 1:
        raise ValueError(f"n must be at least 1, not {n}")
    automaton = _SuffixAutomaton()
    for tokens in corpus:
        automaton.add(tokens)
    holders = automaton.holders(corpus)
    repeated = [count >= 2 for count in holders]
    extended = [False] * len(holders)
    for state, following in enumerate(automaton.following):
        if repeated[state]:
            extended[automaton.link[state]] = True
        if any(repeated[target] for target in following.values()):
            extended[state] = True
    found = [
        (automaton.end[state], SharedPhrase(" ".join(automaton.phrase(state, corpus)), holders[state], length))
        for state, length in enumerate(automaton.length)
        if state and repeated[state] and not extended[state] and length >= n
    ]
    found.sort(key=lambda item: (-item[1].messages, -item[1].length, item[0]))
    return [phrase for _, phrase in found]


def shared_openers(corpus: Sequence[Sequence[str]], length: int = OPENER_LENGTH) -> list[SharedPhrase]:
    """Return the first ``length`` tokens that begin two or more messages, given as tokens, most frequent first.

    Messages of fewer tokens have no opener.
    """
    openers = Counter(" ".join(tokens[:length]) for tokens in corpus if len(tokens) >= length > 0)
    return [SharedPhrase(opener, count, length) for opener, count in openers.most_common() if count > 1]


class _SuffixAutomaton:
    """Generalised suffix automaton: every phrase of a corpus in linear space (Blumer et al., 1985)."""

    def __init__(self) -> None:
        self.length, self.link = [0], [-1]
        self.following: list[dict[str, int]] = [{}]
        # (message, index after the last token) of the first occurrence.
        self.end: list[tuple[int, int]] = [(0, 0)]
        self.added = 0

    def add(self, tokens: Sequence[str]) -> None:
        last = 0
        for index, token in enumerate(tokens):
            last = self._extend(last, token, (self.added, index + 1))
        self.added += 1

    def _new(self, length: int, link: int, following: dict[str, int], end: tuple[int, int]) -> int:
        self.length.append(length)
        self.link.append(link)
        self.following.append(following)
        self.end.append(end)
        return len(self.length) - 1

    def _extend(self, last: int, token: str, end: tuple[int, int]) -> int:
        known = self.following[last].get(token)
        if known is not None:
            return known if self.length[known] == self.length[last] + 1 else self._split(last, token, known)
        state = self._new(self.length[last] + 1, 0, {}, end)
        while last != -1 and token not in self.following[last]:
            self.following[last][token] = state
            last = self.link[last]
        if last != -1:
            known = self.following[last][token]
            exact = self.length[known] == self.length[last] + 1
            self.link[state] = known if exact else self._split(last, token, known)
        return state

    def _split(self, last: int, token: str, known: int) -> int:
        clone = self._new(self.length[last] + 1, self.link[known], dict(self.following[known]), self.end[known])
        self.link[known] = clone
        while last != -1 and self.following[last].get(token) == known:
            self.following[last][token] = clone
            last = self.link[last]
        return clone

    def holders(self, corpus: Sequence[Sequence[str]]) -> list[int]:
        """Return for each state in how many messages its phrases stand."""
        counts = [0] * len(self.length)
        seen = [-1] * len(self.length)
        for number, tokens in enumerate(corpus):
            state = 0
            for token in tokens:
                state = self.following[state][token]
                visited = state
                while visited > 0 and seen[visited] != number:
                    seen[visited] = number
                    counts[visited] += 1
                    visited = self.link[visited]
        return counts

    def phrase(self, state: int, corpus: Sequence[Sequence[str]]) -> Sequence[str]:
        message, end = self.end[state]
        return corpus[message][end - self.length[state] : end]
