"""What a gate remembers between attempts at one message: the rejected ones, and answers that may be asked for once more."""

from collections import OrderedDict
from dataclasses import replace
from typing import TypeVar

from persona_pipeline.corrections.decision import GateDecision
from persona_pipeline.corrections.records import PriorAttempts

_MOST_OPEN_ACTIONS = 10_000
_MOST_REPEATABLE = 1000

Place = tuple[str, str | None, str | None]
Key = TypeVar("Key")
Value = TypeVar("Value")


class Remembered:
    """The actions under way at one gate, by agent and place, and the newest answers; the oldest are forgotten."""

    def __init__(self) -> None:
        self._open: OrderedDict[Place, tuple[str, PriorAttempts]] = OrderedDict()
        self._answered: OrderedDict[tuple[str, str, int, int], GateDecision] = OrderedDict()

    def answer(self, agent_id: str, action_id: str | None, attempt: int, text: str) -> GateDecision | None:
        """Return the decision that this attempt already has, once."""
        # An agent that never counts its attempts must not be asked for the same text for ever.
        found = self._answered.pop((agent_id, action_id, attempt, hash(text)), None) if action_id else None
        return replace(found, text=text) if found else None

    def keep_answer(self, agent_id: str, decision: GateDecision, text: str) -> None:
        """Keep a decision for the same attempt delivered once more."""
        self._answered[agent_id, decision.action_id, decision.attempt, hash(text)] = replace(decision, text="")
        _drop_oldest(self._answered, _MOST_REPEATABLE)

    def prior(self, place: Place, action_id: str | None, attempt: int) -> tuple[str | None, PriorAttempts]:
        """Return the action that an attempt belongs to, and what came before it."""
        known = self._open.get(place)
        if known and (action_id == known[0] or (action_id is None and attempt > 1)):
            return known
        return action_id, PriorAttempts()

    def decided(self, place: Place, decision: GateDecision, first_text: str) -> None:
        """Remember an action that goes on, forget one that has ended."""
        if decision.sends:
            self._open.pop(place, None)
            return
        self._open[place] = (decision.action_id, PriorAttempts(decision.attempt, first_text))
        _drop_oldest(self._open, _MOST_OPEN_ACTIONS)


def _drop_oldest(entries: OrderedDict[Key, Value], most: int) -> None:
    while len(entries) > most:
        entries.popitem(last=False)
