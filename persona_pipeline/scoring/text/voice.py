"""How alike agents sound: TF-IDF of cased character n-grams, against the same agents elsewhere.

Word overlap hardly moves when voices merge; spelling, punctuation and rhythm do. Texts of unequal length are
not comparable, so every comparison uses equally many messages of each agent. scikit-learn takes seconds to
import: only callers of these functions pay for it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import fsum
from statistics import fmean, stdev
from typing import Any

Voices = Mapping[str, Sequence[str]]
MIN_REFERENCES = 3


@dataclass(frozen=True)
class VoicePoint:
    """Where an agent stands on the voice map; only distances between points mean something."""

    agent_id: str
    x: float
    y: float


@dataclass(frozen=True)
class VoiceConvergence:
    """How alike agents sound here compared with the same agents elsewhere.

    Attributes:
        similarity: mean cosine similarity of all pairs here, 0-1; None below two agents.
        reference_mean, reference_sd: of the same number in the references.
        z: (similarity - reference_mean) / reference_sd, positive when voices have come closer; None below
            three references or without spread among them.
        n_references: blocks of messages compared with.
        messages_per_agent: messages of each agent in every block.
    """

    similarity: float | None
    reference_mean: float | None = None
    reference_sd: float | None = None
    z: float | None = None
    n_references: int = 0
    messages_per_agent: int = 0


def voice_similarity(agents: Voices) -> dict[tuple[str, str], float]:
    """Return the cosine similarity (0-1) of each two agents' voices, keyed by the sorted pair of names.

    Agents without text are left out.
    """
    names = [name for name in sorted(agents) if any(message.strip() for message in agents[name])]
    if len(names) < 2:
        return {}
    matrix = _cosine(_vectors(["\n".join(agents[name]) for name in names]))
    return {(names[i], names[j]): float(matrix[i, j]) for i, j in combinations(range(len(names)), 2)}


def voice_convergence(current: Voices, references: Sequence[Voices]) -> VoiceConvergence:
    """Compare how alike agents sound in one channel and window with how alike they sound in others.

    ``references`` are the same agents' messages elsewhere, in time order. Each is cut into blocks of as many
    messages an agent as the quietest agent has in ``current``; a block that lacks an agent is left out.
    """
    names = sorted(name for name, messages in current.items() if messages)
    if len(names) < 2:
        return VoiceConvergence(None)
    count = min(len(current[name]) for name in names)
    blocks = [{name: current[name][-count:] for name in names}]
    for reference in references:
        available = min(len(reference.get(name, ())) for name in names) // count
        blocks.extend(
            {name: reference[name][block * count : (block + 1) * count] for name in names} for block in range(available)
        )
    if not all(any(message.strip() for message in block[name]) for block in blocks[:1] for name in names):
        return VoiceConvergence(None)
    vectors = _vectors(["\n".join(block[name]) for block in blocks for name in names])
    means = []
    for index in range(len(blocks)):
        matrix = _cosine(vectors[index * len(names) : (index + 1) * len(names)])
        pairs = [float(matrix[i, j]) for i, j in combinations(range(len(names)), 2)]
        means.append(fsum(pairs) / len(pairs))
    similarity, others = means[0], means[1:]
    if not others:
        return VoiceConvergence(similarity, messages_per_agent=count)
    mean = fmean(others)
    spread = stdev(others) if len(others) >= MIN_REFERENCES else None
    z = (similarity - mean) / spread if spread else None
    return VoiceConvergence(similarity, mean, spread, z, len(others), count)


def voice_map(agents: Voices) -> list[VoicePoint]:
    """Return the agents on a plane, near ones alike: classical scaling (Torgerson, 1952) of cosine distances.

    Deterministic: on each axis the point farthest from the middle is on the positive side. Fewer than two
    agents with text stand in the middle.
    """
    names = [name for name in sorted(agents) if any(message.strip() for message in agents[name])]
    if len(names) < 2:
        return [VoicePoint(name, 0.0, 0.0) for name in names]
    import numpy as np

    squared = np.clip(2 - 2 * _cosine(_vectors(["\n".join(agents[name]) for name in names])), 0, None)
    centring = np.eye(len(names)) - 1 / len(names)
    values, axes = np.linalg.eigh(-0.5 * centring @ squared @ centring)
    points = axes[:, ::-1][:, :2] * np.sqrt(np.clip(values[::-1][:2], 0, None))
    for axis in range(points.shape[1]):
        column = points[:, axis]
        # Rounded, so that two points equally far out do not swap with the last bit of a platform's LAPACK.
        farthest = int(np.argmax(np.round(np.abs(column), 9)))
        if column[farthest] < 0:
            points[:, axis] = -column
    return [VoicePoint(name, float(x), float(y)) for name, (x, y) in zip(names, points, strict=True)]


def _vectors(texts: Sequence[str]) -> Any:
    """TF-IDF rows of unit length; a text too short for an n-gram is a row of zeros."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(analyzer="char", ngram_range=(2, 4), lowercase=False, sublinear_tf=True)
    padded = [f" {text} " for text in texts]
    return vectorizer.fit_transform(padded)


def _cosine(vectors: Any) -> Any:
    import numpy as np

    return np.clip((vectors @ vectors.T).toarray(), 0.0, 1.0)
