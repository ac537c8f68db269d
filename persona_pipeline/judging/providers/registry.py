"""Providers by name: the built-in ones, and those other packages add by entry point ``persona_pipeline.judges``."""

from functools import lru_cache

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.registry import Registry
from persona_pipeline.judging.providers.base import Provider

RECORDED = "recorded"
_HERE = "persona_pipeline.judging.providers"
PROVIDERS = Registry(
    "persona_pipeline.judges",
    Provider,
    {
        "anthropic": f"{_HERE}.anthropic:AnthropicProvider",
        "bedrock": f"{_HERE}.anthropic:BedrockProvider",
        "vertex": f"{_HERE}.anthropic:VertexProvider",
        "openai": f"{_HERE}.openai:OpenAIProvider",
    },
    what="judge",
)


@lru_cache
def find_provider(name: str) -> Provider:
    """Return the provider of a live judge.

    Raises:
        ConfigError: nobody offers one of that name, or it cannot be loaded.
    """
    found = PROVIDERS.find(name)
    if found is None:
        raise ConfigError(f"unknown judge {name!r}{PROVIDERS.hint(name, [RECORDED])}")
    return found()
