"""Which phrases do messages share? Those of as many words as can be, and the words that several begin with."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

OPENER_LENGTH = 3


@dataclass(frozen=True)
class SharedPhrase:
    """A phrase (tokens joined by a space), how many messages hold it, and its length in tokens."""

    phrase: str
    messages: int
    length: int


def maximal_repeated(corpus: Sequence[Sequence[str]], n: int = 3) -> list[SharedPhrase]:
    """Return the phrases of ``n`` or more tokens that two or more messages, given as tokens, share, and no parts of them.

    Most messages first, then longest, then in order of first occurrence. Repetition inside one message does
    not count.

    Raises:
        ValueError: ``n`` is below 1.
    """
    if n < 1:
        raise ValueError(f"n must be at least 1, not {n}")
    automaton = _SuffixAutomaton()
    for tokens in corpus:
        automaton.add(tokens)
    holders = automaton.holders(corpus)
    repeated = [count >= 2 for count in holders]
    extended = [False] * len(holders)
    for state, following in enumerate(automaton.following):
        if repeated[state]:
            extended[automaton.link[state]] = True
        if any(repeated[target] for target in following.values()):
            extended[state] = True
    found = [
        (
            automaton.end[state],
            SharedPhrase(" ".join(automaton.phrase(state, corpus)), holders[state], length),
        )
        for state, length in enumerate(automaton.length)
        if state and repeated[state] and not extended[state] and length >= n
    ]
    found.sort(key=lambda item: (-item[1].messages, -item[1].length, item[0]))
    return [phrase for _, phrase in found]


def shared_openers(corpus: Sequence[Sequence[str]], length: int = OPENER_LENGTH) -> list[SharedPhrase]:
    """Return the first ``length`` tokens that begin two or more messages, given as tokens, most frequent first.

    Messages of fewer tokens have no opener.
    """
    openers = Counter(" ".join(tokens[:length]) for tokens in corpus if len(tokens) >= length > 0)
    return [SharedPhrase(opener, count, length) for opener, count in openers.most_common() if count > 1]


class _SuffixAutomaton:
    """Generalised suffix automaton: every phrase of a corpus in linear space (Blumer et al., 1985)."""

    def __init__(self) -> None:
        self.length, self.link = [0], [-1]
        self.following: list[dict[str, int]] = [{}]
        # (message, index after the last token) of the first occurrence.
        self.end: list[tuple[int, int]] = [(0, 0)]
        self.added = 0

    def add(self, tokens: Sequence[str]) -> None:
        last = 0
        for index, token in enumerate(tokens):
            last = self._extend(last, token, (self.added, index + 1))
        self.added += 1

    def _new(self, length: int, link: int, following: dict[str, int], end: tuple[int, int]) -> int:
        self.length.append(length)
        self.link.append(link)
        self.following.append(following)
        self.end.append(end)
        return len(self.length) - 1

    def _extend(self, last: int, token: str, end: tuple[int, int]) -> int:
        known = self.following[last].get(token)
        if known is not None:
            return known if self.length[known] == self.length[last] + 1 else self._split(last, token, known)
        state = self._new(self.length[last] + 1, 0, {}, end)
        while last != -1 and token not in self.following[last]:
            self.following[last][token] = state
            last = self.link[last]
        if last != -1:
            known = self.following[last][token]
            exact = self.length[known] == self.length[last] + 1
            self.link[state] = known if exact else self._split(last, token, known)
        return state

    def _split(self, last: int, token: str, known: int) -> int:
        clone = self._new(self.length[last] + 1, self.link[known], dict(self.following[known]), self.end[known])
        self.link[known] = clone
        while last != -1 and self.following[last].get(token) == known:
            self.following[last][token] = clone
            last = self.link[last]
        return clone

    def holders(self, corpus: Sequence[Sequence[str]]) -> list[int]:
        """Return for each state in how many messages its phrases stand."""
        counts = [0] * len(self.length)
        seen = [-1] * len(self.length)
        for number, tokens in enumerate(corpus):
            state = 0
            for token in tokens:
                state = self.following[state][token]
                visited = state
                while visited > 0 and seen[visited] != number:
                    seen[visited] = number
                    counts[visited] += 1
                    visited = self.link[visited]
        return counts

    def phrase(self, state: int, corpus: Sequence[Sequence[str]]) -> Sequence[str]:
        message, end = self.end[state]
        return corpus[message][end - self.length[state] : end]
