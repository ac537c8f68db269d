"""``persona-pipeline init``: a small world to start from."""

import os
import shutil
from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated

import typer

from persona_pipeline.errors import ConfigError, Problem

# Names that would mean something where the template itself is kept.
_RENAMED = {"gitignore": ".gitignore", "gitattributes": ".gitattributes", "keep": ".gitkeep"}


def init(directory: Annotated[Path, typer.Argument(help="Folder of the new world; made if it is not there.")]) -> None:
    """Write a small world of your own: two agents, their messages, and propositions for every dimension.

    Nothing is overwritten: if a file is in the way, nothing is written.
    """
    written = create_world(directory)
    typer.echo(f"{len(written)} files written to {directory}")
    typer.echo("Next:")
    if directory.resolve() != Path.cwd():
        typer.echo(f"  cd {directory}")
    typer.echo("  persona-pipeline validate")
    typer.echo("  persona-pipeline evaluate --judge anthropic --record --samples 3    (needs ANTHROPIC_API_KEY)")
    typer.echo("  persona-pipeline baseline --samples 3")


def create_world(directory: Path) -> list[Path]:
    """Write the template world and return its files.

    Raises:
        ConfigError: a file is in the way (each is named), or the folder cannot be written.
    """
    with as_file(files("persona_pipeline.world") / "template") as template:
        sources = sorted(path for path in template.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        targets = {source: _target(directory, source.relative_to(template)) for source in sources}
        # A broken link is in the way too.
        taken = [target for target in targets.values() if os.path.lexists(target)]
        if taken:
            raise ConfigError(
                [Problem("exists already; choose another folder or remove it", str(path)) for path in taken]
            )
        try:
            for source, target in targets.items():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise ConfigError(f"{directory} cannot be written ({reason}); choose another folder") from error
    return list(targets.values())


def _target(directory: Path, relative: Path) -> Path:
    return directory / relative.with_name(_RENAMED.get(relative.name, relative.name))
