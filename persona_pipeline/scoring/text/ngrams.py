"""How much messages repeat one another, by n-grams of their tokens. Shares are 0-1."""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise

from persona_pipeline.scoring.text.tokens import tokenize

# Pairs that share an n-gram are listed one by one up to this many holders; above it they are counted by
# group.
_HOT_HOLDERS = 48
_BLOCK = 512
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


def overlap(a: Sequence[str], b: Sequence[str]) -> float:
    """Return the Jaccard similarity of two lists taken as sets; 0.0 when both are empty."""
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

    Fewer than two messages give 0.0, a pair without n-grams counts 0. Exact, and about linear in the number
    of messages: equal messages are counted once with a weight, pairs come from an inverted index, and n-grams
    that very many messages share are counted by groups of messages instead of pairs.
    """
    if len(messages) < 2:
        return 0.0
    weights = Counter(frozenset(extract_ngrams(message, n)) for message in messages)
    empty = weights.pop(frozenset(), 0)
    identical = sum(weight * (weight - 1) // 2 for weight in weights.values())
    total = len(messages)
    if empty == total:
        return 0.0
    return (identical + _distinct_pairs(weights)) / (total * (total - 1) / 2)


def _distinct_pairs(weights: Counter[frozenset[str]]) -> float:
    """Return the sum of weight x weight x Jaccard over all pairs of distinct, non-empty sets."""
    sets = list(weights)
    counts = [weights[each] for each in sets]
    sizes = [len(each) for each in sets]
    holders: dict[str, list[int]] = defaultdict(list)
    for index, each in enumerate(sets):
        for gram in each:
            holders[gram].append(index)
    hot = {gram for gram, held_by in holders.items() if len(held_by) > _HOT_HOLDERS}
    # cold[i][j]: n-grams that sets i < j share beside the hot ones.
    cold: defaultdict[int, Counter[int]] = defaultdict(Counter)
    for gram, held_by in holders.items():
        if gram not in hot:
            for first, second in combinations(held_by, 2):
                cold[first][second] += 1
    terms = []
    for first, row in cold.items():
        for second, shared in row.items():
            both = sizes[first] + sizes[second]
            common = len(sets[first] & sets[second] & hot) if hot else 0
            # The hot total below counts the pair with its hot n-grams only: this puts the true value in its
            # place.
            gain = (shared + common) / (both - shared - common) - common / (both - common)
            terms.append(counts[first] * counts[second] * gain)
    if hot:
        terms.append(_hot_pairs({gram: holders[gram] for gram in hot}, sizes, counts))
    return math.fsum(terms)


def _hot_pairs(holders: Mapping[str, Sequence[int]], sizes: Sequence[int], counts: Sequence[int]) -> float:
    """Return the same sum as if sets shared these n-grams only.

    Sets alike in size and in these n-grams are one group: there are far fewer groups than sets.
    """
    import numpy as np
    from scipy import sparse

    # N-grams with the same holders, such as those of one fixed opener, become one column with a multiplicity.
    columns = Counter(tuple(held_by) for held_by in holders.values())
    held: dict[int, list[int]] = defaultdict(list)
    for column, held_by in enumerate(columns):
        for index in held_by:
            held[index].append(column)
    groups: dict[tuple[int, tuple[int, ...]], list[int]] = defaultdict(list)
    for index, each in held.items():
        groups[sizes[index], tuple(each)].append(index)
    size = np.array([group_size for group_size, _ in groups], dtype=float)
    weight = np.array([sum(counts[index] for index in members) for members in groups.values()], dtype=float)
    self_pairs = np.array([sum(counts[index] ** 2 for index in members) for members in groups.values()])
    rows = np.repeat(np.arange(len(groups)), [len(each) for _, each in groups])
    cells = (rows, np.concatenate([each for _, each in groups]))
    incidence = sparse.csr_array((np.ones(len(rows)), cells), shape=(len(groups), len(columns)))
    weighted = (incidence * np.fromiter(columns.values(), float)).T.tocsr()
    total = 0.0
    for start in range(0, len(groups), _BLOCK):
        block = (incidence[start : start + _BLOCK] @ weighted).tocoo()
        first, second, common = block.row + start, block.col, block.data
        similarity = common / (size[first] + size[second] - common)
        total += float(np.sum(weight[first] * weight[second] * similarity))
        same = first == second
        total -= float(np.sum(self_pairs[first[same]] * similarity[same]))
    return total / 2


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
