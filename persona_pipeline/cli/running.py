"""A run from the command line: its progress, and on stderr what was left out, the scores and what is not recorded yet."""

import gc
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

import typer

from persona_pipeline.base.errors import EXIT_OK, NothingError

if TYPE_CHECKING:
    from persona_pipeline.base.options import EvaluationRequest
    from persona_pipeline.evaluation.run import Run
    from persona_pipeline.judging.open import Progress
    from persona_pipeline.reporting.notify import Notice
    from persona_pipeline.world.world import World

# What does not belong to asking for the rest: where the report went, and that everything was asked anew.
_NOT_AGAIN = ("judge", "mock_judge", "as_of", "fresh", "output", "format", "verbose")


def run_and_print(
    context: typer.Context, world: "World", request: "EvaluationRequest", *, judge: str, verbose: bool = False
) -> "Run":
    """Evaluate as asked; stderr gets the lines of message files that were left out, the table of scores, and what failed.

    ConfigError: bad input; nothing is evaluated then.
    """
    from persona_pipeline.evaluation.estimate import missing_text
    from persona_pipeline.evaluation.run import run_evaluation
    from persona_pipeline.judging.open import JudgeOptions, open_judge

    # What was imported stays: whoever looks for garbage, and the process as it ends, need not go through it.
    if not gc.get_freeze_count():
        gc.freeze()
    with watched_judging() as progress:
        options = JudgeOptions.of(request, progress)
        opened = open_judge(judge, world, options)
        run = run_evaluation(world, opened, request)
    for problem in run.problems:
        typer.echo(f"left out: {problem}", err=True)
    for note in run.notes:
        typer.echo(note, err=True)

    from persona_pipeline.reporting.render import print_report

    print_report(run.report, verbose=verbose)
    if request.record:
        command = _again(context, judge, run.report.provenance.get("window_end"))
        if missing := missing_text(world, opened, command, judge, options):
            typer.echo(missing, err=True)
    return run


def _again(context: typer.Context, judge: str, window_end: str | None) -> str:
    """Return the command that asks on the same window for what is not recorded."""
    said = ["persona-pipeline", context.info_name or ""]
    for parameter in context.command.params:
        name = parameter.name or ""
        given = context.get_parameter_source(name)
        if name in _NOT_AGAIN or given is None or given.name != "COMMANDLINE":
            continue
        value = context.params[name]
        if isinstance(value, bool):
            said.append(parameter.opts[0] if value else parameter.secondary_opts[0])
        else:
            said += [parameter.opts[0], shlex.quote(str(value))]
    end = ["--as-of", window_end] if window_end else []
    return " ".join([*said, *end, "--judge", judge])


def tell(notice: "Notice | None", names: Sequence[str]) -> None:
    """Tell whoever asked to hear of it; what could not be delivered is a line on stderr, and changes no exit code."""
    if notice is None or not names:
        return
    from persona_pipeline.reporting.notify import addresses, notify

    for problem in notify(notice, addresses(names)):
        typer.echo(problem, err=True)


def end(code: int = EXIT_OK, *, looked_at: int | None = None, looked_for: str = "") -> NoReturn:
    """End a command with its exit code.

    ``looked_at``: the number of things that the code is about; None: the command looks for none. With none of them there is no
    answer, which is no pass: ``NothingError`` ends the command with 3 and names ``looked_for``.
    """
    if looked_at == 0:
        raise NothingError(f"there is nothing to look at: {looked_for}")
    raise typer.Exit(code)


# What a shell reports of a command that was interrupted.
EXIT_INTERRUPTED = 130


@contextmanager
def watched_judging() -> Iterator["Progress"]:
    """Yield what counts a live judge's answers, and show it on stderr; interrupted, say what is kept and how to go on."""
    from persona_pipeline.judging.open import IN_A_LOG, ON_A_TERMINAL, Progress

    terminal = sys.stderr.isatty()

    def show(line: str) -> None:
        if terminal:
            # Over the line before, and nothing left of it.
            sys.stderr.write(f"\r\x1b[2K{line}")
            sys.stderr.flush()
        else:
            typer.echo(line, err=True)

    progress = Progress(show, ON_A_TERMINAL if terminal else IN_A_LOG)
    try:
        yield progress
    except KeyboardInterrupt:
        _end_line(progress, terminal)
        kept = progress.known + progress.answered
        typer.echo(
            f"stopped: {kept} judgments are kept (${progress.usd:.4f} paid); "
            "run the same command again to go on: what is kept costs nothing",
            err=True,
        )
        end(EXIT_INTERRUPTED)
    _end_line(progress, terminal)


def _end_line(progress: "Progress", terminal: bool) -> None:
    if terminal and progress.expected:
        sys.stderr.write("\n")
