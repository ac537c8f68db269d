"""The agent denies what it said."""

import random
from collections.abc import Sequence

import regex

from persona_pipeline.claims.faults.material import Material, NotApplicableError

_FIRST_SENTENCE = regex.compile(r"^.*?[.!?。！？](?=\s|$)|^.+", regex.DOTALL)
_LONGEST = 120


def contradiction(texts: Sequence[str], material: Material, generator: random.Random) -> list[str]:
    """In every second message the agent goes on as before and then takes back its message before that one."""
    denials = material.known_words().denials
    if len(texts) < 2:
        raise NotApplicableError("it said one thing only, and there is nothing to take back")
    first = generator.randrange(len(denials))
    found = list(texts)
    for turn, place in enumerate(range(1, len(texts), 2)):
        denial = denials[(first + turn) % len(denials)].replace("{line}", _line(texts[place - 1]))
        found[place] = f"{texts[place]} {denial}"
    return found


def _line(text: str) -> str:
    sentence = _FIRST_SENTENCE.search(" ".join(text.split()))
    return (sentence[0] if sentence else "")[:_LONGEST].rstrip(" .!?。！？")
