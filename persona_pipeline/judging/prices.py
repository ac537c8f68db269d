"""What calls cost in US dollars, and how many tokens a text is likely to have."""

import re
from collections.abc import Mapping
from functools import lru_cache

from persona_pipeline.judging.model_names import is_regional, model_name
from persona_pipeline.judging.verdict import Usage
from persona_pipeline.settings import TokenPrices, get_settings, read_prices

# About 3.1 UTF-8 bytes a token: the older 4 bytes for English prose, less the 30 % more tokens of the 5.5
# models. Budgets assume 2.
_BYTES_PER_TOKEN = 3.1
_BYTES_PER_TOKEN_BOUND = 2.0
BATCH_FACTOR = 0.5
_REGIONAL_FACTOR = 1.1
# Whose list prices are whose; what anybody may serve has none.
_VENDORS = {"anthropic": re.compile(r"claude-"), "openai": re.compile(r"gpt-(?!oss)|chatgpt-|o\d")}


def estimated_tokens(text: str, *, upper_bound: bool = False) -> int:
    """Return a guess of a text's tokens from its length; there is no local tokenizer for Claude."""
    size = len(text.encode("utf-8", "surrogatepass"))
    return int(size / (_BYTES_PER_TOKEN_BOUND if upper_bound else _BYTES_PER_TOKEN)) + 1


def price(
    usage: Usage,
    model: str,
    requested_model: str | None = None,
    *,
    hour_cache_tokens: int = 0,
    batch: bool = False,
) -> float | None:
    """Return the price of one call, None for a model without a known price.

    Args:
        usage: of one call: prices have tiers by the length of the prompt, so calls are not to be added up first.
        model, requested_model: the first that a setting prices counts, else the first that the public table knows.
        hour_cache_tokens: how many of the cache writes live for an hour, which costs more.
        batch: half of everything.
    """
    names = [name for name in (model, requested_model) if name]
    for name in names:
        if prices := _set_prices().get(model_name(name)):
            usd = _set_price(usage, prices)
            return usd * BATCH_FACTOR if batch else usd
    for name in names:
        if _is_listed(model_name(name)):
            usd = _list_price(usage, model_name(name), min(hour_cache_tokens, usage.cache_creation_tokens))
            return usd * (BATCH_FACTOR if batch else 1.0) * (_REGIONAL_FACTOR if any(map(is_regional, names)) else 1.0)
    return None


def has_price(model: str) -> bool:
    """Whether a setting or the public price table knows the model."""
    return model_name(model) in _set_prices() or _is_listed(model_name(model))


def _set_prices() -> Mapping[str, TokenPrices]:
    return _prices_by_name(get_settings().judge_prices)


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


@lru_cache
def _is_listed(name: str) -> bool:
    try:
        _list_price(Usage(input_tokens=1), name, 0)
    except LookupError:
        return False
    return True


def _list_price(usage: Usage, name: str, hour_cache_tokens: int) -> float:
    from genai_prices import Usage as PricedUsage
    from genai_prices import calc_price

    vendor = next((vendor for vendor, names in _VENDORS.items() if names.match(name)), None)
    if vendor is None:
        raise LookupError(name)
    cached = usage.cache_creation_tokens + usage.cache_read_tokens
    writes = {
        "cache_write_tokens": usage.cache_creation_tokens,
        "cache_write_1h_tokens": hour_cache_tokens,
    }
    priced = PricedUsage(
        input_tokens=usage.input_tokens + cached,
        cache_read_tokens=usage.cache_read_tokens,
        output_tokens=usage.output_tokens,
        **{name: count for name, count in writes.items() if count},
    )
    return float(calc_price(priced, name, provider_id=vendor).total_price)
