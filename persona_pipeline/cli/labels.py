"""``persona-pipeline labels``: list, import and export labels."""

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.text import plural
from persona_pipeline.cli.options import Agents, Dimensions, environment, names, open_world
from persona_pipeline.cli.running import CommandResult, end, shows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from persona_pipeline.guard.labels.files import LabelType
    from persona_pipeline.guard.labels.messages import MessageLabel


app = typer.Typer(help="Labels: list them; import and export labels of messages.", no_args_is_help=True)

OnlyOf = Annotated[str | None, typer.Option("--labeller", "--labeler", help="Only labels of this person.")]

OfMessages = Annotated[
    bool, typer.Option("--messages", "--voice", help="List labels of messages instead of judgments.")
]


@app.command("list")
@shows()
def list_labels(
    agents: Agents = "all",
    dimensions: Dimensions = "all",
    labeller: OnlyOf = None,
    stale: Annotated[bool, typer.Option("--stale", help="Only stale labels.")] = False,
    messages: OfMessages = False,
) -> CommandResult:
    """List labels; stale labels have a reason and are not used."""
    from persona_pipeline.evaluation.calibrate import world_labels
    from persona_pipeline.reporting.pages.instruments import labels_page, message_labels_page

    if messages:
        labels = _chosen(_of_messages(), agents, "all", labeller)
        data, looked_for = [label.model_dump(mode="json") for label in labels], "labels of these agents' messages"
        said = plural(len(labels), "label")
        return CommandResult(
            message_labels_page(labels), data, summary=said, looked_at=len(labels), looked_for=looked_for
        )
    every, reasons = world_labels(open_world())
    labels = _chosen(every, agents, dimensions, labeller)
    listed = [label for label in labels if not stale or label.identity in reasons]
    counts = Counter((label.dimension, label.labeller) for label in labels if label.identity not in reasons)
    return CommandResult(
        labels_page(listed, reasons),
        [label.model_dump(mode="json") | {"stale": reasons.get(label.identity)} for label in listed],
        summary=f"{sum(label.identity in reasons for label in labels)} of {len(labels)} labels are stale",
        notes=[f"{dimension}: {count} by {name}" for (dimension, name), count in sorted(counts.items())],
        looked_at=len(labels),
        looked_for="labels of these agents, dimensions and labellers",
    )


def _of_messages() -> "list[MessageLabel]":
    from persona_pipeline.guard.labels.files import LABELS
    from persona_pipeline.guard.labels.messages import load_message_labels
    from persona_pipeline.world.personas import find_world

    return load_message_labels(find_world(environment()) / LABELS)


# Until release 0.2 these commands took labels of judgments too.
FormerMessages = Annotated[bool, typer.Option("--messages", "--voice", hidden=True)]


@app.command("export")
def export_labels(
    format: Annotated[str, typer.Option(help="csv or jsonl.")] = "csv",
    output: Annotated[Path | None, typer.Option(help="Write to this file instead of stdout.")] = None,
    agents: Agents = "all",
    labeller: OnlyOf = None,
    messages: FormerMessages = True,
) -> None:
    """Write labels of messages for a spreadsheet or another tool."""
    from persona_pipeline.base.documents.json import write_atomically
    from persona_pipeline.guard.labels.messages import export_labels as exported

    labels = _chosen(_of_messages(), agents, "all", labeller)
    text = exported(labels, format)
    if output is None:
        sys.stdout.write(text)
    else:
        write_atomically(output, text)
        typer.echo(f"{plural(len(labels), 'label')} written: {output}", err=True)
    end(looked_at=len(labels), looked_for="labels of these agents' messages")


@app.command("import")
def import_labels(
    files: Annotated[list[Path], typer.Argument(help="CSV or JSON lines.")],
    labeller: Annotated[
        str | None, typer.Option("--labeller", "--labeler", help="The labeller of rows that name none.")
    ] = None,
    messages: FormerMessages = True,
) -> None:
    """Add labels of messages from files; a wrong row adds none.

    Columns are the fields of a label; the key may be left out.
    """
    from datetime import UTC, datetime

    from persona_pipeline.base.documents.json import rfc3339
    from persona_pipeline.guard.labels.files import LABELS
    from persona_pipeline.guard.labels.messages import read_labels, write_message_labels

    world = open_world()
    defaults = {"labelled_at": rfc3339(datetime.now(UTC)), **({"labeller": labeller} if labeller else {})}
    read: list[MessageLabel] = []
    problems = []
    for path in files:
        try:
            read += read_labels(path, defaults)
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    for path in write_message_labels(world.root / LABELS, read):
        typer.echo(str(path))
    typer.echo(f"{plural(len(read), 'label')} read", err=True)
    end(looked_at=len(read), looked_for=f"labels in {', '.join(map(str, files))}")


def _chosen(labels: "Sequence[LabelType]", agents: str, dimensions: str, labeller: str | None) -> "list[LabelType]":
    from persona_pipeline.world.propositions.models import select_dimensions

    wanted, among = names(agents), select_dimensions(names(dimensions))
    return [
        label
        for label in labels
        if (wanted is None or label.agent_id in wanted)
        and getattr(label, "dimension", None) in (None, *among)
        and labeller in (None, label.labeller)
    ]
