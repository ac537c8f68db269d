"""``persona-pipeline report``: render what the store holds, over time."""

import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from persona_pipeline.cli.options import Agents, names
from persona_pipeline.errors import ConfigError


def report(
    agents: Agents = "all",
    since: Annotated[
        str | None, typer.Option(help="Only windows that end after this: a time, or a length such as 30d.")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Write to this file instead of stdout.")] = None,
    format: Annotated[str, typer.Option(help="html, json, markdown or junit.")] = "html",
) -> None:
    """Render the newest evaluation of each agent with its history; judges nothing."""
    from persona_pipeline.evaluation.request import select_agents
    from persona_pipeline.evaluation.stored import stored_report
    from persona_pipeline.reporting.gathering import gather
    from persona_pipeline.reporting.many import MANY, MOST_WHOLE
    from persona_pipeline.reporting.render import render
    from persona_pipeline.reporting.table import print_table
    from persona_pipeline.world import World

    world = World.open()
    after = _since(since, world.newest_message_time())
    chosen = select_agents(world, names(agents))
    # A page of many agents shows the claims of those that need a look; every other format says everything of everybody.
    whole = MOST_WHOLE if format == "html" and len(chosen) > MANY else None
    run = gather(world, stored_report(world, chosen, since=after, whole=whole), since=after)
    print_table(run, sys.stderr, exits=False)
    text = render(run, format)
    if output is None:
        sys.stdout.write(text)
        return
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(text, encoding="utf-8")
    typer.echo(f"report written: {output}", err=True)


def _since(text: str | None, newest: datetime | None) -> datetime | None:
    if text is None:
        return None
    from persona_pipeline.cli.options import moment
    from persona_pipeline.world import parse_window

    try:
        return newest - parse_window(text) if newest else None
    except ConfigError:
        return moment(text, "--since")
