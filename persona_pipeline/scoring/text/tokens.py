"""Tokens of messages in any script: lower-case words without punctuation, or characters in scripts without spaces. Also vocabulary
statistics, shared words and n-grams, and recognition of the language.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from heapq import nlargest
from itertools import chain, combinations
from pathlib import Path
from statistics import fmean

import numpy as np
import regex

from persona_pipeline.base.errors import ConfigError, Problem

_SCRIPTS_WITHOUT_SPACES = (
    *("Han", "Hiragana", "Katakana", "Bopomofo", "Yi", "Tibetan", "Thai", "Lao", "Khmer", "Myanmar"),
    *("Tai_Le", "New_Tai_Lue", "Tai_Tham", "Tai_Viet", "Javanese", "Balinese"),
)
_UNSPACED = "[{}&&[\\p{{L}}\\p{{N}}]]".format("".join(rf"\p{{scx={name}}}" for name in _SCRIPTS_WITHOUT_SPACES))
# Variation selectors and the keycap sign are marks of emoji, so they are deleted with them.
_DELETED = regex.compile(r"[^\p{L}\p{M}\p{N}_\s]+|[\uFE00-\uFE0F\u20E3]+")
_HAS_UNSPACED = regex.compile(_UNSPACED, regex.V1)
_TOKEN = regex.compile(rf"{_UNSPACED}\p{{M}}*|(?:(?!{_UNSPACED})\S)+", regex.V1)
_SPACED_TOKEN = regex.compile(r"\S+")
# The same deletions for plain ASCII, where a table is ten times faster than a pattern.
_ASCII_DELETED = {code: None for code in range(128) if _DELETED.match(chr(code))}


def tokenize(text: str) -> list[str]:
    """Return the tokens of a text in order.

    Characters that are neither letters, marks, digits nor underscores are deleted, so ``it's`` is one token
    ``its`` and ``and/or`` is ``andor``. Letters of scripts that put no spaces between words (Chinese, Japanese,
    Thai, Lao, Khmer, Myanmar, Tibetan and others) are one token each, together with their marks. Emoji give no
    tokens. A text without words has no tokens.
    """
    if text.isascii():
        return text.lower().translate(_ASCII_DELETED).split()
    kept = _DELETED.sub("", text.lower())
    pattern = _TOKEN if _HAS_UNSPACED.search(kept) else _SPACED_TOKEN
    return pattern.findall(kept)


def is_unspaced(token: str) -> bool:
    """Return whether a token is one character of a script without spaces between words."""
    return _HAS_UNSPACED.match(token) is not None


# In Latin letters these are the full stop, ! and ?.
_SENTENCE_END = regex.compile(r"\p{Sentence_Terminal}+")
_MOST_STRETCHES = 20
# ASCII symbols are on a keyboard's punctuation keys and count; the underscore is a word character.
_PUNCTUATION = regex.compile(r"[[\p{P}--_]$+<=>^`|~]", regex.V1)


@dataclass(frozen=True)
class VocabularyStats:
    """Vocabulary statistics of an agent's messages.

    Attributes:
        unique_word_ratio: distinct tokens / tokens, 0-1.
        average_sentence_length: tokens / sentence, sentences end at runs of ``.``, ``!`` and ``?`` or of another script's marks
            (``。``, ``؟``).
        punctuation_density: punctuation marks / characters of the messages joined by a space, 0-1.
    """

    unique_word_ratio: float
    average_sentence_length: float
    punctuation_density: float


def vocabulary_stats(messages: Sequence[str]) -> VocabularyStats:
    """Return the vocabulary statistics of messages; all 0 without words."""
    text = " ".join(messages)
    tokens = tokenize(text)
    if not tokens:
        return VocabularyStats(0.0, 0.0, 0.0)
    sentences = sum(1 for sentence in _SENTENCE_END.split(text) if tokenize(sentence))
    return VocabularyStats(
        unique_word_ratio=len(set(tokens)) / len(tokens),
        # The text has tokens, so it has at least one sentence, even if a lone dot is inside a word.
        average_sentence_length=len(tokens) / max(sentences, 1),
        punctuation_density=len(_PUNCTUATION.findall(text)) / len(text),
    )


def pairwise_similarity(agents: Mapping[str, Sequence[str]]) -> dict[tuple[str, str], float]:
    """Return the Jaccard similarity (0-1) of each two agents' vocabularies, keyed by sorted pair of names.

    The frequency of a word does not matter. A pair without any word is 0.
    """
    words = {
        agent: {token for message in messages for token in tokenize(message)} for agent, messages in agents.items()
    }
    return {(a, b): overlap(words[a], words[b]) for a, b in combinations(sorted(agents), 2)}


def sampled_similarity(agents: Mapping[str, Sequence[str]], tokens: int = 50) -> float | None:
    """Return the mean over pairs of agents of the Jaccard similarity (0-1) of equally long stretches of their messages.

    Longer texts share more words, so each text is cut into stretches of ``tokens`` tokens (or the length of the shorter text, if
    that is less). Every stretch of one is compared with every stretch of the other, up to 20 of each. None below two agents with
    words.
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


def extract_ngrams(text: str, n: int) -> list[str]:
    """Return the distinct n-grams (``n`` at least 1) of a text in order of first occurrence, tokens joined by a space."""
    if n < 1:
        raise ValueError(f"n must be at least 1, not {n}")
    tokens = tokenize(text)
    return list(dict.fromkeys(" ".join(tokens[i : i + n]) for i in range(len(tokens) - n + 1)))


def overlap(a: Collection[str], b: Collection[str]) -> float:
    """Return the Jaccard similarity (0-1) of two collections as sets; 0.0 when both are empty."""
    first, second = set(a), set(b)
    union = len(first | second)
    return len(first & second) / union if union else 0.0


def corpus_repetition(messages: Sequence[str], n: int) -> float:
    """Return the mean Jaccard similarity (0-1) of the n-gram sets of all pairs of messages.

    Fewer than two messages give 0.0, a pair without n-grams counts 0. Time grows with the square of the number of different
    messages that share an n-gram.
    """
    pairs = len(messages) * (len(messages) - 1) / 2
    counts = Counter(frozenset(extract_ngrams(message, n)) for message in messages)
    counts.pop(frozenset(), None)
    sizes, weights = (np.fromiter(values, float) for values in (map(len, counts), counts.values()))
    holders = defaultdict[str, list[int]](list)
    for number, grams in enumerate(counts):
        for gram in grams:
            holders[gram].append(number)
    shared = {gram: np.array(numbers) for gram, numbers in holders.items() if len(numbers) > 1}
    # First equal sets, then each set with those that share an n-gram with it. Every pair counts twice.
    total = float((weights * (weights - 1)).sum())
    for number, grams in enumerate(counts):
        if others := [shared[gram] for gram in grams if gram in shared]:
            common = np.bincount(np.concatenate(others), minlength=len(sizes))
            common[number] = 0
            total += weights[number] * float((weights * common / (sizes + sizes[number] - common)).sum())
    return total / 2 / pairs if pairs else 0.0


OPENER_LENGTH = 3
# Most tokens of a repeated phrase.
LONGEST_PHRASE = 40


@dataclass(frozen=True)
class SharedPhrase:
    """A phrase (tokens joined by a space), the number of messages that contain it, and its length in tokens."""

    phrase: str
    messages: int
    length: int


def maximal_repeated(corpus: Sequence[Sequence[str]], n: int = 3) -> list[SharedPhrase]:
    """Return the maximal phrases of ``n`` or more tokens that two or more messages, given as tokens, share.

    Most messages first, then longest, then in order of first occurrence. Repetition inside one message does
    not count. Of a phrase of more than ``LONGEST_PHRASE`` tokens its beginning is returned.

    Raises:
        ValueError: ``n`` is below 1.
    """
    if n < 1:
        raise ValueError(f"n must be at least 1, not {n}")
    # The empty token after each message ends its phrases.
    tokens = [token for own in corpus for token in (*own, "")]
    owners = [number for number, own in enumerate(corpus) for _ in range(len(own) + 1)]
    # The longest shared phrase at each place, and the places of each shared phrase by its length.
    longest, by_length = [0] * len(tokens), [[list(range(len(tokens)))]]
    for length in range(1, LONGEST_PHRASE + 1):
        longer = defaultdict[tuple[int, str], list[int]](list)
        for number, places in enumerate(by_length[-1]):
            for place in places:
                if token := tokens[place + length - 1]:
                    longer[number, token].append(place)
        by_length.append([places for places in longer.values() if len({owners[place] for place in places}) > 1])
        for place in chain.from_iterable(by_length[-1]):
            longest[place] = length
    found = list[tuple[int, SharedPhrase]]()
    for length in range(n, LONGEST_PHRASE + 1):
        for places in (places for places in by_length[length] if _is_maximal(places, length, longest)):
            phrase = " ".join(tokens[places[0] : places[0] + length])
            found.append((places[0], SharedPhrase(phrase, len({owners[place] for place in places}), length)))
    found.sort(key=lambda item: (-item[1].messages, -item[1].length, item[0]))
    return [phrase for _, phrase in found]


def _is_maximal(places: Sequence[int], length: int, longest: Sequence[int]) -> bool:
    """Return whether a phrase is in no longer shared phrase, at its start or after it; of the longest ones, the first."""
    before = [longest[place - 1] for place in places]
    if length == LONGEST_PHRASE:
        return min(before) < length
    return max(before) <= length and all(longest[place] == length for place in places)


def shared_openers(corpus: Sequence[Sequence[str]], length: int = OPENER_LENGTH) -> list[SharedPhrase]:
    """Return the first ``length`` tokens that begin two or more messages, given as tokens, most frequent first.

    Shorter messages have no opener.
    """
    openers = Counter(" ".join(tokens[:length]) for tokens in corpus if len(tokens) >= length > 0)
    return [SharedPhrase(opener, count, length) for opener, count in openers.most_common() if count > 1]


def read_sections(path: Path, names: Collection[str]) -> list[tuple[str, str]]:
    """Return the lines of a text file, each with the name of its section; a line ``# name`` begins a section.

    Args:
        names: names of sections; a name in angle brackets is also one. Other lines that begin with ``# `` are comments.

    Raises:
        ConfigError: a line is in no section.
    """
    found, section = [], ""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        text, title = line.strip(), line.removeprefix("# ").strip()
        if line.startswith("# "):
            section = title if title in names or (title[:1], title[-1:]) == ("<", ">") else section
        elif text and not section:
            known = ", ".join(f"'# {name}'" for name in names)
            raise ConfigError(Problem(f"this line is in no section; begin one with a line {known}", str(path), number))
        elif text:
            found.append((section, text))
    return found


ENGLISH, UNKNOWN = "en", "unknown"
_WORDS = Path(__file__).parent / "data" / "common_words.txt"
# A language is recognized by script, and in Latin letters by common words and rare letters. The order matters: Japanese also uses
# Han, mixed with kana.
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
# Minimum share of kana in a Japanese text of any length; maximum share of strange letters.
_LEAST_KANA, _MOST_STRANGE = 0.1, 0.02
# A recognized language needs this ratio of weights to the next one, and this share of all words; else it is unknown.
_LEAST_LEAD, _LEAST_SHARE, _ENOUGH_WORDS = 1.2, 0.2, 30
_TELLING_WORDS = 3


def base_language(code: str) -> str:
    """Return a language without its region: ``pt`` of ``pt-BR``."""
    return code.replace("_", "-").partition("-")[0].lower()


def language_of(texts: Sequence[str]) -> str:
    """Return the code of the common language of texts, such as ``de``; ``unknown`` if it is not recognized.

    A few words that fit no language count as English.
    """
    return _told(texts) or ENGLISH


def _told(texts: Sequence[str]) -> str:
    """Return the language of texts; "" if there are few words and they fit no language."""
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
    """Return the languages of a fifth of the texts or more (two at least), most first; that of all if most are too short."""
    alone = Counter(map(_alone, texts))
    found = [name for name, count in alone.most_common() if name != UNKNOWN and count >= max(2, len(texts) / 5)]
    known = sum(alone[name] for name in found)
    return found if known * 2 > len(texts) else list(dict.fromkeys([language_of(texts), *found]))


# Each new message of a channel causes a new check of the others.
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
    """Return the codes of the languages that can be recognized."""
    return frozenset({*_SCRIPTS, *_words()})
