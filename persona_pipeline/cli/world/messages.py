"""``persona-pipeline ingest``, ``collect``, ``watch`` and ``messages``: store, follow and remove messages."""

import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import click
import typer

from persona_pipeline.base.errors import EXIT_CONFIG, EXIT_OK, ConfigError, NothingError, by_kind
from persona_pipeline.base.options import moment
from persona_pipeline.base.text import plural, shown_json
from persona_pipeline.cli.options import (
    Agents,
    HeaderTimeout,
    Host,
    Notify,
    Port,
    TokenEnv,
    names,
    open_world,
    require_token,
    say,
    token_in,
)
from persona_pipeline.cli.running import end, tell

if TYPE_CHECKING:
    from persona_pipeline.importing.run import Imported, ImportOptions, UnclearTableError
    from persona_pipeline.world.world import World

_MOST_NAMED = 12
T = TypeVar("T")


ExportFormat = Annotated[
    str | None,
    typer.Option(
        "--format",
        help="messages (JSON lines or CSV with id, agent_id, channel or recipient, text, created_at), openai, chatgpt, claude, "
        "discord, slack, langfuse, langsmith, sillytavern, otlp, or one that another package adds; default: by a look at each.",
    ),
]
Mapped = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        help="SPEAKER=AGENT: read it as if it called a speaker by the agent's id; aliases in the persona file do it for good. "
        "KEY=FIELD: the message's field (id, agent_id, channel, recipient, text, created_at, run_id, role) stands under this key, "
        "such as body.text=text; created_at:day-first or :month-first says the order of dates. May be repeated.",
    ),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Name every line left out, and who has no persona.")]
Starting = Annotated[
    str | None,
    typer.Option(help="When the first conversation began (RFC 3339 with offset), for formats that say no times."),
]


def ingest(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Files or folders; - is standard input.")],
    format_name: ExportFormat = None,
    mapped: Mapped = None,
    starting: Starting = None,
    restore: Annotated[
        bool, typer.Option(help="Bring back messages of these files that were taken out with messages remove.")
    ] = False,
    marks: Annotated[
        bool,
        typer.Option(
            "--marks",
            help="Keep users' stars, thumbs, swipes and regenerations of agents' messages as labels, in labels/messages.jsonl; "
            "without it they are only counted.",
        ),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(help="New file in messages/ that they are written to instead of the store: CI reads it from git."),
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Add messages to the store, from files or what other programs export.

    Known messages are not stored twice. Invalid lines are left out, and each kind of error is reported once. On a terminal it
    asks once for unclear columns and for people, and keeps the answers in persona.yaml.
    """
    from persona_pipeline.importing.run import ImportOptions, ReadOptions

    speakers, fields = mapping_of(mapped or [])
    options = ImportOptions(format_name, speakers, ReadOptions(fields, moment(starting, "--starting")), restore)
    end(bring_in(open_world(), files, options, marks=marks, output=output, verbose=verbose))


def bring_in(
    world: "World",
    files: Sequence[str],
    options: "ImportOptions",
    *,
    marks: bool = False,
    output: Path | None = None,
    verbose: bool = False,
) -> int:
    """Add messages of files to the store, print a summary and names that do not match; return the exit code.

    ``marks``: keep users' marks as labels. ``output``: a new file for the messages instead of the store. ``verbose``: list items
    that are only counted otherwise. ConfigError: a file cannot be read, or ``output`` is there; NothingError: one has no message.
    """
    from persona_pipeline.importing.run import import_messages, read_export
    from persona_pipeline.world.messages.files import message_lines
    from persona_pipeline.world.names import alias_problems
    from persona_pipeline.world.settings import WORLD_FILE, remember
    from persona_pipeline.world.speakers import stored_names
    from persona_pipeline.world.world import write_new

    def read(clear: "ImportOptions") -> "Imported":
        if output is None:
            return import_messages(world, files, clear)
        messages, found = read_export(files, clear, world.root)
        if messages:
            write_new(output.parent, {output.name: message_lines(messages)})
        return found

    imported, answers = asked_once(options, read)
    if answers:
        remember(world.root, fields=answers)
        say(f"columns are kept in {WORLD_FILE} under import")
    _tell(imported, verbose=verbose)
    _tell_marks(world, imported, keep=marks)
    # The list of silent agents must count messages in the world's own files, and stored messages must follow new aliases.
    world.sync_messages()
    wrong = dict.fromkeys(problem for found in alias_problems(world.names()).values() for problem in found)
    named = stored_names(world).among(imported.result.speakers)
    for line in (*imported.shared_names, *(str(problem) for problem in wrong), *named.lines(named=verbose)):
        say(line)
    _ask_for_people(world, [item.name for item in named.strangers if item.agent_id is None])
    if imported.result.problems:
        return EXIT_CONFIG
    if empty := [item for item, count in imported.read.items() if not count]:
        raise NothingError(f"there is nothing to look at: messages in {', '.join(empty)}{_why_empty(imported)}")
    return EXIT_OK


def _why_empty(imported: "Imported") -> str:
    """Return the other contents of a source without messages."""
    parts = [f"{_counted(imported.skipped)}"] if imported.skipped else []
    parts += [f"{plural(len(imported.not_chats), 'file')} of no known format"] if imported.not_chats else []
    return f"; it has {' and '.join(parts)}" if parts else ""


def is_terminal() -> bool:
    """Return whether a person can be asked."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def asked_once(options: "ImportOptions", read: Callable[["ImportOptions"], T]) -> tuple[T, dict[str, str]]:
    """Return the result of ``read``, and a person's answers on a terminal: fields for columns that are otherwise unclear."""
    from persona_pipeline.importing.run import UnclearTableError

    answers: dict[str, str] = {}
    while True:
        reading = replace(options.reading, remembered=answers)
        try:
            return read(replace(options, reading=reading, asked=is_terminal())), answers
        except UnclearTableError as error:
            if not is_terminal() or not (error.missing or error.dated):
                raise
            say(error)
            answers |= _answers(error)


def _answers(error: "UnclearTableError") -> dict[str, str]:
    if error.dated:
        is_day = typer.confirm(f"Do the dates under {error.dated} begin with the day?")
        return {error.dated: f"created_at:{'day' if is_day else 'month'}-first"}
    columns = dict(enumerate(error.columns, start=1))
    typer.echo("".join(f"  {number} {name}\n" for number, name in columns.items()), nl=False)
    asked = {name: click.IntRange(1, len(columns)) for name in error.missing}
    return {columns[typer.prompt(f"Number of the column with {name}", type=kind)]: name for name, kind in asked.items()}


def _ask_for_people(world: "World", names: Sequence[str]) -> None:
    """Ask on a terminal whether speakers are people; in scripts they are counted and nothing is written."""
    from persona_pipeline.world.settings import WORLD_FILE, remember

    if not names or not is_terminal():
        return
    if typer.confirm(
        f"Are {'they' if len(names) > 1 else 'this speaker'} people, and no agents of yours?", default=False
    ):
        remember(world.root, people=names)
        say(f"kept in {WORLD_FILE} under people")


def _tell(imported: "Imported", *, verbose: bool = False) -> None:
    from persona_pipeline.reporting.text import template_text

    result = imported.result
    counted = {"no messages": imported.skipped, "kept beside messages, not judged": imported.extras}
    problems = [*map(str, result.problems)] if verbose else by_kind(result.problems)
    facts = {"imported": imported, "problems": problems, "most": _MOST_NAMED}
    facts |= {"counted": {what: _counted(counts) for what, counts in counted.items()}}
    if said := template_text("imported", facts):
        say(said)
    written, left_out = result.written, len(result.problems) + result.unnamed
    said = f"{written.inserted} added, {written.updated} changed, {written.unchanged} known, {left_out} left out"
    if written.kept_out:
        said += f", {written.kept_out} removed before and kept out (--restore brings them back)"
    typer.echo(said)


def _tell_marks(world: "World", imported: "Imported", *, keep: bool) -> None:
    from persona_pipeline.guard.labels.files import LABELS
    from persona_pipeline.guard.labels.messages import write_message_labels
    from persona_pipeline.reporting.text import one_line

    if imported.marks:
        told = _counted(Counter(label.source.value for label in imported.marks))
        if keep:
            write_message_labels(world.root / LABELS, imported.marks)
        where = f"{'kept' if keep else 'no labels yet: --marks keeps them'} in labels/messages.jsonl"
        say(f"users' marks on agents' messages ({told}): {where}")
    if imported.unread:
        say(f"users' marks that say neither yes nor no: {one_line(_counted(imported.unread))}")


def _counted(counts: Counter[str]) -> str:
    """Return the counts as text, the largest first."""
    found = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    shown = ", ".join(f"{count} {name}" for name, count in found[:_MOST_NAMED])
    return shown + (f" and {len(found) - _MOST_NAMED} other keys" if len(found) > _MOST_NAMED else "")


def mapping_of(given: list[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return agents by speaker, and fields of messages by key."""
    from persona_pipeline.world.messages.files import FIELDS, ORDERS, ROLE

    speakers: dict[str, str] = {}
    fields: dict[str, str] = {}
    for item in given:
        name, sign, target = item.rpartition("=")
        if not (sign and name and target):
            raise ConfigError(
                f"--map {item}: write SPEAKER=AGENT, such as --map Micheal=michael, or KEY=FIELD, such as --map body.text=text"
            )
        (fields if target in (*FIELDS, ROLE, *ORDERS) else speakers)[name] = target
    return speakers, fields


# The port to which exporters send by default.
DEFAULT_PORT = 4318


def collect(
    host: Host = "127.0.0.1",
    port: Port = DEFAULT_PORT,
    token_env: TokenEnv = "PERSONA_COLLECT_TOKEN",
    max_body: Annotated[int, typer.Option(min=1024, help="Largest request in bytes, as it is sent.")] = 16 * 1024**2,
    keep_days: Annotated[
        float, typer.Option(min=0.01, help="How long pieces of traces wait for what else belongs to them.")
    ] = 2.0,
    connections: Annotated[int, typer.Option(min=1, help="Connections open at once.")] = 64,
    connections_per_address: Annotated[
        int, typer.Option(min=1, help="Of one address; behind a proxy, give as many as --connections.")
    ] = 16,
    header_timeout: HeaderTimeout = 5.0,
    body_timeout: Annotated[float, typer.Option(min=0.1, help="Seconds for its body to arrive.")] = 30.0,
    explain: Annotated[
        Path | None,
        typer.Option(
            help="A file of traces: say by instrumentation how many spans have words, whose, and why others have none; listen to "
            "nothing and store nothing."
        ),
    ] = None,
) -> None:
    """Add messages to the store as they come in OpenTelemetry traces.

    Takes traces and events over OTLP/HTTP. A request is answered with success when what it brought is stored, and not before.
    """
    if explain is not None:
        from persona_pipeline.importing.run import explained
        from persona_pipeline.reporting.text import one_line

        count = 0
        for line in explained(open_world(), explain):
            typer.echo(line[:2] + one_line(line[2:], 300))
            count += 1
        end(looked_at=count, looked_for=f"spans in {explain}")
    token = token_in(token_env)
    require_token(token, token_env, host)
    from persona_pipeline.base.http_server import Access, ServerLimits, serve
    from persona_pipeline.importing.traces.collector import Bounds, create_app

    world = open_world(sync=True)
    application = create_app(
        world, access=Access(token, max_body, body_seconds=body_timeout), bounds=Bounds(keep_days=keep_days)
    )
    limits = ServerLimits(header_timeout, connections, connections_per_address)
    serve(application, host=host, port=port, limits=limits, turned_away=application.state.turned_away)


app = typer.Typer(help="Messages in the store.", no_args_is_help=True)


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
    """Take messages out of the store: those to which all of the options apply.

    Files are not touched. A removed message stays out when its file is read again, until the file says something else of it or
    it is ingested with --restore.
    """
    from persona_pipeline.world.messages.store import Selection, remove_messages, select_messages

    world = open_world()
    span = None
    if between:
        first, last = (moment(text, "--between") for text in between)
        span = (first, last) if first and last else None
    # Messages in the world's files count as stored: an evaluation would import them.
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
        say("nothing is removed yet; add --yes to remove them")
        return
    count = remove_messages(world.store, selected)
    typer.echo(f"{count} removed; evaluate --touched judges the windows again that they were in")


def watch(
    file: Annotated[
        Path | None,
        typer.Argument(help="A growing .jsonl or .csv file of messages; without it, the store is followed."),
    ] = None,
    agents: Agents = "all",
    since: Annotated[
        str | None,
        typer.Option(
            help="Follow what was sent after this time (RFC 3339 with offset). Default: the newest seven days."
        ),
    ] = None,
    once: Annotated[bool, typer.Option(help="Read what is there and stop: 1 if there was an alarm, else 0.")] = False,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 2.0,
    relearn: Annotated[bool, typer.Option(help="Learn the voices again, even if they are known.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    notify: Notify = None,
) -> None:
    """Follow messages and print an alarm when an agent has lost its voice.

    An alarm names the first message and shows the worst ones. A repeated line is printed with the earlier one; it does not
    raise an alarm. First it lists the agents it follows and what it cannot see. It makes no API calls. A voice is learnt once,
    from earlier messages, and again when the agent's persona changes.
    """
    from datetime import timedelta

    from persona_pipeline.corrections.watch import FileMessages, SaidAgainWatch, StoredMessages
    from persona_pipeline.evaluation.voice import VoiceWatches
    from persona_pipeline.reporting.notify import Notice, require_named, run_link
    from persona_pipeline.reporting.text import one_line, plural
    from persona_pipeline.scoring.text.said_again import pair_text
    from persona_pipeline.world.names import Aliases

    world = open_world(sync=True)
    require_named(notify or (), world.written.alerts)
    chosen = world.chosen(names(agents))
    newest = world.newest_message_time()
    start = moment(since, "--since")
    if start is None and newest is not None:
        start = newest - timedelta(days=7) if file is None else newest
    if start is None:
        raise NothingError("there are no messages to learn a voice from; put them into messages/ or ingest them")
    watches = VoiceWatches(world, chosen, start, again=relearn)
    say(*watches.notes)
    for line in watches.follows:
        typer.echo(line, err=as_json)
    source = StoredMessages(world, start) if file is None else FileMessages(file, Aliases.of(world.names()))
    again, raised, repeated = SaidAgainWatch(world, chosen, start), 0, 0
    while True:
        new = source.new()
        say(*source.problems)
        alarms = watches.read(new)
        if alarms:
            facts = {"kind": "voice_alarm", "alarms": [alarm.facts for alarm in alarms]}
            tell(
                Notice("Persona watch: a voice was lost", [alarm.text for alarm in alarms], run_link(), facts),
                notify or (),
            )
        for alarm in alarms:
            raised += 1
            if as_json:
                typer.echo(shown_json(alarm.facts))
                continue
            typer.echo(alarm.text)
            for message in alarm.quotes:
                typer.echo(f"  {message.id}: {one_line(message.text, 160)}")
        for agent_id, facts in again.read(new):
            repeated += 1
            told = {"agent_id": agent_id, "said_again": facts}
            typer.echo(shown_json(told) if as_json else f"{agent_id} says again {pair_text(facts)}")
        if once:
            alarms = plural(raised, "alarm") if raised else "no alarm"
            alarms += f", {plural(repeated, 'line')} said again" if repeated else ""
            typer.echo(f"{watches.looked_at} messages followed, {alarms}", err=as_json)
            followed = (
                f"messages after {start:%Y-%m-%d %H:%M} of {', '.join(chosen)}, by agents whose voices are learnt"
            )
            end(int(bool(raised)), looked_at=watches.looked_at, looked_for=followed)
        time.sleep(interval)
