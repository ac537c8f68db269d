"""Budget of the gate for a message of a client, and its spending."""

import time
from dataclasses import dataclass, field

from persona_pipeline.judging.money import estimated_tokens


@dataclass(frozen=True)
class MessageBudget:
    """Limits of a message. A message that reaches one is sent as it is and counted as ``budget``.

    Attributes:
        rewrites: requests to the upstream after the client's own.
        usd: price of the judge's calls in US dollars, as far as it is known.
        seconds: time for checks and rewrites together.
        size: bytes of an answer that are kept in memory.
    """

    rewrites: int = 3
    usd: float = 0.05
    seconds: float = 60.0
    size: int = 8 * 1024 * 1024


class BudgetSpentError(Exception):
    """The message has no budget left for another answer."""


@dataclass
class Spending:
    """The part of its budget that a message has used.

    Attributes:
        most_tokens: the client's limit, for the answer that is sent and all rewrites together; None: no limit.
        wasted: tokens of rewrites that were not sent.
        counted: whether the message was counted as unchecked.
    """

    budget: MessageBudget
    most_tokens: int | None = None
    rewrites: int = 0
    usd: float = 0.0
    wasted: int = 0
    counted: bool = False
    _began: float = field(default_factory=time.monotonic)

    def begin(self) -> None:
        """Start the clock: the answer is there, and from now on the gate holds it."""
        self._began = time.monotonic()

    @property
    def seconds_left(self) -> float:
        """Seconds for which the message may still be held."""
        return self._began + self.budget.seconds - time.monotonic()

    @property
    def allows_check(self) -> bool:
        """Whether another answer may be judged."""
        return self.usd < self.budget.usd and self.seconds_left > 0

    def take_rewrite(self, written: str) -> int | None:
        """Take one rewrite from the budget and return the tokens it may have; None: the client sets no limit.

        ``written``: the rejected answer. Raises ``BudgetSpentError``: no rewrite is left, or no room for an answer of that length.
        """
        if self.rewrites >= self.budget.rewrites or not self.allows_check:
            raise BudgetSpentError
        tokens = estimated_tokens(written)
        self.wasted += tokens if self.rewrites else 0
        left = None
        if self.most_tokens is not None:
            left = self.most_tokens - self.wasted
            # An estimate may be above what the client allows.
            if left < min(tokens, self.most_tokens):
                raise BudgetSpentError
        self.rewrites += 1
        return left
