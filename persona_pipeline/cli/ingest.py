"""``persona-pipeline ingest``: messages from a file into the store."""

from pathlib import Path
from typing import Annotated

import typer

from persona_pipeline.errors import ConfigError


def ingest(
    file: Annotated[
        Path, typer.Argument(help="A .jsonl or .csv file with id, agent_id, channel or recipient, text, created_at.")
    ],
    mapped: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            help="SPEAKER=AGENT: read the file as if it called this speaker by the agent's id. May be repeated; aliases in the "
            "persona file do it for good.",
        ),
    ] = None,
    restore: Annotated[
        bool, typer.Option(help="Bring back messages of this file that were taken out with messages remove.")
    ] = False,
) -> None:
    """Add messages to the store. A message that is known is not doubled; a line that is not valid is named and left out."""
    from persona_pipeline.world import World
    from persona_pipeline.world.aliases import alias_problems
    from persona_pipeline.world.speakers import stored_names

    world = World.open()
    result = world.ingest(file, mapping=_mapping(mapped or []), restore=restore)
    written = result.written
    for problem in result.problems:
        typer.echo(str(problem), err=True)
    if result.unnamed:
        typer.echo(f"and {result.unnamed} more lines that were left out", err=True)
    left_out = len(result.problems) + result.unnamed
    kept_out = (
        f", {written.kept_out} removed before and kept out (--restore brings them back)" if written.kept_out else ""
    )
    typer.echo(
        f"{written.inserted} added, {written.updated} changed, {written.unchanged} known, {left_out} left out"
        + kept_out
    )
    # What the world's own files hold counts when it is said who is silent, and what was stored before follows aliases that are new.
    world.sync_messages()
    wrong = dict.fromkeys(problem for found in alias_problems(world.names()).values() for problem in found)
    for line in (*(str(problem) for problem in wrong), *stored_names(world).among(result.speakers).lines()):
        typer.echo(line, err=True)
    raise typer.Exit(2 if result.problems else 0)


def _mapping(given: list[str]) -> dict[str, str]:
    found = {}
    for item in given:
        speaker, sign, agent_id = item.rpartition("=")
        if not (sign and speaker and agent_id):
            raise ConfigError(f"--map {item}: write SPEAKER=AGENT, such as --map Micheal=michael")
        found[speaker] = agent_id
    return found
