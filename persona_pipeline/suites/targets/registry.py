"""Kinds of targets by name: the built-in ones, and those other packages add by entry point ``persona_pipeline.targets``."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from persona_pipeline.entry_points import load_class, offered
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
    return [*_BUILT_IN, *(name for name in offered(ENTRY_POINTS) if name not in _BUILT_IN)]


def find_provider(name: str) -> type[TargetFields] | None:
    """Return the class of a kind of target, None when nobody offers it.

    Raises:
        ConfigError: an entry point of that name cannot be loaded.
    """
    name = "python" if name.startswith(PYTHON) else name
    if name in _BUILT_IN:
        module, _, cls = _BUILT_IN[name].partition(":")
        return getattr(import_module(f"persona_pipeline.suites.targets.{module}"), cls)
    point = offered(ENTRY_POINTS).get(name)
    return load_class(point, TargetFields, "provider") if point else None


def with_function(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a target's keys with the function of ``provider: python:module:function`` under its own."""
    provider = data.get("provider")
    if isinstance(provider, str) and provider.startswith(PYTHON):
        return {**data, "provider": "python", "function": provider.removeprefix(PYTHON)}
    return dict(data)
