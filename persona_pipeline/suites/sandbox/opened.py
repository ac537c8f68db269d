"""What the programs of a suite open: from the notes of Python processes, and of functions that run in this process.

A program that leaves no notes, or starts one that leaves none, may have opened anything.
"""

import ast
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from persona_pipeline.base.files import read_regular
from persona_pipeline.suites.format.programs import single_command
from persona_pipeline.suites.sandbox.hook.sitecustomize import FOLDER, HARMLESS, Watch, is_library

_HOOK = str(Path(__file__).parent / "hook")
_PYTHON, _MOST_BYTES = "python", 20_000_000
_TARGETS = "persona_pipeline.suites.targets.python"


@dataclass
class Opened:
    """What ran, and what it opened.

    Attributes:
        places: kind and absolute path as it was named: ``file`` (opened), ``asked`` (looked for), ``folder`` (listed), ``modules``
            (listed by an import), ``early`` (loaded before anything was noted). They may lie anywhere.
        is_whole: something ran that may have opened anything.
        programs: the number of programs and functions that ran.
    """

    places: set[tuple[str, str]] = field(default_factory=set)
    is_whole: bool = os.name == "nt"
    programs: int = 0

    def add(self, fact: tuple[str, Any]) -> None:
        if fact[0] in ("doubt", "started"):
            self.is_whole = True
        else:
            self.places.add(fact)


_CURRENT: ContextVar[Opened | None] = ContextVar("opened", default=None)
# What functions of this process have opened so far. Modules are loaded once, so all functions share it.
_HERE: list[Opened] = []


@contextmanager
def recording() -> Iterator[Opened]:
    """Collect what programs open that run in this context."""
    token = _CURRENT.set(opened := Opened())
    try:
        yield opened
    finally:
        _CURRENT.reset(token)


@contextmanager
def watched(argv: Sequence[str], cwd: Path, environment: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Yield the environment in which a program leaves notes, and collect them when it has ended."""
    opened = _CURRENT.get()
    if opened is None:
        yield {}
        return
    opened.programs += 1
    # What finds a Python by its name may read which one a folder wants.
    opened.places |= {("file", str(place / ".python-version")) for place in (cwd, *cwd.parents)}
    with tempfile.TemporaryDirectory(prefix="persona-opened-") as folder:
        path = os.pathsep.join(filter(None, (_HOOK, environment.get("PYTHONPATH"))))
        try:
            yield {"PYTHONPATH": path, FOLDER: folder}
        finally:
            _collect(opened, Path(folder), argv)


def _collect(opened: Opened, folder: Path, argv: Sequence[str]) -> None:
    expected = Counter([_words(argv)])
    seen: Counter[tuple[str, ...]] = Counter()
    try:
        for file in folder.iterdir():
            for line in read_regular(file, _MOST_BYTES, [folder.resolve()]).splitlines():
                kind, value = ast.literal_eval(line.decode("ascii"))
                if kind == "process":
                    seen.update((tuple(value), (_PYTHON, *value[1:])))
                elif kind == "started" and value[1] == value[2]:
                    expected[_words(value[2:])] += 1
                else:
                    opened.add((kind, value))
    except (OSError, ValueError, SyntaxError, TypeError, LookupError, RecursionError):
        opened.is_whole = True
    opened.is_whole |= bool(expected - seen)


def _words(argv: Sequence[str]) -> tuple[str, ...]:
    """Return a command line as its process names itself; a Python that is found by name may be started by another path."""
    words = single_command(argv)
    by_name = words and words[0].startswith(_PYTHON) and "/" not in words[0]
    return (_PYTHON, *words[1:]) if by_name else tuple(words)


def watch_here() -> None:
    """Begin to note what functions of targets open in this process, before their modules are imported."""
    if not _HERE:
        _HERE.append(here := Opened())
        files = [getattr(module, "__file__", None) for module in [*sys.modules.values()]]
        here.places |= {("early", file) for file in files if isinstance(file, str) and not is_library(file)}
        Watch(here.add, _is_the_runners).install()


def note_here(*, is_watched: bool) -> None:
    """Add what functions of this process opened; ``is_watched``: the module was imported after ``watch_here``."""
    opened = _CURRENT.get()
    if opened is not None:
        opened.programs += 1
        opened.is_whole |= (
            not is_watched or any(here.is_whole for here in _HERE) or any(map(_is_foreign, [*sys.modules]))
        )
        opened.places.update(*(here.places for here in _HERE))


def _is_the_runners() -> bool:
    """Return whether the current call comes from this package, and not from a target's function or a thread of its own."""
    frame, own = sys._getframe(1), False
    while frame is not None:
        name = str(frame.f_globals.get("__name__"))
        if name == _TARGETS:
            return False
        own = own or (name.startswith("persona_pipeline.") and name not in (__name__, Watch.__module__))
        frame = frame.f_back
    return own


def _is_foreign(name: str) -> bool:
    """Return whether a module may open files that are not noted."""
    file = getattr(sys.modules.get(name), "__file__", None)
    if not isinstance(file, str) or not file.endswith((".so", ".pyd")):
        return False
    return name.partition(".")[0] not in HARMLESS and not is_library(file)
