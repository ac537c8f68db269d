"""``persona-pipeline messages``: what agents said, in the store."""

from typing import Annotated

import typer

from persona_pipeline.cli import options

app = typer.Typer(help="Messages in the store.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Messages in the store."""


@app.command()
def remove(
    agent: Annotated[
        list[str] | None, typer.Option(help="Whose: an agent's id. May be repeated, as all of these.")
    ] = None,
    speaker: Annotated[list[str] | None, typer.Option(help="Who wrote them, by the name in the file.")] = None,
    ids: Annotated[list[str] | None, typer.Option("--id", help="A message's id.")] = None,
    source: Annotated[list[str] | None, typer.Option(help="The file they came from.")] = None,
    between: Annotated[
        tuple[str, str] | None,
        typer.Option(help="From when to when they were sent, both included (RFC 3339 with offset)."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Remove them; without it, they are only counted.")] = False,
) -> None:
    """Take messages out of the store: those to which all of the options apply. Files are not touched.

    A removed message stays out when its file is read again, until the file says something else of it or it is ingested with
    --restore.
    """
    from persona_pipeline.world import World
    from persona_pipeline.world.removing import Selection, remove_messages, select_messages

    world = World.open()
    span = None
    if between:
        first, last = (options.moment(text, "--between") for text in between)
        span = (first, last) if first and last else None
    # What stands in the world's files counts as stored: an evaluation would bring it in.
    world.sync_messages()
    sources = [name for text in source or [] for name in dict.fromkeys([text, world.message_source(text)])]
    selection = Selection(agent or (), speaker or (), ids or (), sources, span)
    selected = select_messages(world.store, selection)
    agents = ", ".join(f"{name} {count}" for name, count in sorted(selected.agents.items()))
    typer.echo(
        f"{len(selected.ids)} messages ({agents}), {selected.first:%Y-%m-%d %H:%M} to {selected.last:%Y-%m-%d %H:%M} UTC"
    )
    for name, count in sorted(selected.sources.items(), key=lambda item: item[0] or ""):
        typer.echo(f"  {count} from {name or 'a runtime, or an earlier version'}")
    if not yes:
        typer.echo("nothing is removed yet; add --yes to remove them", err=True)
        return
    count = remove_messages(world.store, selected)
    typer.echo(f"{count} removed; evaluate --touched judges the windows again that they were in")
