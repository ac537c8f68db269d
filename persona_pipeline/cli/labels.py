"""``persona-pipeline label`` and ``labels``: judgments labelled in the browser or the terminal; labels listed and exchanged."""

import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.cli.options import Agents, Dimensions, environment, names, open_world
from persona_pipeline.reporting.text import one_line, printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from persona_pipeline.guard.labels.files import Label
    from persona_pipeline.guard.labels.session import Answered, Judgment, Labeller, Labelling


def label(
    agent: Annotated[str | None, typer.Argument(help="Whose judgments; by default everybody's.")] = None,
    dimension: Annotated[
        str, typer.Option("--dimension", "--dimensions", help="'all', or dimensions with commas between them.")
    ] = "all",
    labeller: Annotated[
        str | None, typer.Option("--labeller", "--labeler", help="Who labels; by default who is logged in.")
    ] = None,
    kind: Annotated[
        str, typer.Option(help="'person', or 'model': only what people say counts as people's.")
    ] = "person",
    seed: Annotated[int, typer.Option(help="Of the order; the same for all who are to label the same.")] = 0,
    newest: Annotated[bool, typer.Option("--newest", help="Only what is of each agent's newest window.")] = False,
    terminal: Annotated[bool, typer.Option("--terminal", help="Here instead of in the browser.")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of the page, on this machine; 0 takes a free one.")] = 0,
) -> None:
    """Say how far claims hold in what was judged: what the judge is measured against. Each answer is kept at once."""
    session = open_session(agent, dimension, _labeller(labeller, kind), seed, newest=newest)
    if terminal:
        label_in_terminal(session)
        return
    serve(session, port)


def open_session(
    agent: str | None, dimensions: str, labeller: "Labeller", seed: int, *, newest: bool = False
) -> "Labelling":
    """Return a session on what the world has judged.

    Raises:
        ConfigError: the world's files are not valid, or nothing is judged yet.
    """
    from persona_pipeline.evaluation.calibrate import judged_population
    from persona_pipeline.guard.labels.files import LABELS
    from persona_pipeline.guard.labels.session import Labelling

    world = open_world()
    judged = judged_population(world, None if agent is None else [agent], names(dimensions))
    if not judged:
        raise ConfigError("nothing of this is judged yet; run persona-pipeline evaluate --judge anthropic")
    if newest:
        ends = sorted((item.window.end, item.request.agent_id) for item in judged)
        newest_of = {agent_id: end for end, agent_id in ends}
        judged = [item for item in judged if item.window.end == newest_of[item.request.agent_id]]
    return Labelling(world.root / LABELS, judged, labeller, seed=seed)


def serve(session: "Labelling", port: int) -> None:
    """Serve the page on this machine until the process is told to stop.

    Raises:
        ConfigError: the port is taken.
    """
    import secrets
    import socket

    import uvicorn

    from persona_pipeline.guard.labels.page.app import create_app

    try:
        listening = socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise ConfigError(f"port {port} cannot be listened on ({error.strerror}); write --port 0") from error
    token = secrets.token_urlsafe(24)
    address = f"http://127.0.0.1:{listening.getsockname()[1]}/#token={token}"
    typer.echo(f"Label at {address}")
    typer.echo("Ctrl+C ends it; every answer is kept at once.", err=True)
    config = uvicorn.Config(create_app(session, token), ws="none", access_log=False, log_level="warning")
    uvicorn.Server(config).run(sockets=[listening])


def _labeller(name: str | None, kind: str) -> "Labeller":
    import getpass

    from persona_pipeline.guard.labels.files import LabellerKind, check_labeller
    from persona_pipeline.guard.labels.session import Labeller

    if kind not in list(LabellerKind):
        raise ConfigError(f"--kind {kind!r} is neither 'person' nor 'model'")
    try:
        return Labeller(check_labeller(getpass.getuser() if name is None else name), LabellerKind(kind))
    except (ValueError, OSError, KeyError) as error:
        raise ConfigError(f"{error}; write --labeller NAME" if name is None else str(error)) from error


_HELP = "0-9, n (not applicable), s (skip), u (undo), q (quit); a note may follow the answer, such as: 7 keeps the joke"


def label_in_terminal(session: "Labelling") -> None:
    """Ask until all is labelled, ``q`` or the end of the input. Every answer is kept at once.

    Raises:
        ConfigError: the label files are not valid.
    """
    from persona_pipeline.guard.labels.session import BANDS

    shown = None
    while (current := session.current()) is not None:
        if current.key != shown:
            _show(current, session)
            words = "; ".join(
                f"{band.first} {band.words}" if band.first == band.last else f"{band.first}-{band.last} {band.words}"
                for band in BANDS
            )
            typer.echo(f"{words}\n{_HELP}")
            shown = current.key
        try:
            line = input("> ").strip()
        except EOFError:
            typer.echo("")
            return
        word, _, note = line.partition(" ")
        try:
            if word in ("q", "quit"):
                return
            if word == "s":
                _tell(session.skip(current.key))
            elif word == "u":
                undone = session.undo()
                typer.echo("taken back" if undone else "there is nothing to take back")
            elif word == "n" or (word.isascii() and word.isdigit()):
                _tell(session.answer(current.key, None if word == "n" else int(word), note))
            else:
                typer.echo(_HELP)
        except ValueError as error:
            typer.echo(f"not kept: {error}\n{_HELP}")
    typer.echo("all of it is labelled")


def _show(judgment: "Judgment", session: "Labelling") -> None:
    from persona_pipeline.guard.labels.session import TARGET

    request = judgment.request
    typer.echo("\n" + "-" * 72)
    typer.echo("  ".join(f"{item.dimension} {item.done}/{TARGET}" for item in session.progress()))
    if request.persona is not None:
        typer.echo(f"\nWho the agent should be:\n{_indented(request.persona)}")
    typer.echo("")
    part = None
    for item in request.trajectory.content():
        if "omitted" in item:
            typer.echo(f"[... {item['omitted']} left out ...]")
            continue
        if item.get("part") != part:
            part = item.get("part")
            typer.echo(f"-- {one_line(part or '')} --")
        typer.echo(f"{_who(item)}:\n{_indented(item['text'])}")
    typer.echo(f"\n{judgment.dimension}: does this hold, as it is written?\n\n  {one_line(request.claim)}\n")


def _who(item: dict[str, Any]) -> str:
    where = f" in #{item['channel']}" if "channel" in item else f" to {item['to']}" if "to" in item else ""
    return one_line(f"{item['speaker']}{where}")


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in printable(text).splitlines())


def _tell(answered: "Answered") -> None:
    if answered.label is None:
        typer.echo("skipped")
        return
    judges = Counter(
        f"{one_line(verdict.model or 'the judge')} said {'n/a' if verdict.score is None else verdict.score}"
        for verdict in answered.judgment.verdicts
    )
    typer.echo(f"kept; {', '.join(judges)}")


app = typer.Typer(help="What people say of judgments: list, import, export.", no_args_is_help=True)

OnlyOf = Annotated[str | None, typer.Option("--labeller", "--labeler", help="Only this labeller's.")]


@app.command("list")
def list_labels(
    agents: Agents = "all",
    dimensions: Dimensions = "all",
    labeller: OnlyOf = None,
    stale: Annotated[bool, typer.Option("--stale", help="Only those that are stale.")] = False,
) -> None:
    """List labels, stale ones marked with the reason. A stale label is never used."""
    from persona_pipeline.evaluation.calibrate import world_labels
    from persona_pipeline.reporting.pages.instruments import labels_page
    from persona_pipeline.reporting.render import print_page

    found = world_labels(open_world())
    reasons = {item.label.identity: item.reason for item in found.stale}
    shown = _chosen([*found.current, *(item.label for item in found.stale)], agents, dimensions, labeller)
    if listed := [label for label in shown if not stale or label.identity in reasons]:
        print_page(labels_page(listed, reasons))
    counts = Counter((label.dimension, label.labeller) for label in shown if label.identity not in reasons)
    for (dimension, name), count in sorted(counts.items()):
        typer.echo(f"{dimension}: {count} by {name}", err=True)
    typer.echo(f"{sum(label.identity in reasons for label in shown)} of {len(shown)} labels are stale", err=True)


@app.command("export")
def export_labels(
    format: Annotated[str, typer.Option(help="csv or jsonl.")] = "csv",
    output: Annotated[Path | None, typer.Option(help="Write to this file instead of stdout.")] = None,
    agents: Agents = "all",
    dimensions: Dimensions = "all",
    labeller: OnlyOf = None,
) -> None:
    """Write labels, stale ones too, for a spreadsheet or another tool."""
    from persona_pipeline.base.documents.json import write_atomically
    from persona_pipeline.guard.labels.exchange import export_labels as exported
    from persona_pipeline.guard.labels.files import LABELS, load_labels

    labels = _chosen(load_labels(environment().world_root / LABELS), agents, dimensions, labeller)
    text = exported(labels, format)
    if output is None:
        sys.stdout.write(text)
        return
    write_atomically(output, text)
    typer.echo(f"{_plural(len(labels))} written: {output}", err=True)


@app.command("import")
def import_labels(
    files: Annotated[list[Path], typer.Argument(help="CSV or JSON lines.")],
    labeller: Annotated[
        str | None, typer.Option("--labeller", "--labeler", help="Whose rows are that do not say.")
    ] = None,
    kind: Annotated[str | None, typer.Option(help="'person' or 'model', of rows that do not say.")] = None,
) -> None:
    """Add labels from files; all of them or, where a row is wrong, none.

    Columns are the fields of a label. Of a judgment that the world knows, key, score, labeller and labeller_kind are enough.
    """
    from datetime import UTC, datetime

    from persona_pipeline.base.documents.json import rfc3339
    from persona_pipeline.evaluation.calibrate import judged_population
    from persona_pipeline.guard.labels.exchange import read_labels
    from persona_pipeline.guard.labels.files import LABELS, write_labels

    world = open_world()

    @cache
    def subjects() -> "Mapping[str, Mapping[str, Any]]":
        return {item.key: item.request.subject for item in judged_population(world)}

    given = {"labeller": labeller, "labeller_kind": kind, "labelled_at": rfc3339(datetime.now(UTC))}
    defaults = {name: value for name, value in given.items() if value is not None}
    read: list[Label] = []
    problems = []
    for path in files:
        try:
            read += read_labels(path, lambda key: subjects().get(key), defaults)
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    for path in write_labels(world.root / LABELS, read):
        typer.echo(str(path))
    typer.echo(f"{_plural(len(read))} read", err=True)


def _chosen(labels: "list[Label]", agents: str, dimensions: str, labeller: str | None) -> "list[Label]":
    from persona_pipeline.world.propositions.models import select_dimensions

    wanted, among = names(agents), select_dimensions(names(dimensions))
    return [
        label
        for label in labels
        if (wanted is None or label.agent_id in wanted)
        and label.dimension in among
        and labeller in (None, label.labeller)
    ]


def _plural(count: int) -> str:
    return f"{count} label{'' if count == 1 else 's'}"
