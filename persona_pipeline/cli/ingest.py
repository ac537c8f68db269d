"""``persona-pipeline ingest``: messages from a file into the store."""

from pathlib import Path
from typing import Annotated

import typer


def ingest(
    file: Annotated[
        Path, typer.Argument(help="A .jsonl or .csv file with id, agent_id, channel or recipient, text, created_at.")
    ],
) -> None:
    """Add messages to the store. A message that is known is not doubled; a line that is not valid is named and left out."""
    from persona_pipeline.world import World

    result = World.open().ingest(file)
    written = result.written
    for problem in result.problems:
        typer.echo(str(problem), err=True)
    typer.echo(
        f"{written.inserted} added, {written.updated} changed, {written.unchanged} known, {len(result.problems)} left out"
    )
    raise typer.Exit(2 if result.problems else 0)
