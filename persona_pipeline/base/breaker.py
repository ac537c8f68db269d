"""Stopping early: after many identical failures in a row, or one that no further call can survive."""

import time
from collections import OrderedDict
from collections.abc import Callable

# Agents whose requests fail at the same time; beyond that the oldest is forgotten.
_MOST_AGENTS = 1000


class Breaker:
    """Refuses calls while open. After the cool-down one call may try; its success closes the breaker.

    Args:
        threshold: identical failures in a row that open it.
        cooldown: seconds it stays open.
    """

    def __init__(
        self, *, threshold: int = 10, cooldown: float = 30.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.threshold = threshold
        self.cooldown = cooldown
        self._clock = clock
        self._signature = ""
        self._count = 0
        self._open_until: float | None = None
        self._succeeded_at = float("-inf")
        self._why = ""

    def refusal(self) -> str | None:
        """Return why no call may go now, or None. Past the cool-down the first to ask is the trial."""
        if self._open_until is None:
            return None
        if self._clock() < self._open_until:
            return self._why
        self._open_until = self._clock() + self.cooldown
        return None

    def succeeded(self) -> None:
        self._signature, self._count, self._open_until = "", 0, None
        self._succeeded_at = self._clock()

    def abandoned(self) -> None:
        """The call under way was given up for a reason of our own: if it was the trial, the next one may be."""
        if self._open_until is not None:
            self._open_until = self._clock()

    def failed(self, signature: str, detail: str, *, fatal: bool = False, started: float | None = None) -> None:
        """Count a failure of the server or the network.

        Args:
            signature: equal for identical failures.
            fatal: every further call would fail too, such as for a wrong key.
            started: when the call began, by the breaker's clock. A server that has answered others since then is not down, and the
                failure does not count.
        """
        if started is not None and started < self._succeeded_at:
            return
        self._count = self._count + 1 if signature == self._signature else 1
        self._signature = signature
        if fatal:
            self._why = f"not asked, because the judge cannot be used: {detail}"
        elif self._count >= self.threshold:
            self._why = f"not asked after {self._count} identical failures in a row: {detail}"
        else:
            return
        self._open_until = self._clock() + self.cooldown


class AgentBreakers:
    """A breaker for each agent: what is wrong with one agent's requests stops no other's.

    Args:
        threshold, cooldown: as of ``Breaker``.
    """

    def __init__(self, *, threshold: int = 10, cooldown: float = 30.0) -> None:
        self._threshold, self._cooldown = threshold, cooldown
        self._of: OrderedDict[str, Breaker] = OrderedDict()

    def refusal(self, agent_id: str) -> str | None:
        """Return why no request of this agent may go now, or None."""
        breaker = self._of.get(agent_id)
        return breaker.refusal() if breaker else None

    def succeeded(self, agent_id: str) -> None:
        self._of.pop(agent_id, None)

    def failed(self, agent_id: str, detail: str) -> None:
        """Count a request of this agent that the endpoint will not have."""
        breaker = self._of.get(agent_id) or Breaker(threshold=self._threshold, cooldown=self._cooldown)
        breaker.failed("request", detail)
        self._of[agent_id] = breaker
        self._of.move_to_end(agent_id)
        while len(self._of) > _MOST_AGENTS:
            self._of.popitem(last=False)
