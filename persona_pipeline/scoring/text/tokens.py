"""Words of messages in any script: lower-case, no punctuation, scripts without spaces by character; how rich they are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean

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


_SENTENCE_END = regex.compile(r"[.!?]+")
# ASCII symbols are on a keyboard's punctuation keys and count; the underscore is a word character.
_MOST_STRETCHES = 20
_PUNCTUATION = regex.compile(r"[[\p{P}--_]$+<=>^`|~]", regex.V1)


@dataclass(frozen=True)
class VocabularyStats:
    """Of one agent's messages.

    Attributes:
        unique_word_ratio: distinct tokens / tokens, 0-1.
        average_sentence_length: tokens / sentence, sentences end at runs of ``.``, ``!`` and ``?``.
        punctuation_density: punctuation marks / characters of the messages joined by a space, 0-1.
    """

    unique_word_ratio: float
    average_sentence_length: float
    punctuation_density: float


def vocabulary_stats(messages: Sequence[str]) -> VocabularyStats:
    """Return the vocabulary statistics of some messages; all 0 when they hold no word."""
    text = " ".join(messages)
    tokens = tokenize(text)
    if not tokens:
        return VocabularyStats(0.0, 0.0, 0.0)
    sentences = sum(1 for sentence in _SENTENCE_END.split(text) if tokenize(sentence))
    return VocabularyStats(
        unique_word_ratio=len(set(tokens)) / len(tokens),
        # A lone dot inside a word leaves no sentence empty-handed, so there is always at least one.
        average_sentence_length=len(tokens) / max(sentences, 1),
        punctuation_density=len(_PUNCTUATION.findall(text)) / len(text),
    )


def pairwise_similarity(agents: Mapping[str, Sequence[str]]) -> dict[tuple[str, str], float]:
    """Return the Jaccard similarity (0-1) of each two agents' vocabularies, keyed by sorted pair of names.

    How often a word is used does not matter. A pair without any word is 0.
    """
    words = {
        agent: {token for message in messages for token in tokenize(message)} for agent, messages in agents.items()
    }
    similarities = {}
    for first, second in combinations(sorted(agents), 2):
        union = len(words[first] | words[second])
        similarities[first, second] = len(words[first] & words[second]) / union if union else 0.0
    return similarities


def sampled_similarity(agents: Mapping[str, Sequence[str]], tokens: int = 50) -> float | None:
    """Return the mean over pairs of the Jaccard similarity (0-1) of equally long stretches of their messages.

    The longer two texts, the more words they share, so each is cut into stretches of ``tokens`` tokens (of what the shorter one
    has, if that is less), and every stretch of one is compared with every stretch of the other, up to 20 of each. None below two
    agents with words.
    """
    spoken = {name: [token for text in texts for token in tokenize(text)] for name, texts in agents.items()}
    spoken = {name: found for name, found in spoken.items() if found}
    means = []
    for first, second in combinations(sorted(spoken), 2):
        length = min(tokens, len(spoken[first]), len(spoken[second]))
        ours, theirs = (_stretches(spoken[name], length) for name in (first, second))
        means.append(fmean(len(a & b) / len(a | b) for a in ours for b in theirs))
    return fmean(means) if means else None


def _stretches(tokens: Sequence[str], length: int) -> list[set[str]]:
    count = min(len(tokens) // length, _MOST_STRETCHES)
    return [set(tokens[index * length : (index + 1) * length]) for index in range(count)]
