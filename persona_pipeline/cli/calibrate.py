"""``persona-pipeline calibrate``: how far the judge can be believed, as far as people's labels tell."""

import json
from typing import Annotated

import typer

from persona_pipeline.cli.options import names
from persona_pipeline.errors import ConfigError

FORMATS = ("table", "json")


def calibrate(
    dimensions: Annotated[
        str, typer.Option("--dimension", "--dimensions", help="'all', or dimensions with commas between them.")
    ] = "all",
    format: Annotated[str, typer.Option(help="table or json.")] = "table",
    require_calibration: Annotated[
        bool, typer.Option("--require-calibration", help="Fail when a dimension has too few labels to tell.")
    ] = False,
) -> None:
    """Measure each judge against people's labels: rank correlation, weighted kappa, bias, what people would give. Asks nobody.

    Exit codes: 0 no judge is known to be bad, 1 one is no better than chance on a dimension, 2 usage or configuration, 3 not known
    (with --require-calibration).
    """
    from persona_pipeline.evaluation.calibrating import calibrate_world
    from persona_pipeline.reporting.pages.judges import calibration_page
    from persona_pipeline.reporting.terminal import print_page
    from persona_pipeline.world import World

    if format not in FORMATS:
        raise ConfigError(f"--format {format!r} is unknown; use {', '.join(FORMATS)}")
    found = calibrate_world(World.open(), names(dimensions))
    if format == "json":
        data = found.model_dump(mode="json")
        for row, item in zip(data["dimensions"], found.dimensions, strict=True):
            row |= {"missing": item.missing, "belief": item.belief}
        typer.echo(json.dumps(data, indent=2, ensure_ascii=True, allow_nan=False))
    else:
        print_page(calibration_page(found))
    if require_calibration and (not found.dimensions or any(item.missing for item in found.dimensions)):
        raise typer.Exit(3)
    raise typer.Exit(int(any(item.belief == "chance" for item in found.dimensions)))
