"""``persona-pipeline watch``: says when an agent no longer sounds like itself, as messages come."""

import json
import time
from pathlib import Path
from typing import Annotated

import typer

from persona_pipeline.cli import options


def watch(
    file: Annotated[
        Path | None,
        typer.Argument(help="A growing .jsonl or .csv file of messages; without it, the store is followed."),
    ] = None,
    agents: options.Agents = "all",
    since: Annotated[
        str | None,
        typer.Option(
            help="Follow what was sent after this time (RFC 3339 with offset). Default: the newest seven days."
        ),
    ] = None,
    once: Annotated[bool, typer.Option(help="Read what is there and stop: 1 if there was an alarm, else 0.")] = False,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 2.0,
    relearn: Annotated[bool, typer.Option(help="Learn the voices anew, although there are some.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Follow messages and print an alarm when an agent has lost its voice: since which message, and the worst ones.

    Says first whom it follows, against which voices and since when, and what it cannot see. Asks no model. A voice is learnt once,
    from what was said before, and again when the agent's persona changes.
    """
    from datetime import timedelta

    from persona_pipeline.corrections.voices import FileMessages, StoredMessages, VoiceWatches, alarm_facts
    from persona_pipeline.errors import ConfigError
    from persona_pipeline.reporting.text import one_line
    from persona_pipeline.world import World
    from persona_pipeline.world.aliases import Aliases

    world = World.open()
    for problem in world.sync().problems:
        typer.echo(str(problem), err=True)
    chosen = options.names(agents) or world.agent_ids()
    newest = world.newest_message_time()
    start = options.moment(since, "--since")
    if start is None and newest is not None:
        start = newest - timedelta(days=7) if file is None else newest
    if start is None:
        raise ConfigError("there are no messages to learn a voice from; put them into messages/ or ingest them")
    watches = VoiceWatches.learn(world, chosen, start, again=relearn)
    for note in watches.notes:
        typer.echo(note, err=True)
    for line in watches.follows:
        typer.echo(line, err=as_json)
    source = StoredMessages(world, start) if file is None else FileMessages(file, Aliases.of(world.names()))
    raised = 0
    while True:
        if isinstance(source, StoredMessages):
            world.sync_messages()
        new = source.new()
        for problem in source.problems if isinstance(source, FileMessages) else ():
            typer.echo(problem, err=True)
        for alarm in watches.read(new):
            raised += 1
            if as_json:
                typer.echo(json.dumps(alarm_facts(alarm), ensure_ascii=False))
                continue
            typer.echo(alarm.text)
            for message in alarm.quotes:
                typer.echo(f"  {message.id}: {one_line(message.text, 160)}")
        if once:
            alarms = f"{raised} alarm{'s' if raised > 1 else ''}" if raised else "no alarm"
            typer.echo(f"{watches.looked_at} messages followed, {alarms}", err=as_json)
            raise typer.Exit(1 if raised else 0)
        time.sleep(interval)
