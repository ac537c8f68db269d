"""``suite run --watch``: the same run again whenever a file it may rest on changes."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import typer
from watchfiles import Change, run_process

# What suites are written in and rest on; what runs keep stands in folders that begin with a dot.
ENDINGS = (".yaml", ".yml", ".jsonl", ".json", ".csv", ".md", ".txt", ".py", ".js", ".ts", ".sh")


def run_again_and_again(suites: Sequence[Path], outputs: Sequence[Path]) -> NoReturn:
    """Run the command line that asked for it, without ``--watch``, now and after each change; ends with Ctrl-C.

    Args:
        outputs: what the run writes, whose change starts nothing.
    """
    folders = sorted({path.resolve().parent for path in suites})
    written = {path.resolve() for path in outputs}
    typer.echo(f"watching {', '.join(map(str, folders))}; end with Ctrl-C", err=True)
    command = [sys.executable, "-m", "persona_pipeline", *(word for word in sys.argv[1:] if word != "--watch")]
    run_process(
        *folders,
        target=shlex.join(command),
        target_type="command",
        watch_filter=lambda _, name: is_watched(Path(name), folders, written),
        callback=_say,
    )
    raise typer.Exit(0)


def is_watched(path: Path, folders: Sequence[Path], written: set[Path]) -> bool:
    """Return whether a change of a file is a reason to run again."""
    if path.suffix not in ENDINGS or path.resolve() in written:
        return False
    inside = next(
        (path.resolve().relative_to(folder) for folder in folders if path.resolve().is_relative_to(folder)), path
    )
    return not any(part.startswith(".") or part == "__pycache__" for part in inside.parts)


def _say(changes: set[tuple[Change, str]]) -> None:
    typer.echo(f"\n{', '.join(sorted({Path(name).name for _, name in changes})[:3])} changed", err=True)
