"""``persona-pipeline try``: a first finding from an export, without key or world, and a world to go on with."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from persona_pipeline.base.errors import EXIT_COVERAGE, EXIT_OK, EXIT_REGRESSION, ConfigError, Problem, Result
from persona_pipeline.base.options import EvaluationRequest, moment
from persona_pipeline.base.text import shown_json
from persona_pipeline.cli.world.messages import ExportFormat, Mapped, Starting, mapping_of

if TYPE_CHECKING:
    from persona_pipeline.importing.run import Imported
    from persona_pipeline.lab.first.cast import Cast
    from persona_pipeline.lab.first.look import AgentLook
    from persona_pipeline.world.models import Message

_EXITS = {Result.FELL: EXIT_REGRESSION, Result.HELD: EXIT_OK, Result.CANNOT_TELL: EXIT_COVERAGE}
_WORDS = {Result.FELL: "changed", Result.HELD: "nothing found", Result.CANNOT_TELL: "cannot be told"}
_LINE, _MAPPED, _NAMED, _FINDINGS, _PAIRS = 110, 300, 12, 5, 2
# Of an export that was read in part, no finding is no pass.
_LEAST_READ = 0.95
# Made-up times lie so far back that a conversation a minute does not come into the future.
_AGO = timedelta(days=60)
_SAMPLES = 3


def first(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="Exports: files or folders; - is standard input.")
    ],
    format_name: ExportFormat = None,
    mapped: Mapped = None,
    starting: Starting = None,
    agent: Annotated[
        list[str] | None,
        typer.Option(help="Who is an agent, by its name in the export; all others are people. May be repeated."),
    ] = None,
    people: Annotated[list[str] | None, typer.Option(help="Who is a person and no agent. May be repeated.")] = None,
    output: Annotated[
        Path | None,
        typer.Option(help="Folder of the world that is written; default: the first file's name and -world."),
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Say more: every agent, what voices rest on.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead.")] = False,
) -> None:
    """First finding from an export, without key or world: who no longer sounds like itself, since when, with the lines.

    No model is asked and nothing leaves the machine. Writes a world that evaluate goes on with. Exit code 1: a finding; 0: nothing
    found; 3: nobody's voice can be told, or less than 95 % of the lines could be read; 2: no line could be read.
    """
    from persona_pipeline.evaluation.estimate import estimate_run
    from persona_pipeline.judging.estimate import in_dollars
    from persona_pipeline.lab.first.cast import cast_of, world_files
    from persona_pipeline.lab.first.look import first_look, overall
    from persona_pipeline.reporting.pages.evaluation import voice_map_file
    from persona_pipeline.reporting.statistics import voices_alike
    from persona_pipeline.reporting.text import plural
    from persona_pipeline.world.world import World, write_new

    folder = output or Path(f"{Path(files[0]).resolve().stem if files[0] != '-' else 'stdin'}-world")
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        said = "is there already and is not written over; name another folder with --output"
        raise ConfigError(Problem(said, str(folder)))
    messages, imported, dated = _read(files, format_name, mapped or [], moment(starting, "--starting"))
    unread = len(imported.result.problems) + imported.result.unnamed
    for problem in imported.result.problems:
        typer.echo(str(problem), err=True)
    if not messages:
        formats = ", ".join(sorted({*imported.formats.values()}))
        said = f"no message in {', '.join(files)}, read as {formats}: {plural(unread, 'line')} could not be read"
        raise ConfigError(f"{said}; say what it is with --format, or which keys are a message's with --map KEY=FIELD")
    cast = cast_of(messages, agent or (), people or ())
    look = first_look(cast, dated=dated)
    before, now = ({name: [m.text for m in part[n][-_MAPPED:]] for name, part in cast.parts.items()} for n in (0, 1))
    voices = voices_alike({name: texts for name, texts in now.items() if texts}, [before], cast.names)
    picture, closest = voice_map_file(voices) if voices else ("", "")
    write_new(folder, {**world_files(cast), **({"voices.svg": picture} if picture else {})})
    world = World.open(folder, f"sqlite:///{folder.resolve()}/.persona/store.db")
    # The API is not even asked how many tokens it is: it would be shown the messages.
    cost = estimate_run(world, EvaluationRequest(samples=_SAMPLES), count=False).judging
    result = overall(look)
    if result is Result.HELD and unread > (1 - _LEAST_READ) * (len(messages) + unread):
        result = Result.CANNOT_TELL
    if as_json:
        read = {"result": result, "messages": len(messages), "unread": unread, "formats": imported.formats}
        who = {"told_by": cast.why, "people": cast.people, "left_out": cast.left_out, "dated": dated}
        agents = [
            {"name": cast.names[item.agent_id], "language": cast.languages[item.agent_id], "result": item.result}
            | asdict(item)
            for item in look
        ]
        judging = {"calls": cost.usage.calls, "model": cost.model, "usd": cost.usd and vars(cost.usd)}
        further = {"agents": agents, "voice_map": voices, "judging": judging, "world": str(folder)}
        typer.echo(shown_json({**read, **who, **further}, indent=2))
        raise typer.Exit(_EXITS[result])
    for line in _told(cast, look, result, verbose):
        typer.echo(line)
    if unread:
        typer.echo(f"Not read: {plural(unread, 'line')} of {len(messages) + unread}, named above.")
    if not dated:
        typer.echo("The export says no times: messages are told by their number, in the order of the file.")
    if closest:
        typer.echo(f"Voices: {closest} Map: {folder / 'voices.svg'}")
    usd = f" {in_dollars(cost.usd)}" if cost.usd else ""
    adds = "A judge adds scores in five dimensions, each with its quotes"
    typer.echo(f"\n{adds}: {plural(cost.usage.calls, 'call')} of {cost.model} for the newest 7 days,{usd}.")
    typer.echo(f"World written to {folder}. Say in personas/*.yaml who they are, then:")
    typer.echo(f"  cd {shlex.quote(str(folder))}")
    typer.echo(
        f"  persona-pipeline evaluate --judge anthropic --record --samples {_SAMPLES}    (needs ANTHROPIC_API_KEY)"
    )
    raise typer.Exit(_EXITS[result])


def _read(
    files: Sequence[str], format_name: str | None, given: Sequence[str], starting: datetime | None
) -> tuple["list[Message]", "Imported", bool]:
    """Return messages, how they were read, and whether they say their times: an export that says none is given some."""
    from persona_pipeline.importing.base import ReadOptions
    from persona_pipeline.importing.run import ImportOptions, read_export
    from persona_pipeline.world.world import utc_now

    speakers, fields = mapping_of(list(given))
    messages, imported = read_export(files, ImportOptions(format_name, speakers, ReadOptions(fields, starting)))
    if messages or starting or "-" in files:
        return messages, imported, starting is None
    made_up = ReadOptions(fields, utc_now() - _AGO)
    return *read_export(files, ImportOptions(format_name, speakers, made_up)), False


def _told(cast: "Cast", look: "Sequence[AgentLook]", result: Result, verbose: bool) -> Iterator[str]:
    """Yield what was found, both lines of each finding, who speaks, and what cannot be told."""
    from persona_pipeline.reporting.text import format_share, one_line, plural

    findings = sorted((one for item in look for one in item.findings), key=lambda one: -one.counted[1])
    for found in findings[: None if verbose else _FINDINGS]:
        yield one_line(found.text[:1].upper() + found.text[1:])
        for earlier, now in found.lines[: None if verbose else _PAIRS]:
            yield f"  before  {one_line(earlier, _LINE)}"
            yield f"  now     {one_line(now, _LINE)}"
    if len(findings) > _FINDINGS and not verbose:
        yield f"and {plural(len(findings) - _FINDINGS, 'finding')} more; -v shows them"
    if not findings:
        told = sum(item.result is Result.HELD for item in look)
        of_all = f"{told} of {plural(len(look), 'agent')}"
        yield (
            f"Nothing found: {of_all} could be told, and changed neither voice nor habits."
            if result is Result.HELD
            else f"Cannot be told: nothing was found, {of_all} could be told."
        )
    yield f"\nAgents, {cast.why} (--agent NAME and --people NAME say otherwise):"
    for item in look[: None if verbose else _NAMED]:
        again, (before, now) = item.said_again, item.repeated
        said = f"said again {again['said_again']} of {again['messages']}"
        yield (
            f"  {one_line(cast.names[item.agent_id], 40)} ({cast.languages[item.agent_id]}): {_WORDS[item.result]}"
            f"{f' ({item.untold})' if item.untold else ''}; {plural(item.learnt + item.followed, 'message')}, {said}, phrases "
            f"that come back {format_share(now)} (before {format_share(before)})"
        )
        yield from (f"    {line}" for line in item.rests_on if verbose)
    if len(look) > _NAMED and not verbose:
        yield f"  and {len(look) - _NAMED} more; -v shows them"
    if cast.left_out:
        yield f"Not looked at: {one_line(', '.join(cast.left_out), _LINE)}; name them with --agent NAME."
    if cast.people:
        named = sorted(cast.people.items(), key=lambda item: -item[1])
        yield f"People: {one_line(', '.join(f'{name} ({count})' for name, count in named), _LINE)}"
    yield "Not seen: a change before half of an agent's messages, which are taken for its own voice (of many, a third)."
