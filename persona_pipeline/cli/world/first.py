"""``persona-pipeline try``: a first finding from an export, without key or world, and a world to go on with."""

import shutil
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from persona_pipeline.base.errors import ConfigError, NothingError, Problem, by_kind
from persona_pipeline.base.options import EvaluationRequest, moment
from persona_pipeline.base.status import Result
from persona_pipeline.base.text import shown_json
from persona_pipeline.cli.running import end
from persona_pipeline.cli.world.messages import ExportFormat, Mapped, Starting, asked_once, mapping_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from persona_pipeline.importing.run import Imported, ImportOptions
    from persona_pipeline.lab.first import AgentLook, Cast
    from persona_pipeline.world.models import Message

# Samples of the judge that are priced.
_SAMPLES = 3
# Lines that could not be read and are named, as many as a screen has room for.
_NAMED = 10
# If an export was read only in part, the absence of findings is not a pass.
_LEAST_READ = 0.95
# Made-up times start this far back, so that one conversation per minute does not reach the future.
_AGO = timedelta(days=60)


def first(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="Exports: files or folders; - is standard input.")
    ],
    format_name: ExportFormat = None,
    mapped: Mapped = None,
    starting: Starting = None,
    agent: Annotated[
        list[str] | None, typer.Option(help="Name of an agent in the export; all others are people. May be repeated.")
    ] = None,
    people: Annotated[list[str] | None, typer.Option(help="Name of a person, not an agent. May be repeated.")] = None,
    output: Annotated[
        Path | None,
        typer.Option(help="Folder of the world that is written; default: the first file's name and -world."),
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Say more: every agent, what voices rest on.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead.")] = False,
) -> None:
    """First finding from an export, without key or world: who changed, since when.

    It makes no API calls, and nothing leaves the machine. It writes a world for `evaluate`.

    Exit codes: 0 nothing found, 1 a finding, 2 nothing could be read, 3 too few messages, or less than 95 % of lines read.
    """
    from persona_pipeline.importing.run import ImportOptions, ReadOptions
    from persona_pipeline.lab.first import cast_of, first_look, overall
    from persona_pipeline.reporting.text import template_text
    from persona_pipeline.scoring.style.model import languages

    folder = output or Path(f"{Path(files[0]).resolve().stem if files[0] != '-' else 'stdin'}-world")
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        said = "is there already and is not written over; name another folder with --output"
        raise ConfigError(Problem(said, str(folder)))
    speakers, fields = mapping_of(mapped or [])
    reading = ReadOptions(fields, moment(starting, "--starting"))
    options = ImportOptions(format_name, speakers, reading)
    (messages, imported, dated), answers = asked_once(options, lambda clear: _read(files, clear, verbose=verbose))
    cast = cast_of(messages, agent or (), people or ())
    look = first_look(cast, dated=dated)
    unread, result = len(imported.result.problems) + imported.result.unnamed, overall(look)
    if result is Result.HELD and unread > (1 - _LEAST_READ) * (len(messages) + unread):
        result = Result.CANNOT_TELL
    facts = {"result": result, "messages": len(messages), "unread": unread, "formats": imported.formats, "dated": dated}
    facts |= {"told_by": cast.why, "people": cast.people, "left_out": cast.left_out, "everyday": languages()}
    facts |= {"agents": [_told(item) for item in look]} | _written(folder, cast, look, {**fields, **answers})
    typer.echo(shown_json(facts, 2) if as_json else template_text("first", {**facts, "verbose": verbose}))
    end(result.status.exit_code)


def _read(
    files: list[str], options: "ImportOptions", *, verbose: bool = False
) -> tuple["list[Message]", "Imported", bool]:
    """Return messages, how they were read, and whether their times are real: an export without times gets made-up ones."""
    from persona_pipeline.importing.run import read_export
    from persona_pipeline.world.world import utc_now

    dated = True
    messages, imported = read_export(files, options)
    if not messages and options.reading.starting is None and "-" not in files:
        reading, dated = replace(options.reading, starting=utc_now() - _AGO), False
        messages, imported = read_export(files, replace(options, reading=reading))
    unread = imported.result.problems
    lines = [*map(str, unread)] if verbose else by_kind(unread)[:_NAMED]
    typer.echo("".join(f"{line}\n" for line in (*imported.shared_names, *lines)), err=True, nl=False)
    if not messages:
        said = f"no message in {', '.join(files)}, read as {', '.join(sorted({*imported.formats.values()}))}"
        # Lines that are not valid are bad input; a source without any is nothing to look at.
        kind = ConfigError if unread else NothingError
        raise kind(f"{said}; say what it is with --format, or which keys are a message's with --map KEY=FIELD")
    return messages, imported, dated


def _told(look: "AgentLook") -> dict[str, Any]:
    findings = [asdict(item) | {"drift": item.drift.model_dump(mode="json")} for item in look.findings]
    return asdict(look) | {"result": look.result, "findings": findings}


def _written(folder: Path, cast: "Cast", looks: "Sequence[AgentLook]", fields: dict[str, str]) -> dict[str, Any]:
    """Write the world, and return its facts for the report, with the cost of a judge there."""
    from persona_pipeline.evaluation.estimate import estimate_run
    from persona_pipeline.lab.first import closest_voices, drift_files, drift_of, world_files
    from persona_pipeline.world.settings import remember
    from persona_pipeline.world.world import World, write_new

    drifts = [drift for look in looks if (drift := drift_of(look))]
    write_new(folder, {**world_files(cast), **drift_files(drifts)})
    try:
        # Speakers who are not agents here are people in that world, too.
        remember(folder, fields=fields, people=cast.people)
        world = World.open(folder, f"sqlite:///{folder.resolve()}/.persona/store.db")
        # The API is not even asked how many tokens it is: it would be shown the messages.
        cost = estimate_run(world, EvaluationRequest(samples=_SAMPLES), count=False).judging
    except Exception:
        # From here on the folder is this command's. Half a world would be in the way of the next run.
        shutil.rmtree(folder, ignore_errors=True)
        raise
    judging = {"calls": cost.usage.calls, "model": cost.model, "usd": cost.usd}
    judged = [f"--samples {_SAMPLES}", "--judge anthropic", "--record"]
    times = sorted(message.created_at for parts in cast.parts.values() for part in parts for message in part)
    day = min((drift.since - timedelta(seconds=1) for drift in drifts), default=times[len(times) // 2])
    taking = {"baselines": [drift.command(judged) for drift in drifts], "since": f"{day:%Y-%m-%dT%H:%M:%SZ}"}
    return {"closest": closest_voices(cast), **taking, "judging": judging, "samples": _SAMPLES, "world": str(folder)}
