"""``persona``: an agent of the world answers in character, through the Messages API."""

from functools import cached_property
from typing import TYPE_CHECKING

from pydantic import Field

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.suites.format.field_types import Text
from persona_pipeline.suites.targets.anthropic import AnthropicTarget

if TYPE_CHECKING:
    from persona_pipeline.world.models import Persona

_FRAME = """\
You are {name}. Stay in character in everything you write. Answer with what {name} would send in the chat, and nothing else.

# Who you are
{persona}"""


def persona_prompt(persona: "Persona") -> str:
    """Return the system prompt of a model that plays a persona."""
    # Plain replacement: nothing in a persona is a template.
    return _FRAME.replace("{name}", persona.display_name).replace("{persona}", persona.persona)


class PersonaTarget(AnthropicTarget):
    """Sends the test's messages to a model that plays an agent: its persona is the system prompt."""

    agent: Text = Field(description="The agent's id; its persona file is personas/<agent>.yaml.")
    root: Text | None = Field(
        None, description="The world's folder, relative to the targets file; by default PERSONA_ROOT."
    )

    @cached_property
    def _persona_text(self) -> str:
        from persona_pipeline.base.settings import get_settings
        from persona_pipeline.world.personas import load_persona

        root = self.allowed(self.root) if self.root else get_settings().world_root
        return persona_prompt(load_persona(root, self.agent))

    def open(self) -> None:
        """Read the persona.

        Raises:
            ConfigError: there is none.
        """
        try:
            _ = self._persona_text
        except ConfigError as error:
            raise ConfigError(f"target {self.name!r}: {error}") from error

    def system_prompt(self) -> str:
        return "\n\n".join(filter(None, (self._persona_text, self.system)))
