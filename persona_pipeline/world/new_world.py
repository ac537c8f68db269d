"""A world to start from: two agents, their messages, and claims for every dimension."""

import os
from collections.abc import Mapping
from importlib.resources import as_file, files
from pathlib import Path

from persona_pipeline.errors import ConfigError, Problem

# Names that would mean something where the template itself is kept.
_RENAMED = {"gitignore": ".gitignore", "gitattributes": ".gitattributes", "keep": ".gitkeep"}


def template_world() -> dict[str, str]:
    """Return the files of the template world, text by path."""
    with as_file(files("persona_pipeline.world") / "template") as template:
        sources = sorted(path for path in template.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        return {
            source.relative_to(template).with_name(_RENAMED.get(source.name, source.name)).as_posix(): source.read_text(
                encoding="utf-8"
            )
            for source in sources
        }


def write_new(directory: Path, texts: Mapping[str, str]) -> list[Path]:
    """Write files, text by path, and return them.

    Raises:
        ConfigError: a file is in the way (each is named), or the folder cannot be written; nothing is written then.
    """
    targets = {directory / name: text for name, text in texts.items()}
    # A broken link is in the way too.
    taken = [target for target in targets if os.path.lexists(target)]
    if taken:
        raise ConfigError([Problem("exists already; choose another folder or remove it", str(path)) for path in taken])
    try:
        for target, text in targets.items():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigError(f"{directory} cannot be written ({reason}); choose another folder") from error
    return [*targets]
