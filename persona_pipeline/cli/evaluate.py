"""``persona-pipeline evaluate``, ``baseline``, ``report`` and ``view``: score agents, take baselines, show what the store holds."""

import getpass
import sys
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.options import BASELINE_WINDOWS, OF_JUDGE, moment
from persona_pipeline.cli.options import (
    Agents,
    Estimate,
    MockJudge,
    Notify,
    asks,
    judge_name,
    names,
    open_world,
    option,
    request_of,
    require_known,
)
from persona_pipeline.cli.running import end, run_and_print, tell

if TYPE_CHECKING:
    from persona_pipeline.guard.report import RunReport

FORMATS = ("json", "markdown", "html", "junit")
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Show every finding, and how small a drop would be seen.")
]


@asks(without=["baseline_windows"], grouped=True)
def evaluate(
    context: typer.Context,
    mock_judge: MockJudge = False,
    estimate: Estimate = False,
    output: Annotated[
        Path | None, typer.Option(help="Write the report to this file; JSON goes to stdout as well.")
    ] = None,
    format: Annotated[
        str | None, typer.Option(help="json, markdown, html or junit; by default json, and nothing on a terminal.")
    ] = None,
    verbose: Verbose = False,
    notify: Notify = None,
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

    Prints a table on stderr, and the report on stdout where that is no terminal.

    Exit codes: 0 all that was asked held, 1 something dropped or is below the
    threshold, 2 usage or configuration, 3 nothing dropped and something cannot be
    told, 4 budget.
    """
    from persona_pipeline.evaluation.against import fresh_world
    from persona_pipeline.evaluation.snapshot import save_replay
    from persona_pipeline.reporting.notify import report_notice, require_named
    from persona_pipeline.reporting.statistics import gather

    require_known("--format", format or FORMATS[0], FORMATS)
    if snapshot is not None:
        end(_replayed(snapshot, format, output, verbose))
    request = request_of(context, asked)
    if save_snapshot is not None and (request.against is not None or estimate):
        raise ConfigError("--save-snapshot saves one run; leave out --against and --estimate")
    with nullcontext(open_world()) if request.against is None else fresh_world(against=request.against) as world:
        require_named(notify or (), world.written.alerts)
        if estimate:
            from persona_pipeline.evaluation.estimate import estimate_run
            from persona_pipeline.evaluation.read import WorldReader
            from persona_pipeline.judging.open import JudgeOptions

            typer.echo(str(estimate_run(world, request, request.judge, JudgeOptions.of(request))))
            for line in WorldReader(world).names_of(request).lines():
                typer.echo(line, err=True)
            return
        judge = judge_name(request.judge, mock_judge, world=world)
        run = run_and_print(context, world, request, judge=judge, verbose=verbose)
        for path in run.baselines:
            typer.echo(f"baseline written: {path}", err=True)
        if save_snapshot is not None or _is_rendered(format, output):
            gather(world, run.report)
        if save_snapshot is not None and run.replay is not None:
            save_replay(save_snapshot, replace(run.replay(), statistics=run.report.statistics))
            typer.echo(f"snapshot written: {save_snapshot}", err=True)
        _emit(run.report, format, output)
        tell(report_notice(run.report), notify or ())
        end(run.report.exit_code)


def _replayed(snapshot: Path, format: str | None, output: Path | None, verbose: bool) -> int:
    from persona_pipeline.evaluation.run import replayed
    from persona_pipeline.evaluation.snapshot import load_replay
    from persona_pipeline.reporting.render import print_report

    run = replayed(load_replay(snapshot))
    for note in run.notes:
        typer.echo(note, err=True)
    print_report(run.report, verbose=verbose)
    _emit(run.report, format, output)
    return run.report.exit_code


def _emit(report: "RunReport", format: str | None, output: Path | None) -> None:
    from persona_pipeline.reporting.render import render

    if not _is_rendered(format, output):
        return
    shown = output is None or (format in (None, "json") and _is_rendered(format, None))
    text = render(report, format or FORMATS[0])
    if output is not None:
        _write(output, text)
    if shown:
        sys.stdout.write(text if text.endswith("\n") and output is None else text + "\n")


def _is_rendered(format: str | None, output: Path | None) -> bool:
    # A person reads the table, and would lose it above a page of JSON.
    return output is not None or format is not None or not sys.stdout.isatty()


def _write(output: Path, content: str | bytes) -> None:
    from persona_pipeline.base.documents.json import write_atomically

    write_atomically(output, content)
    typer.echo(f"report written: {output}", err=True)


# What only a verdict depends on is no option here.
MEASURED = ("agents", "dimensions", "window", "as_of", "samples", *OF_JUDGE)


@asks(*MEASURED, "accept", grouped=True)
def baseline(
    context: typer.Context,
    mock_judge: MockJudge = False,
    windows: Annotated[int, option("baseline_windows", "--windows")] = BASELINE_WINDOWS,
    verbose: Verbose = False,
    **asked: Any,
) -> None:
    """Evaluate agents and keep the scores as their baselines.

    They are written to baselines/. Dimensions that were not scored in full keep what the files say.

    Exit code 3, and nothing written for an agent: a drift is known in its window, or its
    scores are lower than its file allows (1 where they dropped). The refusal names
    the command that takes the windows before. --accept "reason" writes it all the same.
    """
    request = request_of(context, asked, update_baseline=True, baseline_windows=windows)
    world = open_world()
    judge = judge_name(request.judge, mock_judge, world=world)
    if judge != "recorded" and world.settled(request).samples < 3:
        typer.echo("hint: a live baseline judged once is noisy; --samples 5 makes drops much easier to tell", err=True)
    run = run_and_print(context, world, request, judge=judge, verbose=verbose)
    for path in run.baselines:
        typer.echo(str(path))
    end(run.report.exit_code)


TABLES = ("csv", "parquet")


def report(
    agents: Agents = "all",
    since: Annotated[
        str | None, typer.Option(help="Only windows that end after this: a time, or a length such as 30d.")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Write to this file instead of stdout.")] = None,
    format: Annotated[str, typer.Option(help="html, json, markdown, junit, prometheus, csv or parquet.")] = "html",
    by: Annotated[
        str, typer.Option(help="A row of csv and parquet: an agent, a dimension, a claim or a message.")
    ] = "dimension",
    verbose: Verbose = False,
) -> None:
    """Show the newest evaluation of each agent and its history; judges nothing."""
    from persona_pipeline.evaluation.history import report_of
    from persona_pipeline.evaluation.read import WorldReader
    from persona_pipeline.guard.gate import GateRules
    from persona_pipeline.reporting.render import print_report, render
    from persona_pipeline.reporting.statistics import gather
    from persona_pipeline.reporting.view import MANY, MOST_WHOLE

    world = open_world()
    after = _since(since, world.newest_message_time())
    chosen = world.chosen(names(agents))
    # A page of many agents shows the claims of those that need a look; every other format says everything of everybody.
    whole = MOST_WHOLE if format == "html" and len(chosen) > MANY else None
    reports = WorldReader(world).reports(chosen, after, whole=whole)
    run = gather(world, report_of(reports, GateRules()), since=after)
    print_report(run, exits=False, verbose=verbose)
    content = _table(run, by, format) if format in TABLES else render(run, format)
    if output is None:
        if isinstance(content, bytes):
            raise ConfigError(f"--format {format} is no text; say with --output where it goes")
        sys.stdout.write(content)
    else:
        _write(output, content)


def _table(run: "RunReport", by: str, format: str) -> str | bytes:
    from persona_pipeline.api.frames import report_frame

    frame = report_frame(run, by)
    if format == "csv":
        from persona_pipeline.base.text import calm_cell

        frame = frame.map(lambda cell: calm_cell(cell) if isinstance(cell, str) else cell)
        return frame.to_csv(index=False, date_format="%Y-%m-%dT%H:%M:%S%z")
    try:
        # Text is text in every file, also where nothing of it is there.
        texts = dict.fromkeys(frame.select_dtypes("object"), "string")
        return frame.astype(texts).to_parquet(index=False)
    except ImportError as error:
        raise ConfigError(
            "parquet needs a package that is not installed; pip install 'persona-pipeline[parquet]'"
        ) from error


def _since(text: str | None, newest: datetime | None) -> datetime | None:
    if text is None:
        return None
    from persona_pipeline.world.models import parse_window

    try:
        return newest - parse_window(text) if newest else None
    except ConfigError:
        return moment(text, "--since")


# Always the same, so that a link to a message stays valid.
PORT = 7395


def view(
    labeller: Annotated[
        str | None, typer.Option("--labeller", "--labeler", help="The person who labels; by default the login name.")
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Of the page, on this machine; 0 takes a free one.")
    ] = PORT,
    bundle: Annotated[
        Path | None,
        typer.Option("--bundle", help="Write pages that can be sent into this folder instead: agents, worst messages."),
    ] = None,
) -> None:
    """Read agents, messages and suites in the browser, and label them.

    Judges nothing.

    The page is for this machine and for browsers with the printed address. Labels are kept in labels/ at once.
    """
    import secrets
    import socket

    import uvicorn

    from persona_pipeline.viewer.app import address, create_app, write_bundle

    if bundle is not None:
        written = write_bundle(open_world(), bundle)
        typer.echo(f"{len(written)} pages written: {written[0]}")
        typer.echo("They hold messages: send them to nobody who may not read those.", err=True)
        return
    world, who = open_world(), _person(labeller)
    try:
        listening = socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise ConfigError(f"port {port} cannot be listened on ({error.strerror}); write --port 0") from error
    token = secrets.token_urlsafe(24)
    typer.echo(f"Open http://127.0.0.1:{listening.getsockname()[1]}{address('/', key=token)}")
    typer.echo("Ctrl+C ends it; labels are kept at once.", err=True)
    config = uvicorn.Config(create_app(world, who, token), ws="none", access_log=False, log_level="warning")
    uvicorn.Server(config).run(sockets=[listening])


def _person(name: str | None) -> str:
    """Return the labeller's name; ConfigError: it is not a valid name."""
    from persona_pipeline.guard.labels.files import check_labeller

    try:
        return check_labeller(getpass.getuser() if name is None else name)
    except (ValueError, OSError, KeyError) as error:
        raise ConfigError(f"{error}; write --labeller NAME" if name is None else str(error)) from error
