"""Programs a suite names: which of their files are not there, and what they are made of as far as the repository shows it."""

import importlib.util
import inspect
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The platform's shell, for a program that is written as one line of text (spec/3).
SHELL = ("cmd.exe", "/c") if os.name == "nt" else ("sh", "-lc")
_SCRIPTS = (".py", ".js", ".mjs", ".cjs", ".ts", ".mts", ".sh", ".bash", ".rb", ".pl", ".ps1", ".php", ".r")
_SIGNS = frozenset("|&;<>$`*?[](){}#~=\n")
_WORDS = re.compile(r"[\s;|&<>()'\"`$=,]+")
_COMMANDS = re.compile(r"[;|&\n]+")
# They do what a file or a text that is in sight says; everything else in the system's folders is the system's.
_INTERPRETERS = re.compile(r"(python|node|deno|bun|ruby|perl|php|Rscript|sh|bash|zsh|dash|env|pwsh|cmd)[\d.]*(\.exe)?")
_SYSTEM = ("/bin", "/sbin", "/usr/bin", "/usr/sbin")
# They run what cannot be seen from their names.
_LAUNCHERS = {
    "npx", "npm", "yarn", "pnpm", "uv", "uvx", "pipx", "poetry", "pdm", "hatch", "make", "docker", "podman", "go", "cargo", "java",
    "dotnet",
}  # fmt: skip


def missing_file(script: Sequence[str], folder: Path) -> str | None:
    """Return the file of a program that is not there, None where there is none to be seen.

    Looked for are a program with a folder in its name, and the first argument that ends as a script does. Where a program is
    found by name, or a line is more than a command for the shell, nothing is said. ``script``: argv. ``folder``: where it runs.
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


@dataclass(frozen=True)
class ProgramSource:
    """Something that a program is made of. ``unseen``: why nobody can look into it. ``program``: what lies beside it counts too."""

    path: Path | None = None
    program: bool = False
    unseen: str = ""


def program_sources(script: Sequence[str], folders: Sequence[Path]) -> Iterator[ProgramSource]:
    """Yield what a program is made of: the files and folders its arguments name, its module; and what of it cannot be seen.

    ``script``: argv. ``folders``: where it may run; what is named relatively is looked for in each.
    """
    words = [part for word in script for part in (word, *_WORDS.split(word)) if part and "{" not in part]
    found = False
    for word in dict.fromkeys(words):
        for path in _there(word, folders):
            if not (word.startswith("/dev/") or (os.path.isabs(word) and _is_systems(word))):  # noqa: PTH117
                found = True
                runs = path.suffix.lower() in _SCRIPTS or (path.is_file() and os.access(path, os.X_OK))
                yield ProgramSource(path, program=word == script[0] or runs)
    if "-m" in script[:-1]:
        found = True
        yield from module_sources(script[list(script).index("-m") + 1], folders)
    commands = [script[0]] if script else []
    if len(script) > 2 and script[1].startswith("-") and script[1].endswith("c") and _INTERPRETERS.fullmatch(script[0]):
        commands += [words[0] for part in _COMMANDS.split(script[2]) if (words := part.split())]
    for name in commands:
        if "/" in name or "\\" in name:
            if not any(_there(name, folders)) and not _is_systems(name):
                yield ProgramSource(unseen=f"{name} (not found)")
        elif Path(name).name in _LAUNCHERS:
            if not found:
                yield ProgramSource(unseen=f"what {name} runs (out of sight)")
        elif not _is_systems(name) and re.fullmatch(r"[\w.-]+", name):
            yield from _installed(name)


def source_file(call: Callable[..., Any]) -> Path | None:
    """Return the file that a function stands in, None where there is none to be seen."""
    try:
        found = inspect.getsourcefile(inspect.unwrap(call))
    except TypeError:
        return None
    return Path(found).resolve() if found and Path(found).is_file() else None


def module_sources(name: str, folders: Sequence[Path]) -> Iterator[ProgramSource]:
    """Yield what a module is made of: the file or the folder of its outermost package, beside a program or installed."""
    top = name.partition(".")[0]
    for folder in folders:
        for path in (folder / f"{top}.py", folder / top):
            if path.exists():
                yield ProgramSource(path, program=True)
                return
            # Were it there, it would be taken.
            yield ProgramSource(path)
    if top in sys.stdlib_module_names:
        return
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError, AttributeError):
        spec = None
    places = [*(spec.submodule_search_locations or ())] if spec else []
    places = places or ([spec.origin] if spec and spec.origin else [])
    if not places:
        yield ProgramSource(unseen=f"the module {top} (not found)")
    for place in places:
        yield ProgramSource(Path(place), program=True)


def _there(word: str, folders: Sequence[Path]) -> Iterator[Path]:
    if len(word) > 1000 or "\0" in word or word.startswith("-"):
        return
    for folder in folders:
        try:
            if (folder / word).exists() or (folder / word).is_symlink():
                yield folder / word
        except OSError:
            continue


def _is_systems(name: str) -> bool:
    """Whether a program is an interpreter, or comes with the system."""
    if _INTERPRETERS.fullmatch(Path(name).name):
        return True
    found = shutil.which(name)
    return found is not None and os.path.dirname(found) in _SYSTEM and Path(name).name not in _LAUNCHERS  # noqa: PTH120


def _installed(name: str) -> Iterator[ProgramSource]:
    """Yield what a command is made of that a package of this environment brings, such as the agent's own."""
    from importlib.metadata import entry_points

    points = entry_points(group="console_scripts", name=name)
    for point in points:
        yield from module_sources(point.module, ())
    if not points:
        yield ProgramSource(unseen=f"the program {name} (out of sight)")
