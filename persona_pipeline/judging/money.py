"""Prices of calls in US dollars, and limits of a run and a day. The highest price of a call is reserved first."""

import asyncio
import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import Any

import sqlalchemy as sa

from persona_pipeline.base.database import tables
from persona_pipeline.base.database.engine import Store, upsert
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.settings import Settings, TokenPrices, read_prices
from persona_pipeline.judging.verdict import UNKNOWN_USAGE, Usage

_CLAUDE = re.compile(r"(?:^|\.)(claude-.+)$")
_DOTTED = re.compile(r"(?<=\d)\.(?=\d)")
# A version on Bedrock, an alias, a date.
_AFTER_NAME = re.compile(r"(?:-v\d+(?::\d+\w*)?|:[\w-]+|@\w+|-latest|-\d{8})$")
_REGIONAL = re.compile(r"(?:^|/)(?!global\.)(?:[a-z-]+\.)?anthropic\.claude-")


@lru_cache
def model_name(spelled: str) -> str:
    """Return the name by which settings and prices know a model.

    The part up to the last slash names the server and is dropped. Claude models also lose region, version and date:
    ``bedrock/us.anthropic.claude-haiku-5-5-20260101-v1:0`` is ``claude-haiku-5-5``. Other names keep their ending, since
    ``gemma3:4b`` is not ``gemma3:27b``.
    """
    name = spelled.strip().lower().rpartition("/")[2]
    claude = _CLAUDE.search(name)
    if not claude:
        return name
    name = _DOTTED.sub("-", claude[1])
    while (shorter := _AFTER_NAME.sub("", name)) != name:
        name = shorter
    return name


# About 3.1 UTF-8 bytes a token: the older 4 bytes for English prose, less the 30 % more tokens of the 5.5
# models. Budgets assume 2.
_BYTES_PER_TOKEN = 3.1
_BYTES_PER_TOKEN_BOUND = 2.0
BATCH_FACTOR = 0.5
_REGIONAL_FACTOR = 1.1
# Vendors with list prices, by model name. Open models have no list price.
_VENDORS = {
    "anthropic": re.compile(r"claude-"),
    "openai": re.compile(r"gpt-(?!oss)|chatgpt-|o\d"),
    "google": re.compile(r"gemini-"),
}


def estimated_tokens(text: str, *, upper_bound: bool = False) -> int:
    """Return a guess of a text's tokens from its length, since Claude has no local tokenizer."""
    size = len(text.encode("utf-8", "surrogatepass"))
    return int(size / (_BYTES_PER_TOKEN_BOUND if upper_bound else _BYTES_PER_TOKEN)) + 1


def price(
    usage: Usage,
    model: str,
    requested_model: str | None = None,
    *,
    prices: str = "",
    hour_cache_tokens: int = 0,
    batch: bool = False,
) -> float | None:
    """Return the price of a call, None for a model without a known price.

    Args:
        usage: of a single call: prices have tiers by the length of the prompt, so calls must not be added up first.
        model, requested_model: the first that a setting prices counts, else the first that the public table knows.
        prices: what models cost that the public table does not know or has wrong, as ``PERSONA_JUDGE_PRICES`` has it.
        hour_cache_tokens: how many of the cache writes live for an hour, which costs more.
        batch: half of everything.
    """
    names = [name for name in (model, requested_model) if name]
    for name in names:
        if own := _prices_by_name(prices).get(model_name(name)):
            usd = _set_price(usage, own)
            return usd * BATCH_FACTOR if batch else usd
    for name in names:
        with suppress(LookupError):
            usd = _list_price(usage, model_name(name), min(hour_cache_tokens, usage.cache_creation_tokens))
            # Kept to a region, a model of Bedrock costs more than one served from anywhere.
            is_regional = any(_REGIONAL.search(name.strip().lower()) for name in names)
            return usd * (BATCH_FACTOR if batch else 1.0) * (_REGIONAL_FACTOR if is_regional else 1.0)
    return None


def has_price(model: str, prices: str = "") -> bool:
    """Whether a setting (``prices``, as of ``price``) or the public price table knows the model."""
    return price(Usage(), model, prices=prices) is not None


@lru_cache
def _prices_by_name(setting: str) -> Mapping[str, TokenPrices]:
    return {model_name(name): prices for name, prices in read_prices(setting).items()}


def _set_price(usage: Usage, prices: TokenPrices) -> float:
    return (
        usage.input_tokens * prices.input
        + usage.output_tokens * prices.output
        + usage.cache_creation_tokens * prices.cache_write
        + usage.cache_read_tokens * prices.cache_read
    ) / 1_000_000


# The public table has no tier that begins with fewer tokens of a prompt.
_SMALLEST_TIER = 32_000


def _list_price(usage: Usage, name: str, hour_cache_tokens: int) -> float:
    """Return a model's list price of a call; ``LookupError``: the public table does not know the model."""
    prompt = usage.input_tokens + usage.cache_creation_tokens + usage.cache_read_tokens
    if hour_cache_tokens or prompt >= _SMALLEST_TIER:
        return _table_price(usage, name, hour_cache_tokens)
    return _set_price(usage, _lowest_tier(name))


@lru_cache
def _lowest_tier(name: str) -> TokenPrices:
    """Return a model's prices below the first tier. An estimate prices each question ten times, and a lookup is slow."""
    kinds = ("input_tokens", "output_tokens", "cache_creation_tokens", "cache_read_tokens")
    return TokenPrices(*(_table_price(Usage(**{kind: 10_000}), name, 0) * 100 for kind in kinds))


def _table_price(usage: Usage, name: str, hour_cache_tokens: int) -> float:
    from genai_prices import Usage as PricedUsage
    from genai_prices import calc_price

    vendor = next((vendor for vendor, names in _VENDORS.items() if names.match(name)), None)
    if vendor is None:
        raise LookupError(name)
    cached = usage.cache_creation_tokens + usage.cache_read_tokens
    writes = {"cache_write_tokens": usage.cache_creation_tokens, "cache_write_1h_tokens": hour_cache_tokens}
    priced = PricedUsage(
        input_tokens=usage.input_tokens + cached,
        cache_read_tokens=usage.cache_read_tokens,
        output_tokens=usage.output_tokens,
        **{name: count for name, count in writes.items() if count},
    )
    return float(calc_price(priced, name, provider_id=vendor).total_price)


def read_usage(
    usage: Any, model: str, requested_model: str | None = None, *, prices: str = "", batch: bool = False
) -> Usage:
    """Return tokens and price of a call. The price of a response without usage is unknown, not zero.

    What the server says it billed (``cost``) comes before the list's price, and a price that is set before both.
    """
    if not isinstance(usage, Mapping):
        return UNKNOWN_USAGE
    counts = [
        usage.get(name) or 0
        for name in ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    ]
    if not {"input_tokens", "output_tokens"} <= usage.keys() or not all(
        type(count) is int and count >= 0 for count in counts
    ):
        return UNKNOWN_USAGE
    billed = usage.get("cost")
    is_set = any(name and model_name(name) in _prices_by_name(prices) for name in (model, requested_model))
    if isinstance(billed, float | int) and 0 <= billed < math.inf and not is_set:
        return Usage(*counts, calls=1, usd=float(billed))
    creation = usage.get("cache_creation")
    hour = creation.get("ephemeral_1h_input_tokens") if isinstance(creation, Mapping) else 0
    usd = price(
        Usage(*counts, calls=1),
        model,
        requested_model,
        prices=prices,
        hour_cache_tokens=hour if isinstance(hour, int) and hour > 0 else 0,
        batch=batch or usage.get("service_tier") == "batch",
    )
    return Usage(*counts, calls=1, usd=usd)


_DAYS = tables.spending_days
# Rounding errors of sums of small numbers.
_ROUNDING = 1e-9


class DailyLimit:
    """A limit in dollars a UTC day. Reservations of a killed process count as spent until the day ends."""

    def __init__(self, store: Store, max_usd: float) -> None:
        self.max_usd = max_usd
        self._store = store

    @property
    def remaining(self) -> float:
        """Dollars of today that no run has spent or reserved."""
        spent = sa.select(_DAYS.c.usd).where(_DAYS.c.day == _today())
        with self._store.connect() as connection:
            return max(0.0, self.max_usd - (connection.execute(spent).scalar() or 0.0))

    def take(self, usd: float) -> date | None:
        """Set dollars of today aside and return the day; None: that would pass the limit."""
        day = _today()
        with self._store.begin() as connection:
            upsert(connection, _DAYS, [{"day": day, "usd": 0.0}], update=False)
            # Checked and taken in a single statement, so that two hosts cannot both take the rest.
            fits = (_DAYS.c.day == day) & (_DAYS.c.usd + usd <= self.max_usd + _ROUNDING)
            taken = connection.execute(sa.update(_DAYS).where(fits).values(usd=_DAYS.c.usd + usd))
        return day if taken.rowcount else None

    def settle(self, day: date, taken: float, spent: float) -> None:
        """Replace a reservation by the dollars spent."""
        with self._store.begin() as connection:
            left = sa.update(_DAYS).where(_DAYS.c.day == day).values(usd=_DAYS.c.usd - taken + spent)
            connection.execute(left)


def daily_limit(settings: Settings, store: Store) -> DailyLimit | None:
    """Return the limit of the settings, kept in a store; None: without a limit."""
    return DailyLimit(store, settings.daily_usd) if settings.daily_usd else None


def _today() -> date:
    return datetime.now(UTC).date()


# The API adds a hidden prompt for tools and structured output.
_HIDDEN_TOKENS = 800


class Budget:
    """Dollars that may be spent, over any number of runs of the event loop in one thread.

    Args:
        max_usd: for this budget; None: as much as the day allows.
        daily: for all runs together in a day; None: no limit.

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
        self._reserved, self._under_way = 0.0, 0
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def remaining(self) -> float:
        """Dollars neither spent nor reserved, here and today."""
        return min(self._own, self.daily.remaining) if self.daily else self._own

    @property
    def _own(self) -> float:
        return self.max_usd - self.spent - self._reserved

    def limit(self, usd: float) -> str:
        """Return the limit, in words, that ``usd`` more dollars would pass."""
        if usd > self._own or self.daily is None:
            return f"{self.max_usd:g} dollars"
        return f"{self.daily.max_usd:g} dollars a day (PERSONA_DAILY_USD)"

    async def reserve(self, usd: float) -> "Reservation | None":
        """Set dollars aside, waiting for calls under way if they may free enough; None when it cannot be."""
        while True:
            day = None
            if usd <= self._own and (self.daily is None or (day := self.daily.take(usd))):
                break
            if not self._under_way or usd > self.max_usd - self.spent:
                self.stopped += 1
                return None
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn
        self._reserved += usd
        self._under_way += 1
        return Reservation(usd, lambda spent: self._settle(usd, spent, day))

    def worst_price(self, text: str, max_tokens: int, model: str, prices: str = "") -> float:
        """Return the most a call may cost: all input written to the cache, all output tokens used.

        Input is taken at two bytes a token. ``ConfigError``: the model has no known price.
        """
        require_price(model, prices)
        tokens = estimated_tokens(text, upper_bound=True) + _HIDDEN_TOKENS
        worst = Usage(output_tokens=max_tokens, cache_creation_tokens=tokens)
        return price(worst, model, prices=prices) or 0.0

    def _settle(self, reserved: float, spent: float, day: date | None) -> None:
        if self.daily and day:
            self.daily.settle(day, reserved, spent)
        self._under_way -= 1
        # Adding and subtracting fractions leaves rounding errors.
        self._reserved = max(0.0, self._reserved - reserved) if self._under_way else 0.0
        self.spent += spent
        waiting, self._waiting = self._waiting, []
        for turn in waiting:
            if not turn.done() and not turn.get_loop().is_closed():
                turn.set_result(None)


@dataclass
class Reservation:
    """Dollars set aside for one call; the first ``settle`` counts."""

    usd: float
    spend: Callable[[float], None] | None

    def settle(self, usd: float | None) -> None:
        """Report the dollars spent; None (unknown) counts as all of the reservation."""
        spend, self.spend = self.spend, None
        if spend:
            spend(self.usd if usd is None else usd)


def require_price(model: str, prices: str = "") -> None:
    """Raise ``ConfigError`` when no price is known, so that no limit in dollars can be kept."""
    if not has_price(model, prices):
        raise ConfigError(
            f"no price is known for judge model {model!r}, so a limit in dollars cannot be kept; "
            f"set it with PERSONA_JUDGE_PRICES='{model}=INPUT/OUTPUT' in dollars a million tokens, or leave out "
            "--max-usd and PERSONA_DAILY_USD"
        )
