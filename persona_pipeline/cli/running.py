"""How a command runs and ends: its result is written in one format, summed up in one line, and sets its exit code."""

import gc
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from persona_pipeline.base.errors import EXIT_OK, NothingError
from persona_pipeline.cli.options import AsJson, Command, Output, chosen_format, format_option, say, taking

if TYPE_CHECKING:
    from persona_pipeline.base.options import EvaluationRequest
    from persona_pipeline.evaluation.run import Run
    from persona_pipeline.judging.open import Progress
    from persona_pipeline.reporting.notify import Notice
    from persona_pipeline.reporting.render import Page
    from persona_pipeline.world.world import World

PAGE_FORMATS = ("table", "json", "markdown", "html")
# Options that the command for the missing judgments leaves out.
_NOT_AGAIN = ("judge", "mock_judge", "as_of", "fresh", "output", "format", "verbose")


@dataclass(frozen=True)
class CommandResult:
    """The result of a command, before it is written in a format.

    Attributes:
        page: the output for a person.
        data: the same as plain JSON.
        code: the exit code.
        summary: one line for stderr; by default the title of the page.
        notes: further lines for stderr.
        looked_at: the number of items behind the exit code; None: the command does not look for items.
        looked_for: the name of these items, for the message if there are none.
    """

    page: "Page"
    data: Any
    code: int = EXIT_OK
    summary: str = ""
    notes: Sequence[str] = ()
    looked_at: int | None = None
    looked_for: str = ""


def shows(first: str = PAGE_FORMATS[0]) -> Callable[[Command], Command]:
    """Give a command ``--format`` (default ``first``), ``--output`` and ``--json``; write its ``CommandResult`` and end it."""
    formats = (first, *(name for name in PAGE_FORMATS if name != first))

    def showing(command: Command) -> Command:
        @wraps(command)
        def run(*args: Any, format: str | None, output: Path | None, as_json: bool, **given: Any) -> None:
            # An unknown format is reported before any work is done.
            chosen = chosen_format(format, output, formats, as_json=as_json)
            result = command(*args, **given)
            if result is not None:
                _show(result, chosen, output)

        format_type = Annotated[str | None, format_option(formats)]
        own = {"format": (format_type, None), "output": (Output, None), "as_json": (AsJson, False)}
        return taking(run, own, last=True)

    return showing


def _show(result: CommandResult, format: str, output: Path | None) -> None:
    from persona_pipeline.reporting.render import write_page

    title = write_page(result.page, result.data, format, output)
    say(*result.notes)
    if result.looked_at != 0:
        say(f"{result.summary or title}. Exit code {result.code}.")
    end(result.code, looked_at=result.looked_at, looked_for=result.looked_for)


def run_and_print(
    context: typer.Context, world: "World", request: "EvaluationRequest", *, judge: str, verbose: bool = False
) -> "Run":
    """Evaluate, and print skipped lines of message files, the scores and missing recordings on stderr."""
    from persona_pipeline.evaluation.estimate import missing_text
    from persona_pipeline.evaluation.run import run_evaluation
    from persona_pipeline.judging.open import JudgeOptions, open_judge

    # Imported modules stay to the end, so the garbage collector need not visit them.
    if not gc.get_freeze_count():
        gc.freeze()
    with watched_judging() as progress:
        options = JudgeOptions.of(request, progress)
        opened = open_judge(judge, world, options)
        run = run_evaluation(world, opened, request)
    say(*(f"left out: {problem}" for problem in run.problems))
    say(*run.notes)

    from persona_pipeline.reporting.render import print_report

    print_report(run.report, verbose=verbose)
    if request.record:
        command = _again(context, judge, run.report.provenance.get("window_end"))
        if missing := missing_text(world, opened, command, judge, options):
            say(missing)
    return run


def _again(context: typer.Context, judge: str, window_end: str | None) -> str:
    """Return the command that asks for the missing judgments of the same window."""
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
    """Send a notice; a failed delivery is a line on stderr and does not change the exit code."""
    if notice is None or not names:
        return
    from persona_pipeline.reporting.notify import addresses, notify

    say(*notify(notice, addresses(names)))


def end(code: int = EXIT_OK, *, looked_at: int | None = None, looked_for: str = "") -> NoReturn:
    """End a command with its exit code.

    A command that looks for things and finds none has no answer: with ``looked_at`` 0, ``NothingError`` names ``looked_for`` and
    ends it with 3.
    """
    if looked_at == 0:
        raise NothingError(f"there is nothing to look at: {looked_for}")
    raise typer.Exit(code)


# The exit code that shells use for an interrupted command.
EXIT_INTERRUPTED = 130


@contextmanager
def watched_judging() -> Iterator["Progress"]:
    """Yield the progress of a live judge, shown on stderr; on Ctrl-C, report the kept results and how to continue."""
    from persona_pipeline.judging.open import IN_A_LOG, ON_A_TERMINAL, Progress

    terminal = sys.stderr.isatty()

    def show(line: str) -> None:
        if terminal:
            # Replaces the previous line.
            sys.stderr.write(f"\r\x1b[2K{line}")
            sys.stderr.flush()
        else:
            say(line)

    progress = Progress(show, ON_A_TERMINAL if terminal else IN_A_LOG)
    try:
        yield progress
    except KeyboardInterrupt:
        _end_line(progress, terminal)
        kept = progress.known + progress.answered
        say(
            f"stopped: {kept} judgments are kept (${progress.usd:.4f} paid); "
            "run the same command again to continue; kept judgments cost nothing"
        )
        end(EXIT_INTERRUPTED)
    _end_line(progress, terminal)


def _end_line(progress: "Progress", terminal: bool) -> None:
    if terminal and progress.expected:
        sys.stderr.write("\n")
