"""``persona-pipeline validate``."""

from pathlib import Path
from typing import Annotated

import typer

from persona_pipeline.base.errors import ConfigError, Problem


def validate(
    paths: Annotated[list[Path] | None, typer.Argument(help="Files or folders; by default the whole world.")] = None,
    require_signed: Annotated[
        bool,
        typer.Option(help="Baselines that cannot be taken again from signed recordings are errors, no warnings."),
    ] = False,
) -> None:
    """Check personas, propositions, messages, recordings, labels, baselines and suites.

    Baselines are taken again from the recordings they name, without a call, and compared.

    Every problem is a line on stderr; exit code 2 if there is one.
    """
    from persona_pipeline.base.settings import get_settings
    from persona_pipeline.cli.world.checking import check_paths, check_world

    root = get_settings().world_root
    checked = check_paths(paths) if paths else check_world(root, require_signed=require_signed)
    for warning in checked.warnings:
        typer.echo(f"warning: {warning}", err=True)
    if checked.problems:
        raise ConfigError(list(dict.fromkeys(checked.problems)))
    if not checked.files:
        raise ConfigError(Problem("nothing to validate", str(root)))
    typer.echo("1 file is valid" if checked.files == 1 else f"{checked.files} files are valid")
