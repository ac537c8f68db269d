"""The agent gets names, numbers and days wrong."""

import random
from collections.abc import Mapping, Sequence

import regex

from persona_pipeline.claims.faults.material import Material

_NUMBER = regex.compile(r"\p{Nd}+")
# In the middle of a sentence; in German every noun.
_NAME = regex.compile(r"(?<=[\p{Ll},;] )\p{Lu}\p{Ll}{2,}\b")
_WORD = regex.compile(r"\b\p{L}[\p{L}\p{M}]+\b")


def wrong_facts(texts: Sequence[str], material: Material, generator: random.Random) -> list[str]:
    """Numbers, weekdays, months and names are swapped for others, each the same way throughout; the manner stays."""
    words = material.words
    swaps: dict[str, str] = {}
    for group in (words.weekdays, words.months, words.numbers) if words else ():
        swaps |= _swapped(group, generator)
    spoken = {match[0] for text in texts for match in _NAME.finditer(text)}
    around = {word for name in material.names for word in _WORD.findall(name) if word[0].isupper()}
    names = sorted(name for name in spoken | around if name.lower() not in swaps)
    by_name = _swapped(names, generator)
    return [_wrong(text, by_name, swaps, generator) for text in texts]


def _swapped(group: Sequence[str], generator: random.Random) -> dict[str, str]:
    """Each member goes over to another; nobody stays as it is."""
    if len(group) < 2:
        return {}
    mixed = generator.sample(group, len(group))
    return dict(zip(mixed, [*mixed[1:], mixed[0]], strict=True))


def _wrong(text: str, names: Mapping[str, str], words: Mapping[str, str], generator: random.Random) -> str:
    def word(match: "regex.Match[str]") -> str:
        found = match[0]
        if found in names:
            return names[found]
        other = words.get(found.lower())
        if other is None:
            return found
        return other.capitalize() if found[0].isupper() else other

    return _NUMBER.sub(lambda match: _other_number(match[0], generator), _WORD.sub(word, text))


def _other_number(digits: str, generator: random.Random) -> str:
    """Return another number of as many digits, without a zero in front."""
    lowest = 10 ** (len(digits) - 1) if 1 < len(digits) <= 15 else 0
    span = 9 * lowest or 10
    if len(digits) > 15:
        return digits[::-1] if digits != digits[::-1] else "1" + digits[1:-1] + "2"
    other = lowest + (int(digits) - lowest + generator.randrange(1, span)) % span
    return str(other)
