"""Persona files, ``personas/<agent_id>.yaml``, and which names of agents and files are allowed."""

import logging
import os
import re
import unicodedata
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from pydantic import BaseModel, Field, field_validator

from persona_pipeline.base.documents.yaml import load_document, validate_document
from persona_pipeline.base.errors import ConfigError, Problem, did_you_mean
from persona_pipeline.base.settings import Settings
from persona_pipeline.world.models import REPLACED_SETTINGS, CorrectionSettings, NotBlank, Persona

# Ending of proposed files, which are not used: <agent>.draft.yaml.
DRAFT = ".draft"
# Ending of files with canon facts: <agent>.canon.yaml.
CANON = ".canon"
_LOGGER = logging.getLogger(__name__)
_AGENT_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
# The text of personas that `init` and `try` write.
_UNDESCRIBED = re.compile(r"^Say here who .* is, how it writes|writes in the language \S+\. Describe how ", re.DOTALL)


def is_agent_id(text: str) -> bool:
    """Return whether a text can name an agent: lower-case letters, digits, ``-`` and ``_``, at most 64, no leading sign."""
    return _AGENT_ID.fullmatch(text) is not None


def is_name(text: str) -> bool:
    """Return whether a text can name a speaker, a channel or a message: 1 to 256 printable characters, not all white space."""
    return bool(text.strip()) and len(text) <= 256 and text.isprintable()


def agent_id_of(name: str) -> str:
    """Return an id made of a name's Latin letters and digits; "" where it has none."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode("ascii").lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:64].strip("-")


def check_agent_id(text: str) -> str:
    """Return the agent id."""
    if not is_agent_id(text):
        raise ConfigError(f"agent id {text!r} is not allowed; use lower-case letters, digits, '-' and '_', at most 64")
    return text


def find_yaml(folder: Path, stem: str) -> Path | None:
    """Return ``<stem>.yaml`` or ``<stem>.yml``, None when there is neither; ConfigError: both spellings are there."""
    found = [path for path in (folder / f"{stem}.yaml", folder / f"{stem}.yml") if path.is_file()]
    if len(found) > 1:
        raise ConfigError(Problem(f"stands beside {found[0].name}; keep one of the two", str(found[1])))
    return found[0] if found else None


def yaml_stems(folder: Path) -> list[str]:
    """Return the names, without ending, of the YAML files of a folder, sorted; drafts and canon are left out."""
    return sorted(yaml_files(folder))


def yaml_files(folder: Path) -> dict[str, list[os.DirEntry[str]]]:
    """Return the YAML files of a folder by name, drafts and canon left out; a name may have two files."""
    found: dict[str, list[os.DirEntry[str]]] = {}
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        for entry in entries:
            stem, _, ending = entry.name.rpartition(".")
            if stem and ending in ("yaml", "yml") and not stem.endswith((DRAFT, CANON)):
                found.setdefault(stem, []).append(entry)
    return found


PERSONAS = "personas"


def is_world(folder: Path) -> bool:
    """Return whether a folder is a world: it has a folder ``personas``."""
    return (folder / PERSONAS).is_dir()


def find_world(settings: Settings, root: Path | str | None = None) -> Path:
    """Return the world's folder, absolute: the named one, else that of ``PERSONA_ROOT``, else the current one.

    Raises ``ConfigError``: it is not a world; the message says where it was searched, and what to do.
    """
    folder = settings.world_root if root is None else Path(root).expanduser().resolve()
    if is_world(folder):
        return folder
    if root is not None:
        looked = f"{folder} is no world: it has no personas folder"
    elif settings.root is not None:
        looked = f"there is no world: PERSONA_ROOT is {folder}, which has no personas folder"
    else:
        looked = f"there is no world here: {folder} has no personas folder, and PERSONA_ROOT is not set"
        looked += next((f"; one is above: cd {parent}" for parent in folder.parents if is_world(parent)), "")
    raise ConfigError(
        f"{looked}; set PERSONA_ROOT to your world's folder, begin a world with `persona-pipeline init DIR`, or get a first "
        "finding from an export with `persona-pipeline try FILE`"
    )


class PersonaFile(BaseModel, extra="forbid", title="Persona"):
    """A persona file as it is written."""

    agent_id: str | None = Field(None, description="The agent's id; must be the file's name.")
    display_name: NotBlank = Field(description="The name others see.")
    persona: NotBlank = Field(description="Who the agent is: what its system prompt is built from.")
    aliases: list[str] = Field(
        default_factory=list,
        description="Other names the agent's messages come under, such as a handle or an earlier id; case does not matter.",
    )
    corrections: CorrectionSettings = Field(
        default_factory=CorrectionSettings, description="Runtime corrections; all off by default."
    )

    @field_validator("aliases")
    @classmethod
    def _named(cls, value: list[str]) -> list[str]:
        if any(not is_name(alias) for alias in value):
            raise ValueError("an alias must be 1 to 256 printable characters")
        return value


def agent_ids(root: Path) -> list[str]:
    """Return the ids of all agents that have a persona file, sorted; ConfigError: a file's name cannot be an agent's id."""
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
    """Return the path of an agent's persona file; ConfigError: there is none, and it names the nearest agent."""
    path = find_yaml(root / PERSONAS, check_agent_id(agent_id))
    if path is None:
        hint = did_you_mean(agent_id, yaml_stems(root / PERSONAS))
        raise ConfigError(f"agent {agent_id!r} has no persona file; write {PERSONAS}/{agent_id}.yaml{hint}")
    return path


@cache
def _warn_once(line: str) -> None:
    # A persona file is read again at every look at the world.
    _LOGGER.warning(line)


def load_persona(root: Path, agent_id: str, roots: Sequence[Path] | None = None) -> Persona:
    """Read one agent's persona file.

    ``roots``: resolved folders that it must lie in once links are followed; None: anywhere. Raises ``ConfigError``: it is missing
    or not valid; every problem with its place.
    """
    return parse_persona(persona_path(root, agent_id), agent_id, roots)


def undescribed(personas: Iterable[Persona]) -> dict[str, tuple[Problem, ...]]:
    """Return the problems of agents whose persona is still the text of a new world: no judge is asked about those."""
    said = "persona is still the text of a new world, so its scores would mean nothing; describe who this is"
    return {
        item.agent_id: (Problem(said, f"{PERSONAS}/{item.agent_id}.yaml"),)
        for item in personas
        if _UNDESCRIBED.search(item.persona)
    }


def parse_persona(path: Path, agent_id: str, roots: Sequence[Path] | None = None) -> Persona:
    """Read a persona file of whatever name as an agent's."""
    document = load_document(path, roots=roots)
    file = validate_document(PersonaFile, document)
    if file.agent_id not in (None, agent_id):
        raise ConfigError(
            document.problem(("agent_id",), f"agent_id {file.agent_id!r} is not the file's name; write {agent_id!r}")
        )
    for name in REPLACED_SETTINGS:
        if "corrections" in file.model_fields_set and document.data["corrections"].get(name):
            said = f"{name} does nothing: the gate's verdict on the message has replaced it; delete the line"
            _warn_once(str(document.problem(("corrections", name), said)))
    names = file.display_name.strip(), file.persona.strip()
    return Persona(agent_id, *names, file.corrections, tuple(file.aliases))
