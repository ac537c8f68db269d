"""How alike agents sound: TF-IDF of cased character n-grams, against the same agents elsewhere and before.

Word overlap hardly moves when voices merge; spelling, punctuation and rhythm do. Texts of unequal length are
not comparable, so every comparison uses equally many messages of each agent.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from persona_pipeline.scoring.text.characters import VOICE, text_vectors
from persona_pipeline.scoring.text.nearness import Nearness, Voices, nearness

VoiceConvergence = Nearness


@dataclass(frozen=True)
class VoicePoint:
    """Where an agent stands on the voice map; only distances between points mean something."""

    agent_id: str
    x: float
    y: float


def voice_similarity(agents: Voices) -> dict[tuple[str, str], float]:
    """Return the cosine similarity (0-1) of each two agents' voices, keyed by the sorted pair of names.

    Agents without text are left out.
    """
    names = [name for name in sorted(agents) if any(message.strip() for message in agents[name])]
    if len(names) < 2:
        return {}
    matrix = _cosine(agents, names)
    return {(names[i], names[j]): float(matrix[i, j]) for i, j in combinations(range(len(names)), 2)}


def voice_convergence(current: Voices, references: Sequence[Voices]) -> Nearness:
    """Compare how alike agents sound in one channel and window with how alike the same agents sound in ``references``.

    References are the same agents' messages elsewhere, oldest first; all of them together are the history (``nearness``).
    """
    history: dict[str, list[str]] = {}
    for reference in references:
        for name, texts in reference.items():
            history.setdefault(name, []).extend(texts)
    return nearness(current, history)


def voice_map(agents: Voices) -> list[VoicePoint]:
    """Return the agents on a plane, near ones alike: classical scaling (Torgerson, 1952) of cosine distances.

    Deterministic: on each axis the point farthest from the middle is on the positive side. Fewer than two
    agents with text stand in the middle.
    """
    names = [name for name in sorted(agents) if any(message.strip() for message in agents[name])]
    if len(names) < 2:
        return [VoicePoint(name, 0.0, 0.0) for name in names]
    squared = np.clip(2 - 2 * _cosine(agents, names), 0, None)
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


def _cosine(agents: Voices, names: Sequence[str]) -> Any:
    rows = text_vectors([f" {chr(10).join(agents[name])} " for name in names], VOICE)
    return np.clip((rows @ rows.T).astype(float), 0.0, 1.0)
