"""The agent says the same things without its manner."""

import random
from collections.abc import Sequence

import regex

from persona_pipeline.claims.faults.material import Material

_ASIDE = regex.compile(r"\s*[(（][^()（）]*[)）]")
_PICTURE = regex.compile(r"[\p{Extended_Pictographic}\p{Emoji_Modifier}\ufe0f\u200d\u20e3]+")
_STRETCHED = regex.compile(r"(\p{L})\1{2,}")
_SHOUTED = regex.compile(r"\b\p{Lu}{4,}\b")
_ENDING = regex.compile(r"[!?！？.。…]*[!！…][!?！？.。…]*|\.{2,}|[?？]{2,}")
_QUOTES = regex.compile(r"[\"“”„«»*_~`]")
_DASH = regex.compile(r"\s+[-–—]+\s+|[–—]")
_SENTENCE = regex.compile(r"(^|[.?!。？]\s+)(\p{Ll})")
_OPEN_END = regex.compile(r"[\p{L}\p{M}\p{N}]$")
_WITHOUT_SPACES = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}]")


def flattened(texts: Sequence[str], material: Material, generator: random.Random) -> list[str]:
    """Emphasis, asides, emoji, shouting and fillers go, and every sentence ends in a full stop: what is said stays, how goes."""
    fillers = None
    if material.words is not None:
        alternatives = "|".join(map(regex.escape, sorted(material.words.fillers, key=len, reverse=True)))
        fillers = regex.compile(rf"\b(?:{alternatives})\b[,!]?\s*", regex.IGNORECASE)
    return [_flat(text, fillers) for text in texts]


def _flat(text: str, fillers: "regex.Pattern[str] | None") -> str:
    stop = "。" if _WITHOUT_SPACES.search(text) else "."
    text = _PICTURE.sub("", _ASIDE.sub("", text))
    text = _SHOUTED.sub(lambda match: match[0].capitalize(), _QUOTES.sub("", text))
    text = _STRETCHED.sub(r"\1", text)
    text = _ENDING.sub(stop, _DASH.sub(", ", text))
    if fillers is not None:
        text = fillers.sub("", text)
    text = " ".join(text.split()).lstrip(" ,.。")
    text = _SENTENCE.sub(lambda match: match[1] + match[2].upper(), text)
    return (text + stop if _OPEN_END.search(text) else text) or "OK."
