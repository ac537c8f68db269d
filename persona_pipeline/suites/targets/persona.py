"""``persona``: an agent of the world answers in character, through the Messages API."""

from functools import cached_property
from typing import ClassVar

from pydantic import Field

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.suites.answering.base import persona_prompt
from persona_pipeline.suites.format.models import Text
from persona_pipeline.suites.targets.anthropic import AnthropicTarget


class PersonaTarget(AnthropicTarget):
    """Sends the test's messages to a model that plays an agent: its persona is the system prompt."""

    plays_agent: ClassVar[bool] = True

    agent: Text = Field(description="The agent's id; its persona file is personas/<agent>.yaml.")
    root: Text | None = Field(
        None, description="The world's folder, relative to the targets file; by default PERSONA_ROOT."
    )

    @cached_property
    def _persona_text(self) -> str:
        from persona_pipeline.world.personas import load_persona

        root = self.allowed(self.root) if self.root else self._grants.world
        if root is None:
            raise ConfigError("there is no world; name its folder as root")
        return persona_prompt(load_persona(root, self.agent, self._grants.within))

    def open(self) -> None:
        """Read the persona."""
        try:
            _ = self._persona_text
        except ConfigError as error:
            raise ConfigError(f"target {self.name!r}: {error}") from error

    def system_prompt(self) -> str:
        return "\n\n".join(filter(None, (self._persona_text, self.system)))
