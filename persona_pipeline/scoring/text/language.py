"""Which language texts are in: told by their script and, in Latin letters, by the commonest words of eight languages."""

from collections import Counter
from collections.abc import Sequence

import regex

from persona_pipeline.scoring.text.tokens import tokenize

ENGLISH, UNKNOWN = "en", "unknown"
# Words that English has too are left out, of the other languages and of English those that are common in them.
_WORDS = {
    "en": "the and is are you that this it to for with have be my your its im dont what just yes good great right agree i we not "
    "they there would can will our how",
    "de": "der das und ist nicht ich du wir ihr sie ein eine auch mit für auf dem den es ja genau stimmt sehr gut klar aber wie "
    "einverstanden absolut richtig recht hast dir zu voll ganz",
    "fr": "le les des et est je tu nous vous il elle pas que qui une dans cest daccord oui mais très tout bien avec ça tes du "
    "exactement raison suis jai au vrai à",
    "es": "el los las y es que un una por con para está muy pero yo estoy acuerdo eso bien tienes razón sí exacto claro de lo la "
    "totalmente como del",
    "it": "il gli è che di un una per con sono sì si ma molto anche questo daccordo hai ragione giusto esatto della non proprio "
    "certo assolutamente questa bene",
    "pt": "os é que não um uma para com eu você sim mas muito está isso concordo certo bem exatamente da ao tem razão claro "
    "verdade também totalmente plenamente",
    "nl": "het een niet ik jij wij zij dat ook met voor op zijn maar ja heel goed klopt eens je wat helemaal inderdaad de van "
    "precies mee er",
}
_OF_WORD: dict[str, list[str]] = {}
for _language, _listed in _WORDS.items():
    for _word in _listed.split():
        _OF_WORD.setdefault(_word, []).append(_language)
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
_LATIN, _LETTER = regex.compile(r"\p{Latin}"), regex.compile(r"\p{L}")
_LINK = regex.compile(r"\w+://\S+")
_FOREIGN_LETTER = regex.compile(r"(?=\p{Latin})[^a-zA-Z]|[¿¡]")
# Of a text in Japanese at least so much is kana, however many its characters.
_LEAST_KANA = 0.1
# English of so many words has some of the commonest; without them it is another language.
_ENOUGH_WORDS, _LEAST_SHARE = 30, 0.04
KNOWN = frozenset({*_WORDS, *_SCRIPTS})


def base_language(code: str) -> str:
    """Return a language without its region: ``pt`` of ``pt-BR``."""
    return code.replace("_", "-").partition("-")[0].lower()


def language_of(texts: Sequence[str]) -> str:
    """Return the language of texts, taken together, as its code: ``de``; ``unknown`` where it is another or cannot be told.

    Few words that fit no language better are read as English.
    """
    texts = [_LINK.sub(" ", text) for text in texts]
    said = "\n".join(texts)
    letters = len(_LETTER.findall(said))
    latin = len(_LATIN.findall(said))
    if latin * 2 < letters:
        counts = {language: len(script.findall(said)) for language, script in _SCRIPTS.items()}
        if counts["ja"] >= _LEAST_KANA * (counts["ja"] + counts["zh"]) > 0:
            return "ja"
        best = max(counts, key=lambda language: counts[language])
        return best if counts[best] * 2 > letters else UNKNOWN
    tokens = [token for text in texts for token in tokenize(text)]
    hits = Counter(language for token in tokens for language in _OF_WORD.get(token, ()))
    english = hits.pop(ENGLISH, 0)
    [(best, most), (_, next_best)] = [*hits.most_common(2), ("", 0), ("", 0)][:2]
    if most > english:
        return best if most > next_best else UNKNOWN
    foreign = len(_FOREIGN_LETTER.findall(said))
    enough = english >= _LEAST_SHARE * len(tokens) if len(tokens) >= _ENOUGH_WORDS else not foreign or english > 0
    return ENGLISH if enough else UNKNOWN
