"""``persona-pipeline init``: a small world to start from, and the files to deploy one with."""

import re
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from persona_pipeline.world.new_world import template_world, write_new

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
    texts = {} if deploy and there else template_world()
    written = write_new(directory, {**texts, **(deployment(directory) if deploy else {})})
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
    return write_new(directory, template_world())


def deployment(directory: Path) -> dict[str, str]:
    """Return the files that a world in this folder is deployed with, text by path; ``dagster.yaml`` where it has none."""
    from persona_pipeline.deployment import render_deployment

    name = re.sub(r"[^a-z0-9]+", "-", directory.resolve().name.lower()).strip("-") or "personas"
    written = {f"{DEPLOY}/{path}": text for path, text in render_deployment(name).items()}
    settings = files("persona_pipeline.world") / "template" / _DAGSTER
    return written if (directory / _DAGSTER).exists() else {_DAGSTER: settings.read_text(encoding="utf-8"), **written}
