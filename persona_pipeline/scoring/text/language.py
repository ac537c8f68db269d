"""Which language texts are in: told by script, and in Latin letters by common words and by letters that few languages have."""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from heapq import nlargest
from pathlib import Path

import regex

from persona_pipeline.scoring.text.tokens import tokenize

ENGLISH, UNKNOWN = "en", "unknown"
_WORDS = Path(__file__).parent / "data" / "common_words.txt"
# In this order: Japanese is written in Han too, and has letters of its own between.
_SCRIPTS = {
    code: regex.compile("[" + "".join(rf"\p{{{name}}}" for name in names) + "]")
    for code, *names in (
        *(("ja", "Hiragana", "Katakana"), ("zh", "Han"), ("ko", "Hangul"), ("ar", "Arabic"), ("he", "Hebrew")),
        *(("hi", "Devanagari"), ("el", "Greek"), ("th", "Thai"), ("ru", "Cyrillic")),
    )
}
# Letters of other languages in the script: Persian and Urdu; Ukrainian, Belarusian, Serbian and others.
_STRANGE = {"ar": regex.compile("[یکپچژگٹڈڑںےہھە]"), "ru": regex.compile("[іїєґўјљњћђџѓќѕәғқңөұүһ]")}
_LATIN, _LETTER = regex.compile(r"\p{Latin}"), regex.compile(r"\p{L}")
_LINK = regex.compile(r"\w+://\S+")
_FOREIGN_LETTER = regex.compile(r"(?=\p{Latin})[^a-zA-Z]|[¿¡]")
# Of a text in Japanese at least so much is kana, however many its characters; at most so much of a text is strange letters.
_LEAST_KANA, _MOST_STRANGE = 0.1, 0.02
# A language is told when its words weigh so much more than the next one's, and are so many of all; else it is unknown.
_LEAST_LEAD, _LEAST_SHARE, _ENOUGH_WORDS = 1.2, 0.2, 30
_TELLING_WORDS = 3


def base_language(code: str) -> str:
    """Return a language without its region: ``pt`` of ``pt-BR``."""
    return code.replace("_", "-").partition("-")[0].lower()


def language_of(texts: Sequence[str]) -> str:
    """Return the language of texts, taken together, as its code: ``de``; ``unknown`` where it is another or cannot be told.

    Few words that fit no language are read as English.
    """
    return _told(texts) or ENGLISH


def _told(texts: Sequence[str]) -> str:
    """Return the language of texts; "" where there are few words and nothing to tell it by."""
    texts = [_LINK.sub(" ", text) for text in texts]
    said = "\n".join(texts)
    letters, latin = len(_LETTER.findall(said)), len(_LATIN.findall(said))
    if latin * 2 < letters:
        counts = {language: len(script.findall(said)) for language, script in _SCRIPTS.items()}
        if counts["ja"] >= _LEAST_KANA * (counts["ja"] + counts["zh"]) > 0:
            return "ja"
        best = max(counts, key=lambda language: counts[language])
        strange = len(_STRANGE[best].findall(said)) if best in _STRANGE else 0
        return best if counts[best] * 2 > letters and strange <= _MOST_STRANGE * letters else UNKNOWN
    weights = _weights()
    tokens = Counter(token for text in texts for token in tokenize(text))
    marks = Counter(_FOREIGN_LETTER.findall(said.lower()))
    scores: dict[str, float] = defaultdict(float)
    for item, count in (*tokens.items(), *marks.items()):
        for language in (listed := weights.get(item, ())):
            scores[language] += count * math.log((len(_words()) + 1) / len(listed))
    [(best, most), (_, next_best)] = [*nlargest(2, scores.items(), key=lambda item: item[1]), ("", 0.0), ("", 0.0)][:2]
    if not most:
        return "" if tokens.total() < _ENOUGH_WORDS and not marks else UNKNOWN
    own = sum(count for token, count in tokens.items() if best in weights.get(token, ()))
    return best if most > _LEAST_LEAD * next_best and own >= _LEAST_SHARE * tokens.total() else UNKNOWN


def languages_of(texts: Sequence[str]) -> list[str]:
    """Return the languages that a fifth of texts are in (two at least), most first; that of all where most are too short."""
    alone = Counter(map(_alone, texts))
    found = [name for name, count in alone.most_common() if name != UNKNOWN and count >= max(2, len(texts) / 5)]
    known = sum(alone[name] for name in found)
    return found if known * 2 > len(texts) else list(dict.fromkeys([language_of(texts), *found]))


# A channel's messages are looked at again with each new one.
@lru_cache(maxsize=1024)
def _alone(text: str) -> str:
    return (_told([text]) if len(tokenize(text)) >= _TELLING_WORDS else "") or UNKNOWN


@cache
def _words() -> Mapping[str, list[str]]:
    """Return common words and letters by language."""
    lines = (line.partition(": ") for line in _WORDS.read_text(encoding="utf-8").splitlines() if line[0] != "#")
    return {language: words.split() for language, _, words in lines}


@cache
def _weights() -> Mapping[str, Sequence[str]]:
    """Return the languages that have a word or a letter."""
    found: dict[str, list[str]] = {}
    for language, words in _words().items():
        for word in words:
            found.setdefault(word, []).append(language)
    return found


def told_languages() -> frozenset[str]:
    """Return the codes of the languages that are told from others."""
    return frozenset({*_SCRIPTS, *_words()})
