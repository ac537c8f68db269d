"""Providers by name: the built-in ones, and those other packages add by entry point ``persona_pipeline.judges``."""

from functools import lru_cache
from importlib.metadata import EntryPoint
from typing import Any

from persona_pipeline.entry_points import load_class, offered
from persona_pipeline.errors import ConfigError, did_you_mean
from persona_pipeline.judging.providers.base import Provider

ENTRY_POINTS = "persona_pipeline.judges"
RECORDED = "recorded"
_HERE = "persona_pipeline.judging.providers"
# Known without the metadata of an installed package, and nobody else's to name.
BUILT_IN = {
    "anthropic": f"{_HERE}.anthropic:AnthropicProvider",
    "bedrock": f"{_HERE}.anthropic:BedrockProvider",
    "vertex": f"{_HERE}.anthropic:VertexProvider",
    "openai": f"{_HERE}.openai:OpenAIProvider",
}


@lru_cache
def find_provider(name: str) -> Provider:
    """Return the provider of a live judge.

    Raises:
        ConfigError: nobody offers one of that name, or it cannot be loaded.
    """
    point = EntryPoint(name, BUILT_IN[name], ENTRY_POINTS) if name in BUILT_IN else offered(ENTRY_POINTS).get(name)
    if point is None:
        known = judge_names()
        raise ConfigError(
            f"unknown judge {name!r}{did_you_mean(name, known) or '; the judges are ' + ', '.join(known)}"
        )
    provider: Any = load_class(point, Provider, "judge")
    return provider()


def judge_names() -> list[str]:
    """Return what ``--judge`` takes: the recorded judge, then the providers."""
    return [RECORDED, *BUILT_IN, *sorted(offered(ENTRY_POINTS).keys() - BUILT_IN.keys())]
