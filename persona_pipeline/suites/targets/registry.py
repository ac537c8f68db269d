"""Kinds of targets by name: built-in ones, and those of other packages (entry point ``persona_pipeline.targets``)."""

from collections.abc import Mapping
from typing import Any

from persona_pipeline.base.options import Registry
from persona_pipeline.suites.answering.base import TargetFields

# The short form ``provider: python:package.module:function``.
PYTHON = "python:"
_HERE = "persona_pipeline.suites.targets"
TARGETS = Registry(
    "persona_pipeline.targets",
    TargetFields,
    {
        "mock": f"{_HERE}.given:MockTarget",
        "cli": f"{_HERE}.cli:CliTarget",
        "python": f"{_HERE}.python:PythonTarget",
        "http": f"{_HERE}.http:HttpTarget",
        "anthropic": f"{_HERE}.models:AnthropicTarget",
        **dict.fromkeys(("bedrock", "vertex"), f"{_HERE}.models:MessagesTarget"),
        **dict.fromkeys(("openai", "azure", "gemini", "ollama", "vllm", "openrouter"), f"{_HERE}.models:OpenAITarget"),
        "persona": f"{_HERE}.persona:PersonaTarget",
        "claude-agent-sdk": f"{_HERE}.agents:ClaudeAgentTarget",
        "replay": f"{_HERE}.given:ReplayTarget",
    },
    what="provider",
)


def find_provider(name: str) -> type[TargetFields] | None:
    """Return the class of a kind of target; None: it is unknown."""
    return TARGETS.find("python" if name.startswith(PYTHON) else name)


def with_function(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a target's keys, with the short form of a function expanded."""
    provider = data.get("provider")
    if isinstance(provider, str) and provider.startswith(PYTHON):
        return {**data, "provider": "python", "function": provider.removeprefix(PYTHON)}
    return dict(data)
