"""Repeated lines of an agent within a conversation: each line with the earlier one it repeats.

A line is compared with every earlier line of the agent by their shared words, weighted by rarity. The similarity is a cosine, with
the weight of some unknown words added to each side: a short line must be equal, a long one may differ in some words. The method
does not depend on the language: words are cut to their first letters, which removes most endings.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import Any

import numpy as np
import regex

from persona_pipeline.base.text import shortened
from persona_pipeline.scoring.text.repetition import (
    FEWEST_USUAL,
    KEPT,
    MOST_USUAL,
    USUAL_SHARE,
    Words,
    exempt_phrases,
    without,
)
from persona_pipeline.scoring.text.tokens import tokenize
from persona_pipeline.world.models import Message
from persona_pipeline.world.propositions.models import Catchphrase

# Number of earlier own messages of a conversation to compare with, first letters of a word that count, and the number of unknown
# words added to every line.
LOOK_BACK, _LETTERS, _UNKNOWN = 200, 4, 4.0
# Limit of strength if the agent's usual level is unknown, and lowest limit if it is known.
LIMIT, LEAST = 0.30, 0.25
# A sentence ends at a mark followed by a blank, in scripts without blanks at the mark itself, and at a line break.
SENTENCE_END = regex.compile(r"(?<=[\p{Sentence_Terminal}…][\p{Pe}\p{Pf}\"']*)\s+|(?<=[。！？｡])|\n+")
# Most compared lines of a message, not counting the whole message, and lines compared in one batch.
_MOST_LINES, _AT_ONCE = 40, 128

Line = tuple[str, frozenset[str]]


@dataclass(frozen=True)
class SaidAgain:
    """A message that repeats an earlier one of its conversation, by their places (from 0).

    Attributes:
        line, earlier_line: the two sentences, or the whole messages if those are more similar.
        strength: their similarity, 0-1.
        limit: highest strength that is usual.
    """

    place: int
    earlier: int
    line: str
    earlier_line: str
    strength: float
    limit: float


def find_said_again(
    said: Sequence[tuple[str, str]], catchphrases: Sequence[Catchphrase] = (), *, since: int = 0, known: int = 0
) -> list[SaidAgain]:
    """Return the messages that repeat an earlier line of their conversation, oldest first, with the most similar earlier line.

    At most one in a hundred of the agent's earlier messages exceed the limit; with fewer than 100 of them it is the
    same for all agents. Catchphrases whose rate (uses a message) is within its range are ignored.

    Args:
        said: an agent's own messages as pairs of conversation and text, oldest first.
        since: place of the first message to check.
        known: messages before this place define the usual level; the last 400 of them count.
    """
    exempt = tuple(exempt_phrases([text for _, text in said], catchphrases).values())
    lines = _SaidLines([_read(text, exempt) for _, text in said], [conversation for conversation, _ in said])
    found = lines.nearest(range(since, len(said)))
    if not found:
        return []
    usual = range(max(0, known - MOST_USUAL), known)
    limit = LIMIT
    if len(usual) >= FEWEST_USUAL:
        strengths = {item.place: item.strength for item in lines.nearest(usual)}
        limit = max(LEAST, sorted(strengths.get(place, 0.0) for place in usual)[-1 - int(USUAL_SHARE * len(usual))])
    return [replace(item, limit=limit) for item in found if item.strength > limit]


@lru_cache(maxsize=KEPT)
def _read(message: str, exempt: tuple[Words, ...]) -> tuple[Line, ...]:
    """Return the lines of a message with their distinct words; a message with two lines or more adds the whole as the last one."""
    lines: dict[frozenset[str], str] = {}
    for line in filter(None, SENTENCE_END.split(message)):
        if words := _words(line, exempt):
            lines.setdefault(words, line.strip())
    # Every line is compared with every other, so a message of thousands of lines would take too long.
    shown = [(line, words) for words, line in islice(lines.items(), _MOST_LINES)]
    if len(lines) > 1:
        shown.append((message.strip(), frozenset[str]().union(*lines)))
    return tuple(shown)


def _words(line: str, exempt: tuple[Words, ...]) -> frozenset[str]:
    parts = without(tuple(tokenize(line)), exempt)
    # Numbers are not cut, because they have no endings.
    return frozenset(token if token[-1].isdigit() else token[:_LETTERS] for part in parts for token in part)


class _SaidLines:
    """The lines of an agent's messages with their weighted words.

    Weights of words go from 0 (in every message) to 1 (in two at most); equal messages count once. ``turns``: number of the
    line's message in its conversation. The offset between conversations exceeds ``LOOK_BACK``, so they are never compared.
    """

    def __init__(self, read: Sequence[tuple[Line, ...]], conversations: Sequence[str]) -> None:
        from scipy import sparse

        spoken = {conversation: number for number, conversation in enumerate(dict.fromkeys(conversations))}
        turns = Counter[str]()
        found: list[tuple[int, int, Line]] = []
        for place, (lines, conversation) in enumerate(zip(read, conversations, strict=True)):
            turn = spoken[conversation] * (len(read) + LOOK_BACK) + turns[conversation]
            found += [(turn, place, line) for line in lines]
            turns[conversation] += 1
        found.sort(key=lambda item: item[0])
        self._lines = [line for _, _, (line, _) in found]
        self._turns = np.array([turn for turn, _, _ in found], dtype=np.int64)
        self._places = np.array([place for _, place, _ in found], dtype=np.int64)
        said = {lines[-1][1] for lines in read if lines}
        holders, most = Counter(word for words in said for word in words), max(math.log((len(said) + 1) / 2), 1e-9)
        columns = {word: number for number, word in enumerate(holders)}
        weights = np.maximum(0.0, np.log((len(said) + 1) / np.maximum(list(holders.values()), 2)) / most)
        words = np.array([columns[word] for _, _, (_, words) in found for word in words], dtype=np.int64)
        starts = np.cumsum([0, *(len(words) for _, _, (_, words) in found)])
        self._words = sparse.csr_array((weights[words], words, starts), shape=(len(found), len(columns)))
        self._mass = self._words.power(2).sum(axis=1) + _UNKNOWN

    def nearest(self, places: range) -> list[SaidAgain]:
        """Return for each message in ``places`` the earlier line most similar to one of its lines, if stronger than ``LEAST``."""
        found: dict[int, tuple[float, int, int]] = {}
        rows = np.flatnonzero((self._places >= places.start) & (self._places < places.stop))
        for start in range(0, len(rows), _AT_ONCE):
            own = rows[start : start + _AT_ONCE]
            lowest, strengths = self._alike(own)
            for row, column in np.argwhere(strengths > LEAST).tolist():
                place, line = int(self._places[own[row]]), lowest + column
                # With equal strength the earliest line wins.
                found[place] = max(found.get(place, (0.0, 0, 0)), (float(strengths[row, column]), -line, int(own[row])))
        return [
            SaidAgain(place, int(self._places[-line]), self._lines[own], self._lines[-line], strength, LEAST)
            for place, (strength, line, own) in sorted(found.items())
        ]

    def _alike(self, own: Any) -> tuple[int, Any]:
        """Return a line, and the similarity (0-1) of own lines to it and those after it; 0 beyond ``LOOK_BACK``."""
        lowest, end = int(np.searchsorted(self._turns, self._turns[own[0]] - LOOK_BACK)), own[-1]
        shared = (self._words[own] @ self._words[lowest:end].T).toarray()
        back = self._turns[own][:, None] - self._turns[None, lowest:end]
        alike = shared / np.sqrt(self._mass[own][:, None] * self._mass[None, lowest:end])
        return lowest, np.where((back > 0) & (back <= LOOK_BACK), alike, 0)


# Highest p-value and lowest number of messages for "often"; numbers of kept and of shown pairs, and shown characters of
# a line.
_CHANCE, _FEWEST, _MOST_KEPT, _MOST_SHOWN, _MOST_CHARACTERS = 0.003, 3, 20, 2, 80


def said_again_statistics(
    earlier: Sequence[Message], messages: Sequence[Message], catchphrases: Sequence[Catchphrase] = ()
) -> dict[str, Any]:
    """Return the repeated lines of an agent as plain JSON: both lines of each pair, and whether they are more than before.

    With 200 messages or more, but fewer than 100 before the window, the first half of all counts as before.

    Args:
        earlier: the agent's own messages before the window, oldest first.
        messages: the agent's own messages in the window, oldest first.
    """
    everything = [*earlier[-MOST_USUAL - LOOK_BACK :], *messages]
    since = len(everything) - len(messages)
    if since < FEWEST_USUAL and len(everything) >= 2 * FEWEST_USUAL:
        since = len(everything) // 2
    said = find_said_again([(m.conversation, m.text) for m in everything], catchphrases, known=since)
    found, count = [item for item in said if item.place >= since], len(everything) - since
    kept = sorted(sorted(found, key=lambda item: -item.strength)[:_MOST_KEPT], key=lambda item: item.place)
    return {
        "messages": count,
        "said_again": len(found),
        "before": {"messages": since, "said_again": len(said) - len(found)},
        "often": is_often(len(found), count, len(said) - len(found), since),
        "lines": [
            {
                "id": everything[item.place].id,
                "line": item.line,
                "earlier_id": everything[item.earlier].id,
                "earlier_line": item.earlier_line,
                "strength": round(item.strength, 3),
            }
            for item in kept
        ],
    }


def pair_text(facts: Mapping[str, Any]) -> str:
    """Return both lines of a pair, at most 80 characters each, with the ids of their messages."""
    line, earlier = (repr(shortened(facts[name], _MOST_CHARACTERS - 1)) for name in ("line", "earlier_line"))
    return f"{line} ({facts['id']}) after {earlier} ({facts['earlier_id']})"


def is_often(found: int, messages: int, found_before: int, before: int) -> bool:
    """Return whether significantly more messages repeat a line than before.

    The p-value under the beta-binomial predictive distribution of the earlier counts (Jeffreys' prior) must be below 0.003.
    Without earlier messages the result is always False.
    """
    if found < _FEWEST:
        return False
    # Uses the special function, because importing scipy.stats takes longer than an evaluation.
    a, b = found_before + 0.5, before - found_before + 0.5
    chances = (
        _log_beta(count + a, messages - count + b) - _log_beta(messages - count + 1, count + 1)
        for count in range(found, messages + 1)
    )
    return sum(math.exp(chance - _log_beta(a, b)) for chance in chances) / (messages + 1) < _CHANCE


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def said_again_text(statistics: Mapping[str, Any]) -> str:
    """Return the number of messages that repeat a line, with the most similar pairs (at most two); "" without any."""
    if not statistics["said_again"]:
        return ""
    lines = sorted(statistics["lines"], key=lambda item: -item["strength"])[:_MOST_SHOWN]
    shown = ", ".join(map(pair_text, lines))
    return f"; {statistics['said_again']} of {statistics['messages']} messages say again what was said: {shown}"
