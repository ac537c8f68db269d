"""A line on a terminal that says how far the judge is, or plain lines where there is none; and what a Ctrl-C leaves behind."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from persona_pipeline.judging.progress import Progress

# What a shell reports of a command that was interrupted.
EXIT_INTERRUPTED = 130


@contextmanager
def watched_judging() -> Iterator["Progress"]:
    """Yield what counts a live judge's answers, and show it on stderr; interrupted, say what is kept and how to go on."""
    from persona_pipeline.judging.progress import IN_A_LOG, ON_A_TERMINAL, Progress

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
        raise typer.Exit(EXIT_INTERRUPTED) from None
    _end_line(progress, terminal)


def _end_line(progress: "Progress", terminal: bool) -> None:
    if terminal and progress.expected:
        sys.stderr.write("\n")
