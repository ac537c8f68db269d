"""``persona-pipeline evaluate`` and ``baseline``: score agents, compare them with their baselines, take new ones."""

import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.options import OF_JUDGE
from persona_pipeline.cli.options import MockJudge, asks, judge_name, option, request_of
from persona_pipeline.cli.running import run_and_print

if TYPE_CHECKING:
    from persona_pipeline.guard.report import RunReport

FORMATS = ("json", "markdown", "html", "junit")


@asks(without=["baseline_windows"])
def evaluate(
    context: typer.Context,
    mock_judge: MockJudge = False,
    estimate: Annotated[
        bool, typer.Option(help="Print calls, tokens and US dollars a live run would take; judge nothing.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option(help="Write the report to this file; JSON goes to stdout as well.")
    ] = None,
    format: Annotated[str, typer.Option(help="json, markdown, html or junit.")] = "json",
    save_snapshot: Annotated[
        Path | None,
        typer.Option(help="Write all the run was made from and every answer to this file (.json or .json.gz)."),
    ] = None,
    snapshot: Annotated[
        Path | None,
        typer.Option(
            help="Make the run of such a file again, without a world, a store or a judge; the other options are its own."
        ),
    ] = None,
    **asked: Any,
) -> None:
    """Score agents and compare them with their baselines.

    Prints the report on stdout and a table on stderr.

    Exit codes: 0 all that was asked held, 1 something fell or is below the threshold, 2 usage or configuration, 3 nothing fell and
    something cannot be told, 4 budget.
    """
    from persona_pipeline.evaluation.against import fresh_world
    from persona_pipeline.evaluation.snapshot import save_replay
    from persona_pipeline.world.world import World

    if format not in FORMATS:
        raise ConfigError(f"--format {format!r} is unknown; use {', '.join(FORMATS)}")
    if snapshot is not None:
        raise typer.Exit(_replayed(snapshot, format, output))
    request = request_of(context, asked)
    if save_snapshot is not None and (request.against is not None or estimate):
        raise ConfigError("--save-snapshot saves one run; leave out --against and --estimate")
    with nullcontext(World.open()) if request.against is None else fresh_world(against=request.against) as world:
        if estimate:
            from persona_pipeline.evaluation.estimate import estimate_run
            from persona_pipeline.evaluation.read import WorldReader
            from persona_pipeline.judging.open import JudgeOptions

            typer.echo(str(estimate_run(world, request, request.judge, JudgeOptions.of(request))))
            for line in WorldReader(world).names_of(request).lines():
                typer.echo(line, err=True)
            return
        run = run_and_print(context, world, request, judge=judge_name(request.judge, mock_judge, world=world))
        for path in run.baselines:
            typer.echo(f"baseline written: {path}", err=True)
        if save_snapshot is not None and run.replay is not None:
            save_replay(save_snapshot, replace(run.replay(), statistics=run.report.statistics))
            typer.echo(f"snapshot written: {save_snapshot}", err=True)
        _emit(run.report, format, output)
        raise typer.Exit(run.report.exit_code)


def _replayed(snapshot: Path, format: str, output: Path | None) -> int:
    from persona_pipeline.evaluation.run import replayed
    from persona_pipeline.evaluation.snapshot import load_replay
    from persona_pipeline.reporting.terminal import print_report

    run = replayed(load_replay(snapshot))
    for note in run.notes:
        typer.echo(note, err=True)
    print_report(run.report)
    _emit(run.report, format, output)
    return run.report.exit_code


def _emit(report: "RunReport", format: str, output: Path | None) -> None:
    from persona_pipeline.base.files import write_atomically
    from persona_pipeline.reporting.render import render

    text = render(report, format)
    if output is None:
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
        return
    write_atomically(output, text)
    typer.echo(f"report written: {output}", err=True)
    if format != "json":
        return
    sys.stdout.write(text + "\n")


# What only a verdict depends on is no option here.
MEASURED = ("agents", "dimensions", "window", "as_of", "samples", *OF_JUDGE)


@asks(*MEASURED)
def baseline(
    context: typer.Context,
    mock_judge: MockJudge = False,
    windows: Annotated[int, option("baseline_windows", "--windows")] = 1,
    **asked: Any,
) -> None:
    """Evaluate agents and write their scores to baselines/. Dimensions that were not scored in full keep what the files say."""
    from persona_pipeline.world.world import World

    request = request_of(context, asked, update_baseline=True, baseline_windows=windows)
    world = World.open()
    judge = judge_name(request.judge, mock_judge, world=world)
    if judge != "recorded" and world.settled(request).samples < 3:
        typer.echo("hint: a live baseline judged once is noisy; --samples 5 makes drops much easier to tell", err=True)
    run = run_and_print(context, world, request, judge=judge)
    for path in run.baselines:
        typer.echo(str(path))
    raise typer.Exit(run.report.exit_code)
