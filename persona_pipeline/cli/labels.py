"""``persona-pipeline labels``: list them, and take them to and from other tools."""

import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from persona_pipeline.cli.options import Agents, Dimensions, names
from persona_pipeline.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from persona_pipeline.labels import Label

app = typer.Typer(help="What people say of judgments: list, import, export.", no_args_is_help=True)

Labeller = Annotated[str | None, typer.Option("--labeller", "--labeler", help="Only this labeller's.")]


@app.command("list")
def list_labels(
    agents: Agents = "all",
    dimensions: Dimensions = "all",
    labeller: Labeller = None,
    stale: Annotated[bool, typer.Option("--stale", help="Only those that are stale.")] = False,
) -> None:
    """List labels, stale ones marked with the reason. A stale label is never used."""
    from persona_pipeline.evaluation.population import world_labels
    from persona_pipeline.reporting.text import one_line
    from persona_pipeline.world import World

    found = world_labels(World.open())
    reasons = {item.label.identity: item.reason for item in found.stale}
    shown = _chosen([*found.current, *(item.label for item in found.stale)], agents, dimensions, labeller)
    for label in shown:
        reason = reasons.get(label.identity)
        if stale and reason is None:
            continue
        said = "n/a" if label.score is None else str(label.score)
        mark = f"  stale: {reason}" if reason else ""
        note = f"  {one_line(label.note, 60)}" if label.note else ""
        who = f"{label.labeller} ({label.labeller_kind})"
        typer.echo(
            f"{label.agent_id}/{label.dimension}/{label.proposition_id} {label.key[:12]} {said:>3} {who}{mark}{note}"
        )
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
    labeller: Labeller = None,
) -> None:
    """Write labels, stale ones too, for a spreadsheet or another tool."""
    from persona_pipeline.atomic_files import write_atomically
    from persona_pipeline.labels import LABELS, load_labels
    from persona_pipeline.labels.exchange import export_labels as exported
    from persona_pipeline.settings import get_settings

    labels = _chosen(load_labels(get_settings().world_root / LABELS), agents, dimensions, labeller)
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

    from persona_pipeline.evaluation.population import judged_population
    from persona_pipeline.labels import LABELS, write_labels
    from persona_pipeline.labels.exchange import read_labels
    from persona_pipeline.world import World
    from persona_pipeline.world.canonical import rfc3339

    world = World.open()

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
    from persona_pipeline.evaluation.request import select_dimensions

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
