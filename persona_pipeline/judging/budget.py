"""A limit in US dollars, kept by reserving a call's worst price before it is sent."""

import asyncio
import math
from collections.abc import Callable

from persona_pipeline.errors import ConfigError
from persona_pipeline.judging.daily import DailyLimit
from persona_pipeline.judging.prices import estimated_tokens, has_price, price
from persona_pipeline.judging.verdict import Usage

# The API adds a prompt of its own for tools and structured output.
_HIDDEN_TOKENS = 800
_CERTAINTY = 1.15


class Budget:
    """Dollars that may be spent, over any number of runs of the event loop in one thread.

    Args:
        max_usd: by this one; None: as much as the day allows.
        daily: what everybody together may spend a day; None: no limit.

    Raises:
        ConfigError: the limit is not a positive, finite number.

    Attributes:
        spent: what calls cost; one whose price is unknown counts with all that was reserved for it.
        stopped: how many calls were refused.
    """

    def __init__(self, max_usd: float | None, daily: DailyLimit | None = None) -> None:
        if not (daily if max_usd is None else 0 < max_usd < math.inf):
            raise ConfigError(f"a budget of {max_usd} dollars is not usable; give a positive number")
        self.max_usd = math.inf if max_usd is None else max_usd
        self.daily = daily
        self.spent = 0.0
        self.stopped = 0
        self._reserved = 0.0
        self._waiting: list[asyncio.Future[None]] = []
        self._tokens_per_byte = 0.0

    @property
    def remaining(self) -> float:
        """Dollars neither spent nor reserved, here and today."""
        return min(self._own, self.daily.remaining) if self.daily else self._own

    @property
    def _own(self) -> float:
        return self.max_usd - self.spent - self._reserved

    def limit(self, usd: float) -> str:
        """Return the limit that so many dollars more would pass, in words."""
        if usd > self._own or self.daily is None:
            return f"{self.max_usd:g} dollars"
        return f"{self.daily.max_usd:g} dollars a day (PERSONA_DAILY_USD)"

    async def reserve(self, usd: float) -> "Reservation | None":
        """Set dollars aside, waiting for calls under way if they may free enough; None when it cannot be."""
        while True:
            day = None
            if usd <= self._own and (self.daily is None or (day := self.daily.take(usd))):
                break
            if not self._reserved or usd > self.max_usd - self.spent:
                self.stopped += 1
                return None
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn
        self._reserved += usd

        def settle(reserved: float, spent: float) -> None:
            if self.daily and day:
                self.daily.settle(day, reserved, spent)
            self._settle(reserved, spent)

        return Reservation(usd, settle)

    def worst_price(self, text: str, max_tokens: int, model: str) -> float:
        """Return the most a call may cost: all input written to the cache, all output tokens used.

        Until a call was measured, input is taken at two bytes a token; then as densely as was measured at
        most, with a margin.

        Raises:
            ConfigError: the model has no known price.
        """
        require_price(model)
        if self._tokens_per_byte:
            tokens = int(len(text.encode("utf-8", "surrogatepass")) * self._tokens_per_byte * _CERTAINTY)
        else:
            tokens = estimated_tokens(text, upper_bound=True)
        worst = Usage(output_tokens=max_tokens, cache_creation_tokens=tokens + _HIDDEN_TOKENS)
        return price(worst, model) or 0.0

    def measured(self, text: str, usage: Usage) -> None:
        """Learn from a call how many tokens a byte of input makes."""
        total = usage.input_tokens + usage.cache_creation_tokens + usage.cache_read_tokens
        size = len(text.encode("utf-8", "surrogatepass"))
        if total and size:
            self._tokens_per_byte = max(self._tokens_per_byte, total / size)

    def _settle(self, reserved: float, spent: float) -> None:
        self._reserved = max(0.0, self._reserved - reserved)
        self.spent += spent
        waiting, self._waiting = self._waiting, []
        for turn in waiting:
            if not turn.done() and not turn.get_loop().is_closed():
                turn.set_result(None)


class Reservation:
    """Dollars set aside for one call. Settle it exactly once."""

    def __init__(self, usd: float, settle: Callable[[float, float], None]) -> None:
        self.usd = usd
        self._settle = settle
        self._open = True

    def settle(self, usd: float | None) -> None:
        """Say what was spent; None (unknown) counts as all of it."""
        if self._open:
            self._open = False
            self._settle(self.usd, self.usd if usd is None else usd)


def require_price(model: str) -> None:
    """Raise ``ConfigError`` when no price is known, so that no limit in dollars can be kept."""
    if not has_price(model):
        raise ConfigError(
            f"no price is known for judge model {model!r}, so a limit in dollars cannot be kept; "
            f"set it with PERSONA_JUDGE_PRICES='{model}=INPUT/OUTPUT' in dollars a million tokens, or leave out "
            "--max-usd and PERSONA_DAILY_USD"
        )
