"""Similarity of texts, and the likely speaker of a message, from counts of character n-grams.

Word overlap hardly changes when voices merge; spelling, punctuation and rhythm do. Texts of unequal length are not comparable.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from persona_pipeline.scoring.style.features import Texts, gram_length


def gram_counts(texts: Sequence[str]) -> Any:
    """Return the n-gram counts of texts as a sparse matrix, a row for each text."""
    return Texts(texts, gram_length(texts)).grams[1]


def weighted(counts: Any, holders: Any, total: int) -> Any:
    """Return the TF-IDF rows of n-gram counts, of unit length (sublinear term frequency, smoothed document frequency).

    Args:
        holders: number of texts that contain each n-gram, of ``total`` texts.
    """
    from scipy import sparse

    rows = counts.astype(float)
    rows.data = (1 + np.log(rows.data)) * (np.log((1 + total) / (1 + holders)) + 1)[rows.indices]
    norms = np.sqrt(rows.power(2).sum(axis=1))
    return sparse.csr_array(sparse.diags_array(1 / np.where(norms > 0, norms, 1)) @ rows)


def summed(counts: Any, groups: Any, number: int) -> Any:
    """Return the sums of rows by group, one row for each of ``number`` groups."""
    from scipy import sparse

    places = (groups, np.arange(len(groups)))
    return sparse.csr_array((np.ones(len(groups)), places), shape=(number, len(groups))) @ counts


def text_vectors(texts: Sequence[str]) -> Any:
    """Return the TF-IDF rows of shown texts, of unit length. The document frequencies come from the same texts."""
    counts = gram_counts(texts)
    return weighted(counts, counts.count_nonzero(axis=0), len(texts)).toarray()


def voice_similarity(agents: Mapping[str, Sequence[str]]) -> dict[tuple[str, str], float]:
    """Return the cosine similarity (0-1) of each pair of agents' voices, by sorted names. Agents without text are left out."""
    names = [name for name in sorted(agents) if any(message.strip() for message in agents[name])]
    if len(names) < 2:
        return {}
    speakers = np.repeat(np.arange(len(names)), [len(agents[name]) for name in names])
    counts = summed(gram_counts([text for name in names for text in agents[name]]), speakers, len(names))
    rows = weighted(counts, counts.count_nonzero(axis=0), len(names))
    alike = np.clip((rows @ rows.T).toarray(), 0.0, 1.0)[np.triu_indices(len(names), 1)]
    return dict(zip(combinations(names, 2), alike.tolist(), strict=True))


def speaker_scores(counts: Any, speakers: Any, parts: Any) -> Any:
    """Return an array of messages x speakers: log-likelihood of each message above the average speaker (naive Bayes).

    Args:
        counts: n-gram counts of all messages. The first ``len(speakers)`` are the training messages.
        speakers: the number (from 0) of the speaker of each training message.
        parts: the number (from 0) of the cross-validation part of each training message; at least two parts. A message is scored
            without its part, so dependent messages belong in one part.

    Raises:
        ValueError: no n-gram is in two messages.
    """
    known, folds, people = len(speakers), int(np.max(parts)) + 1, int(np.max(speakers)) + 1
    # An n-gram of a single message does not predict others.
    counts = counts[:, counts[:known].count_nonzero(axis=0) > 1]
    if not counts.shape[1]:
        raise ValueError("no n-gram is in two messages")
    said = summed(counts[:known], speakers * folds + parts, people * folds).toarray().reshape(people, folds, -1)
    every, part_of = said.sum(axis=1), np.concatenate([parts, np.full(counts.shape[0] - known, folds)])
    # The square root, because n-grams of a message overlap and a long message must not decide alone.
    size = np.sqrt(np.maximum(1, counts.sum(axis=1)))
    found = np.zeros((counts.shape[0], people))
    for part in range(folds + 1):
        heard = every - said[:, part] if part < folds else every
        logs = np.log((heard + 0.5) / (heard.sum(axis=1, keepdims=True) + 0.5 * heard.shape[1]))
        rows = np.flatnonzero(part_of == part)
        found[rows] = counts[rows] @ (logs - logs.mean(axis=0)).T / size[rows, None]
    return found


def alike_members(counts: Any, known: int, holders: Any, block: Any) -> Any:
    """Return the cosine similarity (0-1) of each pair of members of a block.

    The block's own messages are left out of the document frequencies, so a new n-gram weighs the same in known and in new texts.

    Args:
        known: number of the first messages, which the document frequencies (``holders``) count.
        block: members x messages, the places of messages.
    """
    said = counts[block.ravel()]
    held = holders - said.count_nonzero(axis=0) * (block.min() < known)
    rows = weighted(summed(said, np.repeat(np.arange(len(block)), block.shape[1]), len(block)), held, known)
    return (rows @ rows.T).toarray()
