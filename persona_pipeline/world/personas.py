"""Persona files: ``personas/<agent_id>.yaml``."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, field_validator

from persona_pipeline.documents import load_document, validate_document
from persona_pipeline.errors import ConfigError, Problem, did_you_mean
from persona_pipeline.world.files import check_agent_id, find_yaml, is_agent_id, is_name, yaml_stems
from persona_pipeline.world.models import CorrectionSettings, Persona

PERSONAS = "personas"


class PersonaFile(BaseModel):
    """A persona file as it is written."""

    model_config = ConfigDict(extra="forbid", title="Persona")

    agent_id: str | None = Field(None, description="The agent's id; must be the file's name.")
    display_name: str = Field(description="The name others see.")
    persona: str = Field(description="Who the agent is: what its system prompt is built from.")
    aliases: list[str] = Field(
        default_factory=list,
        description="Other names the agent's messages come under, such as a handle or an earlier id; case does not matter.",
    )
    corrections: CorrectionSettings = Field(
        default_factory=CorrectionSettings, description="Runtime corrections; all off by default."
    )

    @field_validator("display_name", "persona")
    @classmethod
    def _not_blank(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("must not be empty")
        return value

    @field_validator("aliases")
    @classmethod
    def _named(cls, value: list[str]) -> list[str]:
        if any(not is_name(alias) for alias in value):
            raise ValueError("an alias must be 1 to 256 printable characters")
        return value


def agent_ids(root: Path) -> list[str]:
    """Return the ids of all agents that have a persona file, sorted.

    Raises:
        ConfigError: a file's name cannot be an agent's id.
    """
    stems = yaml_stems(root / PERSONAS)
    problems = [
        Problem(
            f"{stem!r} cannot be an agent's id; use lower-case letters, digits, '-' and '_', at most 64",
            str(root / PERSONAS / f"{stem}.yaml"),
        )
        for stem in stems
        if not is_agent_id(stem)
    ]
    if problems:
        raise ConfigError(problems)
    return stems


def persona_path(root: Path, agent_id: str) -> Path:
    """Return the path of an agent's persona file.

    Raises:
        ConfigError: there is none; the message names the nearest agent.
    """
    path = find_yaml(root / PERSONAS, check_agent_id(agent_id))
    if path is None:
        hint = did_you_mean(agent_id, yaml_stems(root / PERSONAS))
        raise ConfigError(f"agent {agent_id!r} has no persona file; write {PERSONAS}/{agent_id}.yaml{hint}")
    return path


def load_persona(root: Path, agent_id: str) -> Persona:
    """Read one agent's persona file.

    Raises:
        ConfigError: it is missing or not valid; every problem with its place.
    """
    return parse_persona(persona_path(root, agent_id), agent_id)


def parse_persona(path: Path, agent_id: str) -> Persona:
    """Read a persona file of whatever name as an agent's.

    Raises:
        ConfigError: it is not valid; every problem with its place.
    """
    document = load_document(path)
    file = validate_document(PersonaFile, document)
    if file.agent_id not in (None, agent_id):
        raise ConfigError(
            document.problem(("agent_id",), f"agent_id {file.agent_id!r} is not the file's name; write {agent_id!r}")
        )
    names = file.display_name.strip(), file.persona.strip()
    return Persona(agent_id, *names, file.corrections, tuple(file.aliases))
