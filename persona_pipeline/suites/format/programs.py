"""Programs that a suite names: their command lines, and which of their files do not exist."""

import inspect
import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

# The platform's shell, for a program that is written as one line of text (spec/3).
SHELL = ("cmd.exe", "/c") if os.name == "nt" else ("sh", "-lc")
_SHELLS = ("sh", "bash", "dash")
_SCRIPTS = (".py", ".js", ".mjs", ".cjs", ".ts", ".mts", ".sh", ".bash", ".rb", ".pl", ".ps1", ".php", ".r")
_SIGNS = frozenset("|&;<>$`*?[](){}#~=\n")


def single_command(script: Sequence[str]) -> list[str]:
    """Return the command that a program is; of a shell that runs one command that command. Empty: a shell that does more."""
    words = list(script)
    if len(words) != 3 or not (
        tuple(words[:2]) == SHELL or (Path(words[0]).name in _SHELLS and words[1] in ("-c", "-lc"))
    ):
        return words
    try:
        return [] if _SIGNS & set(words[2]) else shlex.split(words[2])
    except ValueError:
        return []


def missing_file(script: Sequence[str], folder: Path) -> str | None:
    """Return the file of a program that does not exist, None where no missing file is seen.

    A missing file is a program with a folder in its name, or the first argument that ends as a script does. A shell's line that is
    more than one command is not looked at. ``script``: argv. ``folder``: where it runs.
    """
    words = single_command(script)
    named = [words[0]] if words and ("/" in words[0] or "\\" in words[0]) else []
    named += [word for word in words[1:] if Path(word).suffix.lower() in _SCRIPTS and not word.startswith("-")][:1]
    return next((name for name in named if not (folder / name).exists()), None)


def source_file(call: Callable[..., Any]) -> Path | None:
    """Return the file of a function, None where it has none."""
    try:
        found = inspect.getsourcefile(inspect.unwrap(call))
    except TypeError:
        return None
    return Path(found).resolve() if found and Path(found).is_file() else None
