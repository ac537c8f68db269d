"""Names of files and agents: what is allowed, and which spelling of a YAML file is there."""

import re
from pathlib import Path

from persona_pipeline.errors import ConfigError, Problem

# Ends the name of a file that is proposed and not in force: <agent>.draft.yaml.
DRAFT = ".draft"
_AGENT_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


def is_agent_id(text: str) -> bool:
    """Return whether a text can name an agent: lower-case letters, digits, ``-`` and ``_``, at most 64, no leading sign."""
    return _AGENT_ID.fullmatch(text) is not None


def is_name(text: str) -> bool:
    """Return whether a text can name a speaker, a channel or a message: 1 to 256 printable characters, not all white space."""
    return bool(text.strip()) and len(text) <= 256 and text.isprintable()


def check_agent_id(text: str) -> str:
    """Return the agent id.

    Raises:
        ConfigError: it could not be a file's name.
    """
    if not is_agent_id(text):
        raise ConfigError(f"agent id {text!r} is not allowed; use lower-case letters, digits, '-' and '_', at most 64")
    return text


def find_yaml(folder: Path, stem: str) -> Path | None:
    """Return ``<stem>.yaml`` or ``<stem>.yml``, None when there is neither.

    Raises:
        ConfigError: both spellings are there.
    """
    found = [path for path in (folder / f"{stem}.yaml", folder / f"{stem}.yml") if path.is_file()]
    if len(found) > 1:
        raise ConfigError(Problem(f"stands beside {found[0].name}; keep one of the two", str(found[1])))
    return found[0] if found else None


def yaml_stems(folder: Path) -> list[str]:
    """Return the names, without ending, of the YAML files of a folder, sorted; drafts are left out."""
    if not folder.is_dir():
        return []
    stems = {path.stem for path in folder.iterdir() if path.suffix in (".yaml", ".yml")}
    return sorted(stem for stem in stems if not stem.endswith(DRAFT))
