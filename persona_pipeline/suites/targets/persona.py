"""``persona``: a model that plays an agent of the world; and the world's personas for other targets."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.suites.answering.base import persona_prompt
from persona_pipeline.suites.format.models import Text
from persona_pipeline.suites.targets.models import AnthropicTarget
from persona_pipeline.world.personas import PERSONAS, is_agent_id, load_persona


class PersonaTarget(AnthropicTarget):
    """Sends the test's messages to a model that plays an agent: its persona is the system prompt."""

    plays_agent: ClassVar[bool] = True

    _asks: ClassVar[str | None] = "anthropic"

    agent: Text = Field(description="The agent's id; its persona file is personas/<agent>.yaml.")
    root: Text | None = Field(
        None, description="The world's folder, relative to the targets file; by default PERSONA_ROOT."
    )

    @cached_property
    def _persona_text(self) -> str:
        root = self.allowed(self.root) if self.root else self._grants.world
        if root is None:
            raise ConfigError("there is no world; name its folder as root")
        return agent_prompt(root, self.agent, self._grants.within)

    def open(self) -> None:
        try:
            _ = self._persona_text
        except ConfigError as error:
            raise ConfigError(f"target {self.name!r}: {error}") from error

    def system_prompt(self) -> str:
        return "\n\n".join(filter(None, (self._persona_text, self.system)))


def agent_prompt(world: Path, agent: str, roots: Sequence[Path] | None) -> str:
    """Return the system prompt of a model that plays an agent.

    ``roots``: folders that the persona file must be in; None: no limit. Raises ``ConfigError``: it is missing or not valid.
    """
    persona = load_persona(world, agent, roots)
    return persona_prompt(persona.display_name, persona.persona)


def persona_files(world: Path, agent: str) -> list[Path]:
    """Return where the persona file of an agent can be; no path for a name that cannot be an agent's."""
    return [world / PERSONAS / f"{agent}.{ending}" for ending in ("yaml", "yml")] if is_agent_id(agent) else []
