"""Which words of several calls are the same message: each call of a model may be told what others were told too."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from persona_pipeline.traces.contents import ASSISTANT, Said


class Place(NamedTuple):
    """Where words stand in a call's input: behind which history, by its digest (None: none), and as which of their like."""

    before: str | None
    nth: int


@dataclass(frozen=True)
class Told:
    """Words that a call was told.

    Attributes:
        number: counts the words of the call from 0.
    """

    span_id: str
    said: Said
    number: int
    place: Place


@dataclass
class _Word:
    """A message, and where one agent's calls have it."""

    told: list[Told] = field(default_factory=list)


def told_by(span_id: str, inputs: Iterable[Said]) -> Iterator[Told]:
    """Yield the words in a call's input."""
    listed = list(inputs)
    before = next((said.text for said in listed if said.role == ASSISTANT), None)
    count: Counter[str] = Counter()
    for number, said in enumerate(said for said in listed if said.role != ASSISTANT):
        yield Told(span_id, said, number, Place(before, count[said.text]))
        count[said.text] += 1


class Words:
    """The words of a conversation in a trace, gathered call by call in the order of time.

    Of one agent, words are the same behind the same history, and where a span repeats what stands on one above it. What several
    agents are told, each with a history of its own, is the same message as often as each of them is told it.
    """

    def __init__(self) -> None:
        self._heard: dict[tuple[str, str], list[_Word]] = defaultdict(list)

    def add(self, agent: str, told: Told, above: Collection[str]) -> None:
        """Take words in.

        Args:
            above: the spans above the call.
        """
        words = self._heard[agent, told.said.text]
        word = next((word for word in words if any(known.place == told.place for known in word.told)), None)
        if word is None:
            # A span that nobody below it has repeated yet.
            word = next((word for word in words if len(word.told) == 1 and word.told[0].span_id in above), None)
        if word is None:
            words.append(word := _Word())
        word.told.append(told)

    def messages(self) -> Iterator[Sequence[Told]]:
        """Yield each message as everybody who was told it has it, the first first."""
        together: dict[tuple[str, int], list[Told]] = defaultdict(list)
        for (_, text), words in self._heard.items():
            for number, word in enumerate(words):
                together[text, number] += word.told
        yield from together.values()
