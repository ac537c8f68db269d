"""Words of a message in any script: lower-case, no punctuation, scripts without spaces by character."""

import regex

_SCRIPTS_WITHOUT_SPACES = (
    *("Han", "Hiragana", "Katakana", "Bopomofo", "Yi", "Tibetan", "Thai", "Lao", "Khmer", "Myanmar"),
    *("Tai_Le", "New_Tai_Lue", "Tai_Tham", "Tai_Viet", "Javanese", "Balinese"),
)
_UNSPACED = "[{}&&[\\p{{L}}\\p{{N}}]]".format("".join(rf"\p{{scx={name}}}" for name in _SCRIPTS_WITHOUT_SPACES))
# Variation selectors and the keycap sign are marks that belong to emoji, so they go with them.
_DELETED = regex.compile(r"[^\p{L}\p{M}\p{N}_\s]+|[\uFE00-\uFE0F\u20E3]+")
_HAS_UNSPACED = regex.compile(_UNSPACED, regex.V1)
_TOKEN = regex.compile(rf"{_UNSPACED}\p{{M}}*|(?:(?!{_UNSPACED})\S)+", regex.V1)
_SPACED_TOKEN = regex.compile(r"\S+")
# The same deletions for plain ASCII, where a table is ten times as fast as a pattern.
_ASCII_DELETED = {code: None for code in range(128) if _DELETED.match(chr(code))}


def tokenize(text: str) -> list[str]:
    """Return the tokens of a text in order.

    Characters that are neither letters, marks, digits nor underscores are deleted, so ``it's`` is one token
    ``its`` and ``and/or`` is ``andor``. Letters of scripts that put no spaces between words (Chinese, Japanese,
    Thai, Lao, Khmer, Myanmar, Tibetan and others) are one token each, together with their marks. Emoji leave
    nothing. A text without words has no tokens.
    """
    if text.isascii():
        return text.lower().translate(_ASCII_DELETED).split()
    kept = _DELETED.sub("", text.lower())
    pattern = _TOKEN if _HAS_UNSPACED.search(kept) else _SPACED_TOKEN
    return pattern.findall(kept)
