"""``persona-pipeline evaluate``: score agents, compare them with their baselines, exit with what was found."""

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from persona_pipeline.cli.options import (
    Agents,
    AsOf,
    Dimensions,
    Fresh,
    Grouping,
    JudgeName,
    MaxUsd,
    MockJudge,
    Record,
    Samples,
    WindowLength,
    judge_name,
    moment,
    names,
)
from persona_pipeline.cli.running import run_and_print
from persona_pipeline.errors import ConfigError

if TYPE_CHECKING:
    from persona_pipeline.evaluation.report import RunReport

FORMATS = ("json", "markdown", "html", "junit")


def evaluate(
    context: typer.Context,
    agents: Agents = "all",
    dimensions: Dimensions = "all",
    window: WindowLength = "7d",
    as_of: AsOf = None,
    since: Annotated[
        str | None,
        typer.Option(help="Where the window begins instead (RFC 3339 with offset), that moment left out."),
    ] = None,
    judge: JudgeName = None,
    mock_judge: MockJudge = False,
    synthetic: Annotated[
        bool, typer.Option(help="Generate conversations for agents with fewer than 10 messages.")
    ] = False,
    samples: Samples = 1,
    threshold: Annotated[
        float | None, typer.Option(help="Overall score (0-9) an agent must reach; off by default.")
    ] = None,
    regression_delta: Annotated[float, typer.Option(help="Points a dimension may fall below its baseline.")] = 1.0,
    proposition_delta: Annotated[float, typer.Option(help="Points a proposition may fall below its baseline.")] = 3.0,
    min_coverage: Annotated[
        float | None,
        typer.Option(help="Share (0-1) of judgments that must be scored; default 0.95 live, as recorded in a replay."),
    ] = None,
    update_baseline: Annotated[bool, typer.Option(help="Write the scores to baselines/ when done.")] = False,
    record: Record = False,
    fresh: Fresh = False,
    grouping: Grouping = None,
    estimate: Annotated[
        bool, typer.Option(help="Print calls, tokens and US dollars a live run would take; judge nothing.")
    ] = False,
    max_usd: MaxUsd = None,
    confirm: Annotated[
        bool, typer.Option(help="With a live judge: judge again what fell, before it is called a regression.")
    ] = True,
    history: Annotated[
        int, typer.Option(min=0, max=60, help="Also evaluate this many windows before, for the timeline.")
    ] = 0,
    touched: Annotated[
        bool, typer.Option(help="Also evaluate earlier windows again whose messages came or changed since.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option(help="Write the report to this file; JSON goes to stdout as well.")
    ] = None,
    format: Annotated[str, typer.Option(help="json, markdown, html or junit.")] = "json",
    fail_on: Annotated[
        str | None,
        typer.Option(
            help="Only these set the exit code: regression, threshold, undecided, coverage, no_baseline, budget, calibration, "
            "and trend, injection, names, voices, voice_alarm and judge_changed, which only warn otherwise; or 'none'."
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="COMMIT",
            help="Judge by the baselines, labels, judge changes and lexicons of this commit, such as HEAD^1 of a pull request; "
            "files here that would make another verdict are named. Nothing stored is believed.",
        ),
    ] = None,
    accept_baseline: Annotated[
        bool, typer.Option(help="With --against: the baselines that stand here decide all the same.")
    ] = False,
    require_calibration: Annotated[
        bool | None,
        typer.Option(
            "--require-calibration/--no-require-calibration",
            help="Fail a dimension whose judge people's labels do not show to be better than chance.",
        ),
    ] = None,
) -> None:
    """Score agents and compare them with their baselines.

    Prints the report on stdout and a table on stderr.

    Exit codes: 0 all that was asked held, 1 something fell or is below the threshold, 2 usage or configuration, 3 nothing fell and
    something cannot be told, 4 budget.
    """
    from persona_pipeline.evaluation.against import fresh_world
    from persona_pipeline.evaluation.request import EvaluationRequest
    from persona_pipeline.judging.open import JudgeOptions
    from persona_pipeline.world import World

    if accept_baseline and against is None:
        raise ConfigError("--accept-baseline needs --against")
    if format not in FORMATS:
        raise ConfigError(f"--format {format!r} is unknown; use {', '.join(FORMATS)}")
    request = EvaluationRequest(
        agents=names(agents),
        dimensions=names(dimensions),
        window=window,
        as_of=moment(as_of),
        since=moment(since, "--since"),
        samples=samples,
        threshold=threshold,
        regression_delta=regression_delta,
        proposition_delta=proposition_delta,
        min_coverage=min_coverage,
        fail_on=_fail_on(fail_on),
        require_calibration=require_calibration,
        history=history,
        touched=touched,
        update_baseline=update_baseline,
        synthetic=synthetic,
        confirm=confirm,
        against=against,
        accept_baseline=accept_baseline,
    )
    options = JudgeOptions(max_usd=max_usd, record=record, fresh=fresh, grouping=grouping)
    with nullcontext(World.open()) if against is None else fresh_world() as world:
        if estimate:
            from persona_pipeline.evaluation.estimating import estimate_run
            from persona_pipeline.evaluation.run import run_names

            typer.echo(str(estimate_run(world, request, judge, options)))
            for line in run_names(world, request).lines():
                typer.echo(line, err=True)
            return
        run = run_and_print(context, world, request, judge=judge_name(judge, mock_judge), options=options)
        for path in run.baselines:
            typer.echo(f"baseline written: {path}", err=True)
        _emit(run.report, format, output)
        raise typer.Exit(run.report.exit_code)


def _fail_on(text: str | None) -> list[str] | None:
    if text is None:
        return None
    return [] if text.strip() == "none" else names(text)


def _emit(report: "RunReport", format: str, output: Path | None) -> None:
    from persona_pipeline.atomic_files import write_atomically
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
