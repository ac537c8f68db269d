"""The character is gone, and a polite assistant answers in its place."""

import random
from collections.abc import Sequence

from persona_pipeline.claims.faults.material import Material


def boilerplate(texts: Sequence[str], material: Material, generator: random.Random) -> list[str]:
    """Every message becomes a stock courtesy: the drift towards the model's default voice."""
    lines = material.known_words().boilerplate
    found: list[str] = []
    while len(found) < len(texts):
        found += generator.sample(lines, len(lines))
    return found[: len(texts)]
