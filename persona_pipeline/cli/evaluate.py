"""``persona-pipeline evaluate``, ``baseline``, ``facts``, ``report`` and ``view``: judge agents, and show what is stored."""

import getpass
import sys
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from persona_pipeline.base.errors import EXIT_BUDGET, EXIT_COVERAGE, EXIT_OK, EXIT_REGRESSION, ConfigError
from persona_pipeline.base.options import BASELINE_WINDOWS, OF_JUDGE, moment
from persona_pipeline.cli.options import (
    Agents,
    Estimate,
    MockJudge,
    Notify,
    Output,
    asks,
    chosen_format,
    format_option,
    judge_name,
    names,
    open_world,
    option,
    request_of,
    say,
)
from persona_pipeline.cli.running import CommandResult, end, run_and_print, shows, tell, watched_judging

if TYPE_CHECKING:
    from persona_pipeline.guard.report import RunReport

FORMATS = ("json", "markdown", "html", "junit", "table")
REPORT_FORMATS = ("html", "json", "markdown", "junit", "table", "csv", "parquet")
TABLES = ("csv", "parquet")
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show every finding and the detection limits.")]


@asks(without=["baseline_windows"], grouped=True)
def evaluate(
    context: typer.Context,
    mock_judge: MockJudge = False,
    estimate: Estimate = False,
    output: Output = None,
    format: Annotated[str | None, format_option(FORMATS)] = None,
    verbose: Verbose = False,
    notify: Notify = None,
    save_snapshot: Annotated[
        Path | None, typer.Option(help="Write the inputs and all answers of the run to this file (.json or .json.gz).")
    ] = None,
    snapshot: Annotated[
        Path | None,
        typer.Option(help="Repeat the run of such a file with its own options, without a world, a store or a judge."),
    ] = None,
    **asked: Any,
) -> None:
    """Score agents and compare them with their baselines.

    Prints a table on stderr, and the report on stdout unless that is a terminal.

    Exit codes: 0 in character, 1 a drop or a score below the threshold,
    2 usage or configuration, 3 no drop and something inconclusive, 4 budget.
    """
    from persona_pipeline.evaluation.against import fresh_world
    from persona_pipeline.evaluation.snapshot import save_replay
    from persona_pipeline.reporting.notify import report_notice, require_named
    from persona_pipeline.reporting.statistics import gather

    # A person reads the table, which a page of JSON would push off the screen.
    is_written = output is not None or format is not None or not sys.stdout.isatty()
    chosen = chosen_format(format, output, FORMATS) if is_written else ""
    if snapshot is not None:
        end(_replayed(snapshot, chosen, output, verbose))
    request = request_of(context, asked)
    if save_snapshot is not None and (request.against is not None or estimate):
        raise ConfigError("--save-snapshot saves a single run; leave out --against and --estimate")
    with nullcontext(open_world()) if request.against is None else fresh_world(against=request.against) as world:
        require_named(notify or (), world.written.alerts)
        if estimate:
            from persona_pipeline.evaluation.estimate import estimate_run
            from persona_pipeline.evaluation.read import WorldReader
            from persona_pipeline.judging.open import JudgeOptions

            typer.echo(str(estimate_run(world, request, request.judge, JudgeOptions.of(request))))
            say(*WorldReader(world).names_of(request).lines())
            return
        judge = judge_name(request.judge, mock_judge, world=world)
        run = run_and_print(context, world, request, judge=judge, verbose=verbose)
        say(*(f"baseline written: {path}" for path in run.baselines))
        if save_snapshot is not None or chosen:
            gather(world, run.report)
        if save_snapshot is not None and run.replay is not None:
            save_replay(save_snapshot, replace(run.replay(), statistics=run.report.statistics))
            say(f"snapshot written: {save_snapshot}")
        _write(run.report, chosen, output)
        tell(report_notice(run.report), notify or ())
        end(run.report.exit_code)


def _replayed(snapshot: Path, format: str, output: Path | None, verbose: bool) -> int:
    from persona_pipeline.evaluation.run import replayed
    from persona_pipeline.evaluation.snapshot import load_replay
    from persona_pipeline.reporting.render import print_report

    run = replayed(load_replay(snapshot))
    say(*run.notes)
    print_report(run.report, verbose=verbose)
    _write(run.report, format, output)
    return run.report.exit_code


def _write(report: "RunReport", format: str, output: Path | None, by: str = "dimension") -> None:
    """Write a report to a file or stdout; without a format, nothing."""
    from persona_pipeline.base.documents.json import write_atomically
    from persona_pipeline.reporting.render import render

    if not format:
        return
    content = _table(report, by, format) if format in TABLES else render(report, format)
    if output is not None:
        write_atomically(output, content)
        say(f"report written: {output}")
    elif isinstance(content, bytes):
        raise ConfigError(f"--format {format} is not text; name a file with --output")
    else:
        sys.stdout.write(content)


# The options that affect scores; the others only affect the verdict.
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

    They are written to baselines/. Dimensions that were not fully scored keep their earlier values.

    An agent is refused with exit code 3 when its window has a known drift, or with 1 or 3 when its
    scores are lower than in its file. The message names the command that takes the windows before.
    --accept "reason" writes the baseline anyway.
    """
    request = request_of(context, asked, update_baseline=True, baseline_windows=windows)
    world = open_world()
    judge = judge_name(request.judge, mock_judge, world=world)
    if judge != "recorded" and world.settled(request).samples < 3:
        say("hint: a baseline judged once is noisy; --samples 5 makes drops easier to detect")
    run = run_and_print(context, world, request, judge=judge, verbose=verbose)
    for path in run.baselines:
        typer.echo(str(path))
    end(run.report.exit_code)


@asks("as_of", "judge", "max_usd", "record", "fresh")
@shows()
def facts(
    context: typer.Context,
    agents: Annotated[str, typer.Argument(help="'all', or agents separated by commas.")],
    canon: Annotated[str | None, typer.Option(metavar="ID", help="Mark this fact as canon; reads nothing.")] = None,
    window: Annotated[str, typer.Option(help="The messages to read: a length of time such as 30d, or 'all'.")] = "all",
    estimate: Estimate = False,
    **asked: Any,
) -> CommandResult | None:
    """List statements that agents made about themselves, and contradictions.

    A judge reads each conversation once; recorded and stored answers are reused.

    Exit codes: 0 all read and no contradiction, 1 a contradiction, 2 usage or configuration,
    3 not all was read or compared, 4 budget.
    """
    from pydantic_core import to_jsonable_python

    from persona_pipeline.evaluation.estimate import estimate_facts
    from persona_pipeline.evaluation.run import read_facts
    from persona_pipeline.judging.open import JudgeOptions, open_judge
    from persona_pipeline.reporting.pages.instruments import facts_page
    from persona_pipeline.scoring.facts.known import known_facts, mark_canon

    request, world = request_of(context, asked, agents=names(agents), window=window, facts=True), open_world()
    if canon is not None:
        with world.store.connect() as connection:
            known = {item.id: item for item in known_facts(connection, agents)}
        if canon not in known:
            raise ConfigError(f"{agents!r} has no fact {canon!r}; `persona-pipeline facts {agents}` lists them")
        typer.echo(f"canon: {mark_canon(world.root, agents, known[canon])}")
        return None
    if estimate:
        typer.echo(estimate_facts(world, request))
        return None
    with watched_judging() as progress:
        judge = open_judge(judge_name(request.judge, world=world), world, JudgeOptions.of(request, progress))
        found = read_facts(world, judge, request)
    short = EXIT_BUDGET if any("budget" in item.failed for item in found) else EXIT_COVERAGE
    code = EXIT_OK if all(item.is_whole for item in found) else short
    return CommandResult(
        facts_page(found),
        {"agents": to_jsonable_python(found)},
        EXIT_REGRESSION if any(item.contradictions for item in found) else code,
        summary="; ".join(f"{item.agent_id}: {item.summary}" for item in found),
        looked_at=sum(item.conversations for item in found),
        looked_for=f"conversations of {agents} in --window {window}",
    )


def report(
    agents: Agents = "all",
    since: Annotated[
        str | None, typer.Option(help="Only windows that end after this: a time, or a length such as 30d.")
    ] = None,
    output: Output = None,
    format: Annotated[str | None, format_option(REPORT_FORMATS)] = None,
    by: Annotated[
        str, typer.Option(help="The row of csv and parquet: agent, dimension, claim or message.")
    ] = "dimension",
    verbose: Verbose = False,
) -> None:
    """Report the newest evaluation of each agent; makes no API calls."""
    from persona_pipeline.evaluation.history import report_of
    from persona_pipeline.evaluation.read import WorldReader
    from persona_pipeline.guard.gate import GateRules
    from persona_pipeline.reporting.render import print_report
    from persona_pipeline.reporting.statistics import gather
    from persona_pipeline.reporting.view import MANY, MOST_WHOLE

    chosen_as, world = chosen_format(format, output, REPORT_FORMATS), open_world()
    after = _since(since, world.newest_message_time())
    chosen = world.chosen(names(agents))
    # A page with many agents shows the claims of the worst ones; other formats are complete.
    whole = MOST_WHOLE if chosen_as == "html" and len(chosen) > MANY else None
    reports = WorldReader(world).reports(chosen, after, whole=whole)
    run = gather(world, report_of(reports, GateRules()), since=after)
    print_report(run, exits=False, verbose=verbose)
    _write(run, chosen_as, output, by)


def _table(run: "RunReport", by: str, format: str) -> str | bytes:
    from persona_pipeline.api.frames import report_frame

    frame = report_frame(run, by)
    if format == "csv":
        from persona_pipeline.base.text import calm_cell

        frame = frame.map(lambda cell: calm_cell(cell) if isinstance(cell, str) else cell)
        return frame.to_csv(index=False, date_format="%Y-%m-%dT%H:%M:%S%z")
    try:
        # Columns of text keep their type when they are empty.
        texts = dict.fromkeys(frame.select_dtypes("object"), "string")
        return frame.astype(texts).to_parquet(index=False)
    except ImportError as error:
        raise ConfigError("parquet needs a missing package; run pip install 'persona-pipeline[parquet]'") from error


def _since(text: str | None, newest: datetime | None) -> datetime | None:
    if text is None:
        return None
    from persona_pipeline.world.models import parse_window

    try:
        return newest - parse_window(text) if newest else None
    except ConfigError:
        return moment(text, "--since")


# Always the same port, so that links to messages stay valid.
PORT = 7395


def view(
    labeller: Annotated[
        str | None,
        typer.Option("--labeller", "--labeler", help="Name of the person who labels; by default the login name."),
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of the page on this machine; 0 chooses a free one.")
    ] = PORT,
    bundle: Annotated[
        Path | None,
        typer.Option(
            "--bundle", help="Instead write pages that can be sent to this folder: agents and worst messages."
        ),
    ] = None,
) -> None:
    """Read agents, messages and suites in the browser, and label them.

    It makes no API calls.

    The page opens on this machine with the printed address. Labels are saved to labels/ immediately.
    """
    import secrets
    import socket

    import uvicorn

    from persona_pipeline.viewer.app import address, create_app, write_bundle

    if bundle is not None:
        written = write_bundle(open_world(), bundle)
        typer.echo(f"{len(written)} pages written: {written[0]}")
        say("The pages contain messages; share them only with people who may read those.")
        return
    world, who = open_world(), _person(labeller)
    try:
        listening = socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise ConfigError(f"port {port} cannot be used ({error.strerror}); add --port 0") from error
    token = secrets.token_urlsafe(24)
    typer.echo(f"Open http://127.0.0.1:{listening.getsockname()[1]}{address('/', key=token)}")
    say("Press Ctrl-C to end; labels are saved immediately.")
    config = uvicorn.Config(create_app(world, who, token), ws="none", access_log=False, log_level="warning")
    uvicorn.Server(config).run(sockets=[listening])


def _person(name: str | None) -> str:
    """Return the labeller's name; ConfigError: it is not a valid name."""
    from persona_pipeline.guard.labels.files import check_labeller

    try:
        return check_labeller(getpass.getuser() if name is None else name)
    except (ValueError, OSError, KeyError) as error:
        raise ConfigError(f"{error}; write --labeller NAME" if name is None else str(error)) from error
