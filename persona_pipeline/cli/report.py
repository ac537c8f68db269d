"""``persona-pipeline report``: render what the store holds, over time."""

import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.cli.options import Agents, names

if TYPE_CHECKING:
    from persona_pipeline.guard.report import RunReport

TABLES = ("csv", "parquet")


def report(
    agents: Agents = "all",
    since: Annotated[
        str | None, typer.Option(help="Only windows that end after this: a time, or a length such as 30d.")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Write to this file instead of stdout.")] = None,
    format: Annotated[str, typer.Option(help="html, json, markdown, junit, prometheus, csv or parquet.")] = "html",
    by: Annotated[str, typer.Option(help="A row of csv and parquet: an agent, a dimension or a claim.")] = "dimension",
) -> None:
    """Render the newest evaluation of each agent with its history; judges nothing."""
    from persona_pipeline.base.files import write_atomically
    from persona_pipeline.evaluation.history import report_of
    from persona_pipeline.evaluation.read import WorldReader
    from persona_pipeline.guard.gate import GateRules
    from persona_pipeline.reporting.render import render
    from persona_pipeline.reporting.statistics import gather
    from persona_pipeline.reporting.terminal import print_report
    from persona_pipeline.reporting.view import MANY, MOST_WHOLE
    from persona_pipeline.world.world import World

    world = World.open()
    after = _since(since, world.newest_message_time())
    chosen = world.chosen(names(agents))
    # A page of many agents shows the claims of those that need a look; every other format says everything of everybody.
    whole = MOST_WHOLE if format == "html" and len(chosen) > MANY else None
    reports = WorldReader(world).reports(chosen, after, whole=whole)
    run = gather(world, report_of(reports, GateRules()), since=after)
    print_report(run, exits=False)
    content = _table(run, by, format) if format in TABLES else render(run, format)
    if output is None:
        if isinstance(content, bytes):
            raise ConfigError(f"--format {format} is no text; say with --output where it goes")
        sys.stdout.write(content)
        return
    write_atomically(output, content)
    typer.echo(f"report written: {output}", err=True)


def _table(run: "RunReport", by: str, format: str) -> str | bytes:
    from persona_pipeline.api.frames import report_frame

    frame = report_frame(run, by)
    if format == "csv":
        return frame.to_csv(index=False, date_format="%Y-%m-%dT%H:%M:%S%z")
    try:
        return frame.to_parquet(index=False)
    except ImportError as error:
        raise ConfigError(
            "parquet needs a package that is not installed; pip install 'persona-pipeline[parquet]'"
        ) from error


def _since(text: str | None, newest: datetime | None) -> datetime | None:
    if text is None:
        return None
    from persona_pipeline.cli.options import moment
    from persona_pipeline.world.models import parse_window

    try:
        return newest - parse_window(text) if newest else None
    except ConfigError:
        return moment(text, "--since")
