"""How much messages repeat one another, by n-grams of their tokens. Shares are 0-1."""

import math
from collections import Counter
from collections.abc import Collection, Sequence
from itertools import combinations, pairwise

from persona_pipeline.scoring.text.tokens import tokenize

_FEW_MESSAGES = 100
# (share of repeated n-grams, score 0-9): 0.074 is the 95th percentile of intact five-message windows of real
# dialogue.
NGRAM_SCORE_POINTS = ((0.0, 9.0), (0.074, 7.0), (0.3, 3.0), (1.0, 0.0))


def extract_ngrams(text: str, n: int) -> list[str]:
    """Return the distinct n-grams of a text in order of first occurrence, tokens joined by a space.

    Raises:
        ValueError: ``n`` is below 1.
    """
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


def shares_of_ngrams(grams: Sequence[Sequence[str]]) -> list[float | None]:
    """Return for each message, given as its distinct n-grams, the share (0-1) that also stands in another message.

    A message without n-grams has None.
    """
    holders = Counter(gram for each in grams for gram in each)
    return [sum(holders[gram] > 1 for gram in each) / len(each) if each else None for each in grams]


def mean_share(shares: Sequence[float | None]) -> float:
    """Return the mean of the shares that are there; 0.0 when none is."""
    numbers = [share for share in shares if share is not None]
    return math.fsum(numbers) / len(numbers) if numbers else 0.0


def message_shares(messages: Sequence[str], n: int) -> list[float | None]:
    """Return ``shares_of_ngrams`` of messages given as text."""
    return shares_of_ngrams([extract_ngrams(message, n) for message in messages])


def cross_message_share(messages: Sequence[str], n: int) -> float:
    """Return the mean of ``message_shares`` over the messages that have n-grams; 0.0 when none has."""
    return mean_share(message_shares(messages, n))


def corpus_repetition(messages: Sequence[str], n: int) -> float:
    """Return the mean Jaccard similarity of the n-gram sets of all pairs of messages.

    Fewer than two messages give 0.0, a pair without n-grams counts 0. Exact, and about linear in the number of messages
    (``gram_pairs``).
    """
    if len(messages) < 2:
        return 0.0
    corpus = [tokenize(message) for message in messages]
    if len(corpus) > _FEW_MESSAGES:
        # numpy and scipy take longer to import than a usual window takes to count.
        from persona_pipeline.scoring.text.gram_pairs import mean_overlap

        return mean_overlap(corpus, n)
    sets = [frozenset(ngrams_of(tokens, n)) for tokens in corpus]
    return math.fsum(overlap(a, b) for a, b in combinations(sets, 2)) / (len(sets) * (len(sets) - 1) / 2)


def ngram_score(share: float) -> float:
    """Return the 0-9 score of a share of repeated n-grams: piecewise linear through ``NGRAM_SCORE_POINTS``.

    Raises:
        ValueError: the share is not within 0-1.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"share {share!r} is not within 0 and 1")
    for (left, high), (right, low) in pairwise(NGRAM_SCORE_POINTS):
        if share <= right:
            return high + (low - high) * ((share - left) / (right - left))
    raise AssertionError("unreachable: the points end at 1")
