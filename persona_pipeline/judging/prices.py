"""What calls cost in US dollars, and how many tokens a text is likely to have."""

from functools import lru_cache

from persona_pipeline.judging.verdict import Usage

# About 3.1 UTF-8 bytes a token: the older 4 bytes for English prose, less the 30 % more tokens of the 5.5
# models. Budgets assume 2.
_BYTES_PER_TOKEN = 3.1
_BYTES_PER_TOKEN_BOUND = 2.0
BATCH_FACTOR = 0.5


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
        model, requested_model: the first that has a price counts.
        hour_cache_tokens: how many of the cache writes live for an hour, which costs more.
        batch: half of everything.
    """
    for name in (model, requested_model):
        if name and has_price(name):
            usd = _price(usage, name, min(hour_cache_tokens, usage.cache_creation_tokens))
            return usd * BATCH_FACTOR if batch else usd
    return None


@lru_cache
def has_price(model: str) -> bool:
    """Whether the price table knows the model."""
    try:
        _price(Usage(input_tokens=1), model, 0)
    except LookupError:
        return False
    return True


def _price(usage: Usage, model: str, hour_cache_tokens: int) -> float:
    from genai_prices import Usage as PricedUsage
    from genai_prices import calc_price

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
    return float(calc_price(priced, model, provider_id="anthropic").total_price)
