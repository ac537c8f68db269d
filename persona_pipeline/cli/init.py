"""``persona-pipeline init``: a small world to start from, and the files to deploy one with."""

import os
import re
from collections.abc import Mapping
from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated

import typer

from persona_pipeline.errors import ConfigError, Problem

# Names that would mean something where the template itself is kept.
_RENAMED = {"gitignore": ".gitignore", "gitattributes": ".gitattributes", "keep": ".gitkeep"}
DEPLOY, _DAGSTER = "deploy", "dagster.yaml"


def init(
    directory: Annotated[Path, typer.Argument(help="Folder of the new world; made if it is not there.")],
    deploy: Annotated[
        bool,
        typer.Option("--deploy", help="Also write deploy/ (Compose and Kubernetes); where a world is, only that."),
    ] = False,
) -> None:
    """Write a small world of your own: two agents, their messages, and propositions for every dimension.

    Nothing is overwritten: if a file is in the way, nothing is written.
    """
    there = (directory / "personas").is_dir()
    written = write_new(directory, deployment(directory) if deploy and there else new_world(directory, deploy=deploy))
    typer.echo(f"{len(written)} files written to {directory}")
    typer.echo("Next:")
    if directory.resolve() != Path.cwd():
        typer.echo(f"  cd {directory}")
    if not (deploy and there):
        typer.echo("  persona-pipeline validate")
        typer.echo("  persona-pipeline evaluate --judge anthropic --record --samples 3    (needs ANTHROPIC_API_KEY)")
        typer.echo("  persona-pipeline baseline --samples 3")
    if deploy:
        typer.echo("  cp deploy/example.env deploy/.env && chmod 600 deploy/.env           (then fill it in)")
        typer.echo("  docker compose -f deploy/compose.yaml --env-file deploy/.env up --build --detach --wait")


def create_world(directory: Path) -> list[Path]:
    """Write the template world and return its files.

    Raises:
        ConfigError: a file is in the way (each is named), or the folder cannot be written.
    """
    return write_new(directory, new_world(directory))


def new_world(directory: Path, *, deploy: bool = False) -> dict[str, str]:
    """Return the files of the template world, text by path."""
    with as_file(files("persona_pipeline.world") / "template") as template:
        sources = sorted(path for path in template.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        world = {
            source.relative_to(template).with_name(_RENAMED.get(source.name, source.name)).as_posix(): source.read_text(
                encoding="utf-8"
            )
            for source in sources
        }
    return {**world, **(deployment(directory) if deploy else {})}


def deployment(directory: Path) -> dict[str, str]:
    """Return the files that a world in this folder is deployed with, text by path; ``dagster.yaml`` where it has none."""
    from persona_pipeline.deployment import render_deployment

    name = re.sub(r"[^a-z0-9]+", "-", directory.resolve().name.lower()).strip("-") or "personas"
    written = {f"{DEPLOY}/{path}": text for path, text in render_deployment(name).items()}
    settings = files("persona_pipeline.world") / "template" / _DAGSTER
    return written if (directory / _DAGSTER).exists() else {_DAGSTER: settings.read_text(encoding="utf-8"), **written}


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
