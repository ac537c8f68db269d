"""Stopping early: after many identical failures in a row, or one that no further call can survive."""

import time
from collections.abc import Callable


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

    def failed(self, signature: str, detail: str, *, fatal: bool = False) -> None:
        """Count a failure of the server or the network.

        Args:
            signature: equal for identical failures.
            fatal: every further call would fail too, such as for a wrong key.
        """
        self._count = self._count + 1 if signature == self._signature else 1
        self._signature = signature
        if fatal:
            self._why = f"not asked, because the judge cannot be used: {detail}"
        elif self._count >= self.threshold:
            self._why = f"not asked after {self._count} identical failures in a row: {detail}"
        else:
            return
        self._open_until = self._clock() + self.cooldown
