"""What the gate may spend on one message of a client, and what it has spent."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from persona_pipeline.judging.money import estimated_tokens


@dataclass(frozen=True)
class MessageBudget:
    """What the gate may spend on one message of a client; what comes after that goes out as it is, counted ``budget``.

    Attributes:
        rewrites: requests to the upstream besides the client's own.
        checks: calls of the judge, and ``usd`` of their price in US dollars, as far as it is known.
        seconds: for which the message may be held, all its sentences together.
        size: bytes of an answer that are kept in memory.
    """

    rewrites: int = 3
    checks: int = 100
    usd: float = 0.05
    seconds: float = 60.0
    size: int = 8 * 1024 * 1024


class BudgetSpentError(Exception):
    """The message has no budget left for another answer."""


@dataclass
class Spending:
    """What one message has used of its budget.

    Attributes:
        most_tokens: the client's limit on the answer, which holds for what is sent and all rewrites together; None: there is none.
        wasted: tokens of rewrites that were not sent.
        sent: sentences that went out; ``first``: those of the first answer, None while it was not asked for again.
        counted: whether the message was counted as unchecked.
    """

    budget: MessageBudget
    most_tokens: int | None = None
    rewrites: int = 0
    checks: int = 0
    usd: float = 0.0
    wasted: int = 0
    sent: int = 0
    first: int | None = None
    counted: bool = False
    _seconds: float = 0.0
    _since: float | None = None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Count the time in here as time for which the message is held."""
        self._since = time.monotonic()
        try:
            yield
        finally:
            self._seconds = self.budget.seconds - self.seconds_left
            self._since = None

    @property
    def seconds_left(self) -> float:
        """For which the message may still be held."""
        now = 0.0 if self._since is None else time.monotonic() - self._since
        return self.budget.seconds - self._seconds - now

    def allows_check(self) -> bool:
        """Whether another sentence may be judged: an answer has at most twice the sentences of the first one."""
        longer = self.first is not None and self.sent >= 2 * self.first
        spent = self.checks >= self.budget.checks or self.usd >= self.budget.usd or self.seconds_left <= 0
        return not (longer or spent)

    def require_rewrite(self) -> None:
        """Raise ``BudgetSpentError`` where no other answer may be asked for."""
        beyond = self.first is not None and self.sent >= self.first
        if beyond or self.rewrites >= self.budget.rewrites or not self.allows_check():
            raise BudgetSpentError

    def take_rewrite(self, said: str, held: str, unsent: str) -> int | None:
        """Take one rewrite from the budget and return how many tokens it may have; None: the client sets no limit.

        ``said``: what was sent of the message; ``held``: what is rejected; ``unsent``: all of a rewrite that is thrown away.
        Raises ``BudgetSpentError``: no rewrite is left, or no room for as much as is held.
        """
        self.require_rewrite()
        self.wasted += estimated_tokens(unsent) if unsent else 0
        left = None
        if self.most_tokens is not None:
            left = self.most_tokens - self.wasted - (estimated_tokens(said) if said else 0)
            # An estimate may be above what the client allows.
            if left < min(estimated_tokens(held), self.most_tokens):
                raise BudgetSpentError
        self.rewrites += 1
        return left
