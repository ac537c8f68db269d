"""``persona-pipeline personas import`` and ``export``: character cards in and out."""

from pathlib import Path
from typing import Annotated

import typer

from persona_pipeline.cli.drafts import personas
from persona_pipeline.errors import ConfigError


@personas.command("import")
def import_cards(
    cards: Annotated[list[Path], typer.Argument(metavar="CARD...", help="Cards, V1 to V3: JSON, PNG or CHARX.")],
    agent: Annotated[str | None, typer.Option(help="The agent's id; default: made of the character's name.")] = None,
) -> None:
    """Make personas of character cards: personas/AGENT.yaml, and the card as it came in cards/. Overwrites nothing."""
    from persona_pipeline.cards.files import card_notes, import_card, read_card
    from persona_pipeline.reporting.text import one_line
    from persona_pipeline.world import World

    if agent is not None and len(cards) > 1:
        raise ConfigError("--agent names one agent; import cards one by one to name them")
    root = World.open().root
    for path in cards:
        agent_id, written = import_card(root, path, agent)
        typer.echo(f"{agent_id}: {', '.join(item.relative_to(root).as_posix() for item in written)}")
        for note in card_notes(read_card(written[-1]).card):
            typer.echo(f"  {one_line(note)}", err=True)


@personas.command("export")
def export_one(
    agent: Annotated[str, typer.Argument(help="The agent's id.")],
    format_name: Annotated[
        str | None, typer.Option("--format", help="json, png or charx; default: the card's own, else json.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Where to; default: AGENT.json, .png or .charx here.")] = None,
    image: Annotated[
        Path | None, typer.Option(help="The picture of a card in a PNG; default: the one it came in.")
    ] = None,
    force: Annotated[bool, typer.Option(help="Replace a file that is there.")] = False,
) -> None:
    """Write an agent's persona as a character card: the card it came from, with what was edited since, or a new one."""
    from persona_pipeline.atomic_files import write_atomically
    from persona_pipeline.cards.files import CardFormat, export_card
    from persona_pipeline.world import World

    if format_name is not None and format_name not in list(CardFormat):
        raise ConfigError(f"--format {format_name}: write {', '.join(CardFormat)}")
    exported = export_card(World.open().root, agent, CardFormat(format_name) if format_name else None, image)
    path = out or Path(f"{agent}.{exported.format}")
    if path.exists() and not force:
        raise ConfigError(f"{path} is there already; name another with --out, or replace it with --force")
    write_atomically(path, exported.data)
    for note in exported.notes:
        typer.echo(note, err=True)
    typer.echo(f"{path}")
