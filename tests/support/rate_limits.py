"""A server's limits a minute, and how it tells them."""

import math
import time
from collections.abc import Mapping


class RateLimits:
    """Limits a minute that refill evenly, with the headers the API tells them by.

    Args:
        per_minute: ``requests``, ``input-tokens`` and ``output-tokens``; what is left out is not limited.
        told: whether the headers say so.
        left: what is left of each at the beginning; None: all.
        still: nothing refills until a request was refused, however slowly they come.

    Attributes:
        refused: how many requests did not come in.
    """

    def __init__(
        self,
        per_minute: Mapping[str, float],
        *,
        told: bool = True,
        left: Mapping[str, float] | None = None,
        still: bool = False,
    ) -> None:
        self.per_minute: dict[str, float] = dict(per_minute)
        self.told: bool = told
        self.still: bool = still
        self.refused: int = 0
        self._levels = dict(per_minute) | dict(left or {})
        self._at = time.monotonic()

    def admit(self, cost: Mapping[str, float]) -> tuple[bool, dict[str, str]]:
        """Return whether a request may come in, and the headers of its answer."""
        now = time.monotonic()
        if self.still and not self.refused:
            self._at = now
        for kind, most in self.per_minute.items():
            self._levels[kind] = min(most, self._levels[kind] + (now - self._at) * most / 60)
        self._at = now
        wait = max(
            (
                (min(cost.get(kind, 0.0), most) - self._levels[kind]) * 60 / most
                for kind, most in self.per_minute.items()
            ),
            default=0.0,
        )
        if wait <= 1e-9:
            for kind in self.per_minute:
                self._levels[kind] -= cost.get(kind, 0.0)
        else:
            self.refused += 1
        headers = {}
        for kind, most in self.per_minute.items() if self.told else ():
            headers[f"anthropic-ratelimit-{kind}-limit"] = str(int(most))
            headers[f"anthropic-ratelimit-{kind}-remaining"] = str(max(0, int(self._levels[kind])))
        if wait > 1e-9:
            headers["retry-after-ms"] = str(math.ceil(wait * 1000))
        return wait <= 1e-9, headers
