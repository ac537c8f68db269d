"""``persona-pipeline init``, ``migrate``, ``schema`` and ``forget``: a world begun, its databases kept up."""

import json
import os
import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

import typer

from persona_pipeline.base.errors import ConfigError

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
    from persona_pipeline.world.world import template_world, write_new

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
    from persona_pipeline.world.world import template_world, write_new

    return write_new(directory, template_world())


def deployment(directory: Path) -> dict[str, str]:
    """Return the files that a world in this folder is deployed with, text by path; ``dagster.yaml`` where it has none."""
    from persona_pipeline.deployment import render_deployment

    name = re.sub(r"[^a-z0-9]+", "-", directory.resolve().name.lower()).strip("-") or "personas"
    written = {f"{DEPLOY}/{path}": text for path, text in render_deployment(name).items()}
    settings = files("persona_pipeline.world") / "template" / _DAGSTER
    return written if (directory / _DAGSTER).exists() else {_DAGSTER: settings.read_text(encoding="utf-8"), **written}


def migrate() -> None:
    """Bring the store, and with DAGSTER_HOME set Dagster's own storage too, to the newest schema; does nothing where they are.

    Whatever opens the store does the first by itself. In a deployment this command goes before all else, so that a migration which
    fails stops the upgrade and nothing else.
    """
    from persona_pipeline.base.database.engine import HEAD, open_store

    open_store().close()
    typer.echo(f"store: {HEAD}")
    if not os.environ.get("DAGSTER_HOME"):
        typer.echo("Dagster: DAGSTER_HOME is not set, nothing to do")
        return
    # Loading Dagster costs seconds and is its own command's affair; what it says is shown as it comes.
    done = subprocess.run([sys.executable, "-W", "ignore", "-m", "dagster", "instance", "migrate"], check=False)
    if done.returncode:
        raise ConfigError("Dagster's storage could not be migrated; what it says stands above")


def schema(
    directory: Annotated[
        Path,
        typer.Argument(
            help="Where propositions.json, persona.json, suite.json, label.json and world.json are written."
        ),
    ] = Path("schemas"),
) -> None:
    """Write the JSON schemas of persona, proposition and suite files, of a label, and of a world's settings."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in schema_texts().items():
        (directory / name).write_text(text, encoding="utf-8")
        typer.echo(str(directory / name))


def schema_texts() -> dict[str, str]:
    """Return the schema files by name."""
    from persona_pipeline.guard.labels.files import Label
    from persona_pipeline.suites.importing.config import suite_schema
    from persona_pipeline.world.personas import PersonaFile
    from persona_pipeline.world.propositions.models import PropositionFile
    from persona_pipeline.world.settings import WorldFile

    return {
        "propositions.json": _text(PropositionFile.model_json_schema()),
        "persona.json": _text(PersonaFile.model_json_schema()),
        "suite.json": _text(suite_schema()),
        "world.json": _text(WorldFile.model_json_schema()),
        "label.json": _text(Label.model_json_schema()),
    }


def _text(data: dict[str, Any]) -> str:
    return json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **data}, indent=2) + "\n"


def forget(
    days: Annotated[
        int | None, typer.Option(min=1, help="Windows that ended longer ago; default PERSONA_KEEP_REASONS_DAYS.")
    ] = None,
) -> None:
    """Take claims, reasons and quotes out of old runs; scores, findings, histories and trends stay."""
    from persona_pipeline.base.settings import get_settings
    from persona_pipeline.world.runs import forget_reasons
    from persona_pipeline.world.world import World

    days = days or get_settings().keep_reasons_days
    if days is None:
        raise ConfigError("nothing says how old: add --days, or set PERSONA_KEEP_REASONS_DAYS")
    count = forget_reasons(World.open().store, days)
    typer.echo(f"{count} runs keep their scores and nothing more", err=True)
