"""``persona-pipeline ingest``: messages from files, folders and standard input into the store."""

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from persona_pipeline.cli.options import moment
from persona_pipeline.errors import ConfigError

if TYPE_CHECKING:
    from persona_pipeline.importing.run import Imported

_MOST_NAMED = 12


def ingest(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Files or folders; - is standard input.")],
    format_name: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="messages (JSON lines or CSV with id, agent_id, channel or recipient, text, created_at), openai, slack, langfuse, "
            "langsmith, sillytavern, or one that another package adds; default: by a look at each.",
        ),
    ] = None,
    mapped: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            help="SPEAKER=AGENT: read it as if it called a speaker by the agent's id; aliases in the persona file do it for good. "
            "KEY=FIELD: the message's field (id, agent_id, channel, recipient, text, created_at, run_id) stands under this key, "
            "such as body.text=text. May be repeated.",
        ),
    ] = None,
    starting: Annotated[
        str | None,
        typer.Option(help="When the first conversation began (RFC 3339 with offset), for formats that say no times."),
    ] = None,
    restore: Annotated[
        bool, typer.Option(help="Bring back messages of these files that were taken out with messages remove.")
    ] = False,
) -> None:
    """Add messages to the store. A message that is known is not doubled; a line that is not valid is named and left out."""
    from persona_pipeline.importing import ReadOptions
    from persona_pipeline.importing.run import ImportOptions, import_messages
    from persona_pipeline.world import World
    from persona_pipeline.world.aliases import alias_problems
    from persona_pipeline.world.speakers import stored_names

    speakers, fields = _mapping(mapped or [])
    options = ImportOptions(format_name, speakers, ReadOptions(fields, moment(starting, "--starting")), restore)
    world = World.open()
    imported = import_messages(world, files, options)
    _tell(imported)
    # What the world's own files hold counts when it is said who is silent, and what was stored before follows aliases that are new.
    world.sync_messages()
    wrong = dict.fromkeys(problem for found in alias_problems(world.names()).values() for problem in found)
    named = stored_names(world).among(imported.result.speakers)
    for line in (*(str(problem) for problem in wrong), *named.lines()):
        typer.echo(line, err=True)
    raise typer.Exit(2 if imported.result.problems else 0)


def _tell(imported: "Imported") -> None:
    from persona_pipeline.reporting.text import one_line

    result = imported.result
    for problem in result.problems:
        typer.echo(str(problem), err=True)
    if result.unnamed:
        typer.echo(f"and {result.unnamed} more lines that were left out", err=True)
    for what, counts in (("no messages", imported.skipped), ("kept beside messages, not judged", imported.extras)):
        if counts:
            typer.echo(f"{what}: {one_line(_counted(counts))}", err=True)
    if imported.cut:
        typer.echo(f"of {imported.cut} messages some keys were too much to keep; _cut names them", err=True)
    for name, used in imported.formats.items():
        if used != "messages":
            typer.echo(f"{one_line(name)}: read as {used}", err=True)
    written, left_out = result.written, len(result.problems) + result.unnamed
    kept_out = (
        f", {written.kept_out} removed before and kept out (--restore brings them back)" if written.kept_out else ""
    )
    typer.echo(
        f"{written.inserted} added, {written.updated} changed, {written.unchanged} known, {left_out} left out"
        + kept_out
    )


def _counted(counts: Counter[str]) -> str:
    """Return what was counted, the most first."""
    found = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    shown = ", ".join(f"{count} {name}" for name, count in found[:_MOST_NAMED])
    return shown + (f" and {len(found) - _MOST_NAMED} other keys" if len(found) > _MOST_NAMED else "")


def _mapping(given: list[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return agents by speaker, and fields of messages by key."""
    from persona_pipeline.world.reading import FIELDS

    speakers: dict[str, str] = {}
    fields: dict[str, str] = {}
    for item in given:
        name, sign, target = item.rpartition("=")
        if not (sign and name and target):
            raise ConfigError(
                f"--map {item}: write SPEAKER=AGENT, such as --map Micheal=michael, or KEY=FIELD, such as --map body.text=text"
            )
        (fields if target in FIELDS else speakers)[name] = target
    return speakers, fields
