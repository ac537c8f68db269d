"""Kinds of targets by name: the built-in ones, and those other packages add by entry point ``persona_pipeline.targets``."""

from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from typing import Any

from persona_pipeline.errors import ConfigError
from persona_pipeline.suites.targets.fields import TargetFields

ENTRY_POINTS = "persona_pipeline.targets"
# ``provider: python:package.module:function`` says it in one line.
PYTHON = "python:"
_BUILT_IN = {
    "mock": "mock:MockTarget",
    "cli": "cli:CliTarget",
    "python": "python:PythonTarget",
    "http": "http:HttpTarget",
    "anthropic": "anthropic:AnthropicTarget",
    "openai": "openai:OpenAITarget",
    "persona": "persona:PersonaTarget",
    "replay": "replay:ReplayTarget",
}


def known_providers() -> list[str]:
    """Return every kind of target there is, built-in ones first."""
    return [*_BUILT_IN, *(name for name in _entry_points() if name not in _BUILT_IN)]


def find_provider(name: str) -> type[TargetFields] | None:
    """Return the class of a kind of target, None when nobody offers it.

    Raises:
        ConfigError: an entry point of that name cannot be loaded.
    """
    name = "python" if name.startswith(PYTHON) else name
    if name in _BUILT_IN:
        module, _, cls = _BUILT_IN[name].partition(":")
        return getattr(import_module(f"persona_pipeline.suites.targets.{module}"), cls)
    point = _entry_points().get(name)
    if point is None:
        return None
    try:
        model = point.load()
    except Exception as error:
        raise ConfigError(f"provider {name!r} ({point.value}) cannot be loaded: {error}") from error
    if not (isinstance(model, type) and issubclass(model, TargetFields)):
        raise ConfigError(
            f"provider {name!r} ({point.value}) is no subclass of persona_pipeline.suites.targets.TargetFields"
        )
    return model


def with_function(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a target's keys with the function of ``provider: python:module:function`` under its own."""
    provider = data.get("provider")
    if isinstance(provider, str) and provider.startswith(PYTHON):
        return {**data, "provider": "python", "function": provider.removeprefix(PYTHON)}
    return dict(data)


@lru_cache(maxsize=1)
def _entry_points() -> dict[str, Any]:
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}
