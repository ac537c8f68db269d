"""``persona-pipeline calibrate``, ``labels`` and ``recordings``: agreement of people with a judge, and recorded judgments."""

import asyncio
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from persona_pipeline.base.errors import EXIT_COVERAGE, ConfigError
from persona_pipeline.base.text import plural
from persona_pipeline.cli.options import (
    Agents,
    Dimensions,
    EitherDimensions,
    MaxUsd,
    asks,
    environment,
    live_judge_name,
    names,
    open_world,
    request_of,
    say,
)
from persona_pipeline.cli.running import CommandResult, end, shows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from persona_pipeline.base.options import EvaluationRequest
    from persona_pipeline.guard.labels.files import LabelType
    from persona_pipeline.guard.labels.messages import MessageLabel
    from persona_pipeline.judging.recordings.replay import RecordedBackend
    from persona_pipeline.world.world import World


@shows()
def calibrate(
    dimensions: EitherDimensions = "all",
    require_calibration: Annotated[
        bool, typer.Option("--require-calibration", help="Fail until people labelled 20 messages or 50 judgments.")
    ] = False,
) -> CommandResult:
    """Measure each judge against people's labels; makes no API calls.

    Agreement on messages, judge bias in points, and the effect of ten more labels.

    Exit codes: 0 measured, 2 usage or configuration, 3 no labels, or too few (with --require-calibration).
    """
    from persona_pipeline.evaluation.calibrate import calibrate_world
    from persona_pipeline.evaluation.read import WorldReader
    from persona_pipeline.guard.gate import label_findings
    from persona_pipeline.reporting.pages.instruments import calibration_page

    world = open_world()
    found, labelled = calibrate_world(world, names(dimensions)), WorldReader(world).label_counts()
    short = [*label_findings(world.root.name, labelled)] if require_calibration else []
    return CommandResult(
        calibration_page(found),
        found.model_dump(mode="json"),
        EXIT_COVERAGE if short else 0,
        summary=f"{found.labelled} labels compared with judgments",
        notes=[finding.text for finding in short[:1]],
        looked_at=None if short else found.labelled,
        looked_for="labels of this world's messages; people give them in `persona-pipeline view`",
    )


labels = typer.Typer(help="Labels: list them; import and export labels of messages.", no_args_is_help=True)

OnlyOf = Annotated[str | None, typer.Option("--labeller", "--labeler", help="Only labels of this person.")]

OfMessages = Annotated[
    bool, typer.Option("--messages", "--voice", help="List labels of messages instead of judgments.")
]


@labels.command("list")
@shows()
def list_labels(
    agents: Agents = "all", dimensions: Dimensions = "all", labeller: OnlyOf = None, messages: OfMessages = False
) -> CommandResult:
    """List labels."""
    from persona_pipeline.guard.labels.files import LABELS, load_labels
    from persona_pipeline.reporting.pages.instruments import labels_page, message_labels_page

    if messages:
        found = _chosen(_of_messages(), agents, "all", labeller)
        data, looked_for = [label.model_dump(mode="json") for label in found], "labels of these agents' messages"
        said = plural(len(found), "label")
        return CommandResult(
            message_labels_page(found), data, summary=said, looked_at=len(found), looked_for=looked_for
        )
    found = _chosen(load_labels(open_world().root / LABELS), agents, dimensions, labeller)
    counts = Counter((label.dimension, label.labeller) for label in found)
    return CommandResult(
        labels_page(found),
        [label.model_dump(mode="json") for label in found],
        summary=plural(len(found), "label"),
        notes=[f"{dimension}: {count} by {name}" for (dimension, name), count in sorted(counts.items())],
        looked_at=len(found),
        looked_for="labels of these agents, dimensions and labellers",
    )


def _of_messages() -> "list[MessageLabel]":
    from persona_pipeline.guard.labels.files import LABELS
    from persona_pipeline.guard.labels.messages import load_message_labels
    from persona_pipeline.world.personas import find_world

    return load_message_labels(find_world(environment()) / LABELS)


# Until release 0.2 these commands took labels of judgments too.
FormerMessages = Annotated[bool, typer.Option("--messages", "--voice", hidden=True)]


@labels.command("export")
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
        say(f"{plural(len(labels), 'label')} written: {output}")
    end(looked_at=len(labels), looked_for="labels of these agents' messages")


@labels.command("import")
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
    say(f"{plural(len(read), 'label')} read")
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


recordings = typer.Typer(help="Recorded judgments: sign, judge again, find unused ones.", no_args_is_help=True)


@recordings.command()
def sign() -> None:
    """Sign all recordings with PERSONA_RECORDINGS_SECRET.

    While it is set, recordings without a valid signature are errors.
    """
    from persona_pipeline.judging.recordings.replay import sign_recordings
    from persona_pipeline.world.personas import find_world

    settings = environment()
    secret = settings.signing_secret
    if secret is None:
        raise ConfigError("there is no secret to sign with; set PERSONA_RECORDINGS_SECRET")
    signed = sign_recordings(find_world(settings) / "recordings", secret)
    for path in signed:
        typer.echo(str(path))
    end(looked_at=len(signed), looked_for="recordings")


_OF_A_REPLAY = ("agents", "dimensions", "window", "as_of", "samples")


@recordings.command()
@asks(*_OF_A_REPLAY)
def unused(context: typer.Context, **asked: Any) -> None:
    """List recorded verdicts that a replay of this window does not use.

    They are stale or belong to another window.
    """
    world = open_world()
    backend = _replayed(world, request_of(context, asked))
    left = [item for item in backend.unused() if item.kind == "proposition"]
    for item in left:
        typer.echo(f"{item.agent_id}/{item.dimension}/{item.proposition_id} {item.key[:12]} {item.claim}")
    known = len(backend.recordings) + len(backend.failures)
    say(f"{len(left)} of {known} recordings are not used")
    end(looked_at=known, looked_for="recordings")


@recordings.command()
@asks(*_OF_A_REPLAY)
def rejudge(
    context: typer.Context,
    size: Annotated[
        int, typer.Option("--size", min=1, help="Number of recordings to judge again, drawn at random.")
    ] = 20,
    seed: Annotated[int | None, typer.Option(help="Seed of the draw; by default a new one every day.")] = None,
    most: Annotated[
        float, typer.Option(min=0, max=1, help="Allowed share (0-1) of the sample that disagrees by 3 points or more.")
    ] = 0.1,
    max_usd: MaxUsd = None,
    **asked: Any,
) -> None:
    """Judge a random sample of the recordings again and list differences.

    Calls the live judge. Exit codes: 0 it agrees, 1 too many disagree, 2 usage or configuration, 3 not fully judged.
    """
    from datetime import UTC, datetime

    from persona_pipeline.judging.open import JudgeOptions, OpenedJudge, open_judge
    from persona_pipeline.judging.recordings.replay import rejudge as judge_again

    world = open_world()
    live = open_judge(live_judge_name(world), world, JudgeOptions(max_usd, fresh=True, recorded=False))
    recorded = _replayed(world, request_of(context, asked))
    day = datetime.now(UTC).toordinal() if seed is None else seed
    rows, known = asyncio.run(judge_again(recorded.claims or (), OpenedJudge(recorded), live, size=size, seed=day))
    disagree = [row for row in rows if row.disagrees]
    for row in disagree:
        was, said = (item.unscored if item.score is None else item.score for item in (row.recorded, row.live))
        typer.echo(
            f"{row.request.agent_id}/{row.request.dimension}/{row.request.proposition_id}: recorded {was}, now {said}"
        )
    answered = sum(not row.live.has_failed for row in rows)
    share = len(disagree) / max(1, answered)
    said = f"{len(disagree)} of {answered} disagree ({share:.0%}); {len(rows)} drawn of {known}; seed {day}"
    say(said)
    end(
        EXIT_COVERAGE if answered < len(rows) else int(share > most),
        looked_at=len(rows),
        looked_for="recordings that a replay of this window uses",
    )


def _replayed(world: "World", request: "EvaluationRequest") -> "RecordedBackend":
    from persona_pipeline.evaluation.run import run_evaluation
    from persona_pipeline.judging.open import OpenedJudge
    from persona_pipeline.judging.recordings.replay import RecordedBackend

    recorded = RecordedBackend(world.root / "recordings", settings=world.settings)
    recorded.claims = []
    run_evaluation(world, OpenedJudge(recorded), request)
    return recorded
