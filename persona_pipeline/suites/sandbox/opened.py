"""What the programs of a suite open: from the notes of Python processes. A program that leaves none may have opened anything."""

import ast
import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

from persona_pipeline.base.files import read_regular
from persona_pipeline.suites.format.files import single_command
from persona_pipeline.suites.sandbox.hook.sitecustomize import FOLDER

_HOOK = str(Path(__file__).parent / "hook")
_MOST_BYTES = 20_000_000


@dataclass
class Opened:
    """What ``programs`` programs opened. ``places``: absolute path as named, and kind; ``is_whole``: perhaps anything else."""

    places: set[tuple[str, str]] = field(default_factory=set)
    is_whole: bool = os.name == "nt"
    programs: int = 0


_CURRENT: ContextVar[Opened | None] = ContextVar("opened", default=None)


@contextmanager
def recording() -> Iterator[Opened]:
    """Collect what programs open that run in this context."""
    token = _CURRENT.set(opened := Opened())
    try:
        yield opened
    finally:
        _CURRENT.reset(token)


@contextmanager
def watched(argv: Sequence[str], environment: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
    """Yield the environment in which a program leaves notes, and collect them when it has ended."""
    opened = _CURRENT.get()
    if opened is None:
        yield environment
        return
    opened.programs += 1
    with tempfile.TemporaryDirectory(prefix="persona-opened-") as folder:
        path = os.pathsep.join(filter(None, (_HOOK, environment.get("PYTHONPATH"))))
        try:
            yield {**environment, "PYTHONPATH": path, FOLDER: folder}
        except BaseException:
            # What was stopped may open more the next time.
            opened.is_whole = True
            raise
        try:
            _collect(opened, Path(folder), argv)
        except (OSError, ValueError, SyntaxError, TypeError, LookupError, RecursionError):
            opened.is_whole = True


def _collect(opened: Opened, folder: Path, argv: Sequence[str]) -> None:
    """Add the notes. All that was started must be a Python that left some, with the same arguments."""
    started, seen = [tuple(single_command(argv))], Counter[tuple[str, ...]]()
    for file in folder.iterdir():
        for line in read_regular(file, _MOST_BYTES, [folder.resolve()]).splitlines():
            kind, value = ast.literal_eval(line.decode("ascii"))
            if kind == "process":
                seen[value[1:]] += 1
            elif kind == "started":
                started.append(value[1:])
            elif kind == "place":
                opened.places.add(value)
            else:
                opened.is_whole = True
    is_python = all(words and Path(words[0]).name.startswith("python") for words in started)
    opened.is_whole |= not is_python or bool(Counter(words[1:] for words in started) - seen)
