"""Who spent what: tokens and dollars by mechanism, agent and dimension."""

from typing import Literal

from persona_pipeline.judging.questions import Question
from persona_pipeline.judging.verdict import Usage

Party = Literal["mechanism", "agent_id", "dimension"]


class UsageLedger:
    """Usage of the calls that were made, summed by whom they are charged to."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, str, str], Usage] = {}

    def add(self, question: Question, usage: Usage) -> None:
        key = (question.mechanism, question.agent_id, question.dimension)
        self._sums[key] = self._sums.get(key, Usage()) + usage

    @property
    def total(self) -> Usage:
        return sum(self._sums.values(), Usage())

    def by(self, party: Party) -> dict[str, Usage]:
        """Return the sums by mechanism, agent or dimension, sorted; ``""`` holds what belongs to none."""
        place = ("mechanism", "agent_id", "dimension").index(party)
        sums: dict[str, Usage] = {}
        for key, usage in self._sums.items():
            sums[key[place]] = sums.get(key[place], Usage()) + usage
        return dict(sorted(sums.items()))
