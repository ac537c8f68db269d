"""Programs a suite names: which of their files are not there, told before anything is run."""

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

# The platform's shell, for a program that is written as one line of text (spec/3).
SHELL = ("cmd.exe", "/c") if os.name == "nt" else ("sh", "-lc")
_SCRIPTS = (".py", ".js", ".mjs", ".cjs", ".ts", ".mts", ".sh", ".bash", ".rb", ".pl", ".ps1", ".php", ".r")
_SIGNS = frozenset("|&;<>$`*?[](){}#~=\n")


def missing_file(script: Sequence[str], folder: Path) -> str | None:
    """Return the file of a program that is not there, None where there is none to be seen.

    Looked for are a program with a folder in its name, and the first argument that ends as a script does. Where a program is found
    by name, or a line is more than a command for the shell, nothing is said.

    Args:
        script: argv.
        folder: where it runs.
    """
    words = list(script)
    if tuple(words[:2]) == SHELL and len(words) == 3:
        if _SIGNS & set(words[2]):
            return None
        try:
            words = shlex.split(words[2])
        except ValueError:
            return None
    named = [words[0]] if words and ("/" in words[0] or "\\" in words[0]) else []
    named += [word for word in words[1:] if Path(word).suffix.lower() in _SCRIPTS and not word.startswith("-")][:1]
    return next((name for name in named if not (folder / name).exists()), None)
