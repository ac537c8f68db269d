"""Operators that break a character on purpose: small functions of its messages, the same for the same seed."""

import random
from collections.abc import Mapping, Sequence
from typing import Protocol

from persona_pipeline.claims.faults.boilerplate import boilerplate
from persona_pipeline.claims.faults.borrowed import borrowed
from persona_pipeline.claims.faults.contradiction import contradiction
from persona_pipeline.claims.faults.flattened import flattened
from persona_pipeline.claims.faults.material import Material, NotApplicableError, words_of
from persona_pipeline.claims.faults.repetition import repetition
from persona_pipeline.claims.faults.wrong_facts import wrong_facts

__all__ = ["FAULTS", "Material", "NotApplicableError", "Operator", "stands_for", "words_of"]


class Operator(Protocol):
    """Breaks an agent's messages, oldest first, and returns as many; the first line of its docstring says what it stands for.

    Raises ``NotApplicableError`` where the fault cannot be planted.
    """

    def __call__(self, texts: Sequence[str], material: Material, generator: random.Random) -> list[str]: ...


FAULTS: Mapping[str, Operator] = {
    "boilerplate": boilerplate,
    "borrowed": borrowed,
    "repetition": repetition,
    "flattened": flattened,
    "contradiction": contradiction,
    "wrong_facts": wrong_facts,
}


def stands_for(name: str) -> str:
    """Return what a fault stands for, in one sentence."""
    return (FAULTS[name].__doc__ or "").partition("\n")[0]
