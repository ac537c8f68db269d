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
    "ja": regex.compile(r"[\p{Hiragana}\p{Katakana}]"),
    "zh": regex.compile(r"\p{Han}"),
    "ko": regex.compile(r"\p{Hangul}"),
    "ar": regex.compile(r"\p{Arabic}"),
    "he": regex.compile(r"\p{Hebrew}"),
    "hi": regex.compile(r"\p{Devanagari}"),
    "el": regex.compile(r"\p{Greek}"),
    "th": regex.compile(r"\p{Thai}"),
    "ru": regex.compile(r"\p{Cyrillic}"),
}
# Letters of other languages in the script: Persian and Urdu; Ukrainian, Belarusian, Serbian and others.
_STRANGE = {"ar": regex.compile("[یکپچژگٹڈڑںےہھە]"), "ru": regex.compile("[іїєґўјљњћђџѓќѕәғқңөұүһ]")}
_MOST_STRANGE = 0.02
_LATIN, _LETTER = regex.compile(r"\p{Latin}"), regex.compile(r"\p{L}")
_LINK = regex.compile(r"\w+://\S+")
_FOREIGN_LETTER = regex.compile(r"(?=\p{Latin})[^a-zA-Z]|[¿¡]")
# Each such letter of a text counts for the languages that write it as a common word of theirs does.
_LETTERS = {
    "de": "äöüß", "fr": "àâçèéêëîïôœùû", "es": "áéíñóú¿¡", "it": "àèéìòù", "pt": "áâãàçéêíóôõú", "nl": "éëï",
    "sv": "åäö", "da": "åæø", "no": "åæø", "pl": "ąćęłńóśźż", "cs": "áčďéěíňóřšťúůýž", "ro": "ăâîșşțţ",
    "hu": "áéíóöőúüű", "fi": "äö", "tr": "çğıöşü", "vi": "ăâđêôơưạảấầẩẫậắằẳẵặẹẻẽếềểễệỉịọỏốồổỗộớờởỡợụủứừửữựỳỵỷỹ",
    "ca": "àçèéíïòóúü", "gl": "áéíñóú",
}  # fmt: skip
# Of a text in Japanese at least so much is kana, however many its characters.
_LEAST_KANA = 0.1
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
    letters = len(_LETTER.findall(said))
    latin = len(_LATIN.findall(said))
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
    for found in (tokens, marks):
        for item, count in found.items():
            for language in (listed := weights.get(item, ())):
                scores[language] += count * math.log(_languages() / len(listed))
    [(best, most), (_, next_best)] = [*nlargest(2, scores.items(), key=lambda item: item[1]), ("", 0.0), ("", 0.0)][:2]
    said_words = tokens.total()
    if not most:
        return "" if said_words < _ENOUGH_WORDS and not marks else UNKNOWN
    own = sum(count for token, count in tokens.items() if best in weights.get(token, ()))
    return best if most > _LEAST_LEAD * next_best and own >= _LEAST_SHARE * said_words else UNKNOWN


def languages_of(texts: Sequence[str]) -> list[str]:
    """Return the languages that a fifth of texts or more are in, two at least, most first; in which all together are, where most
    are too short to tell.
    """
    alone = Counter(map(_alone, texts))
    found = [name for name, count in alone.most_common() if name != UNKNOWN and count >= max(2, len(texts) / 5)]
    known = sum(alone[name] for name in found)
    return found if known * 2 > len(texts) else list(dict.fromkeys([language_of(texts), *found]))


# A channel's messages are looked at again with each new one.
@lru_cache(maxsize=1024)
def _alone(text: str) -> str:
    return (_told([text]) if len(tokenize(text)) >= _TELLING_WORDS else "") or UNKNOWN


@cache
def _weights() -> Mapping[str, tuple[str, ...]]:
    """Return the languages that have a word or a letter."""
    found: dict[str, list[str]] = {}
    lines = _WORDS.read_text(encoding="utf-8").splitlines()
    listed = dict(line.split(": ", 1) for line in lines if not line.startswith("#"))
    for language, words in listed.items():
        for item in {*words.split(), *_LETTERS.get(language, "")}:
            found.setdefault(item, []).append(language)
    return {item: tuple(languages) for item, languages in found.items()}


@cache
def _languages() -> int:
    return len({language for listed in _weights().values() for language in listed}) + 1


def told_languages() -> frozenset[str]:
    """Return the codes of the languages that are told from others."""
    return frozenset({*_SCRIPTS, *(language for listed in _weights().values() for language in listed)})
