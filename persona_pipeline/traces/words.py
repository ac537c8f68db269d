"""Which words of several calls are the same message: each call of a model may be told what others were told too."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
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
        # Of each agent and text: how many messages there are, and which of them stands where.
        self._count: Counter[tuple[str, str]] = Counter()
        self._places: dict[tuple[str, str, Place], int] = {}
        # By spans that nobody below them has repeated yet.
        self._unrepeated: dict[tuple[str, str, str], int] = {}
        self._messages: dict[tuple[str, int], list[Told]] = defaultdict(list)

    def add(self, agent: str, told: Told, above: Collection[str]) -> None:
        """Take words in.

        Args:
            above: the spans above the call.
        """
        text = told.said.text
        number = self._places.get((agent, text, told.place))
        if number is None:
            repeated = next((key for span_id in above if (key := (agent, text, span_id)) in self._unrepeated), None)
            number = self._count[agent, text] if repeated is None else self._unrepeated.pop(repeated)
            if repeated is None:
                self._count[agent, text] += 1
                self._unrepeated[agent, text, told.span_id] = number
            self._places[agent, text, told.place] = number
        self._messages[text, number].append(told)

    def messages(self) -> Iterator[Sequence[Told]]:
        """Yield each message as everybody who was told it has it."""
        yield from self._messages.values()
