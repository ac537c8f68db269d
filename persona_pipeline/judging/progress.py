"""Progress of live judgments: done, failed, known before, paid, and the time left."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from persona_pipeline.judging.verdict import Answer

# Seconds between two lines in a log, and between two updates of a line on a terminal.
IN_A_LOG, ON_A_TERMINAL = 15.0, 0.2


@dataclass
class Progress:
    """Counts answers as they come and shows a line about them from time to time while something is asked.

    Attributes:
        show: gets the line.
        interval: seconds between two lines.
        expected: judgments asked for so far; it grows when more are asked, as for dropped claims.
        known: judgments that recordings or the store answered.
        answered, failed: judgments with and without an answer of the model.
        usd: dollars paid, as far as prices are known.
    """

    show: Callable[[str], None]
    interval: float = IN_A_LOG
    clock: Callable[[], float] = time.monotonic
    expected: int = 0
    known: int = 0
    answered: int = 0
    failed: int = 0
    usd: float = 0.0
    _busy: float = field(default=0.0, repr=False)
    _since: float | None = field(default=None, repr=False)

    @property
    def done(self) -> int:
        return self.known + self.answered + self.failed

    @property
    def line(self) -> str:
        """What there is to say, in one line."""
        parts = [f"judged {self.done} of {self.expected}"]
        if self.failed:
            parts.append(f"{self.failed} failed")
        if self.known:
            parts.append(f"{self.known} known before")
        parts.append(f"${self.usd:.4f}")
        if (left := self.seconds_left) is not None:
            parts.append(f"{_duration(left)} left")
        return ", ".join(parts)

    @property
    def seconds_left(self) -> float | None:
        """Seconds the rest takes at the pace so far; None: nothing was answered yet, or nothing is left."""
        asked, left = self.answered + self.failed, self.expected - self.done
        busy = self._busy + (0.0 if self._since is None else self.clock() - self._since)
        return busy / asked * left if asked and left > 0 else None

    def knew(self, count: int) -> None:
        """Count judgments that recordings or the store answer."""
        self.expected += count
        self.known += count

    def heard(self, answer: Answer) -> None:
        """Count the answer to one question that was asked."""
        if answer.data is None:
            self.failed += 1
        else:
            self.answered += 1
        self.usd += answer.usage.usd or 0.0

    @asynccontextmanager
    async def shown(self, asked: int) -> AsyncIterator[None]:
        """Show lines while ``asked`` questions are under way, and a last one at the end."""
        self.expected += asked
        self._since = self.clock()
        ticking = asyncio.get_running_loop().create_task(self._tick())
        try:
            yield
        finally:
            ticking.cancel()
            self._busy += self.clock() - self._since
            self._since = None
            self.show(self.line)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self.interval)
            self.show(self.line)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
