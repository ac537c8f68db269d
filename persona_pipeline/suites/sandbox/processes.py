"""Running programs of a suite: without a shell, with limits, a deadline and a small environment.

Notes of Python processes show which files they open. A program without notes may have opened any file.
"""

import ast
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from persona_pipeline.base.files import read_regular
from persona_pipeline.suites.format.files import ReasonedError, single_command
from persona_pipeline.suites.sandbox.hook.sitecustomize import FOLDER

MARK = "PERSONA_PIPELINE_PROCESS"
_KEPT = ("PATH", "HOME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TEMP", "TMP", "SYSTEMROOT", "COMSPEC", "PATHEXT")
# The end of standard error is kept. More than this multiple of the limit of standard output ends a program, too.
_STDERR_KEPT, _STDERR_SHARE = 100_000, 10


# More bytes on standard output end a program.
MOST_OUTPUT = 10_000_000
# Resource limits of a program, where the system has them. Memory is data: JavaScript engines reserve far more addresses than
# they use.
LIMITS = {
    "RLIMIT_CPU": 600,
    "RLIMIT_DATA": 4 * 1024**3,
    "RLIMIT_FSIZE": 1024**3,
    "RLIMIT_NOFILE": 1024,
    "RLIMIT_NPROC": 4096,
}


@dataclass(frozen=True)
class ProcessResult:
    """Result of a program. ``stderr``: its last part."""

    returncode: int
    stdout: bytes
    stderr: bytes
    seconds: float

    @property
    def error_text(self) -> str:
        """The end of standard error, for a message."""
        return self.stderr.decode("utf-8", "replace").strip()[-2000:]


class ProcessError(ReasonedError):
    """A program did not start (``not_found``), took too long (``timeout``) or wrote too much (``too_much_output``)."""


# Sets limits in the child process before it becomes the program; a hook between fork and exec may deadlock with threads.
_LAUNCHER = """
import os, sys
try:
    import resource
    for limit in sys.argv[1:6]:
        name, value = limit.split("=")
        kind = getattr(resource, name, None)
        if kind is not None:
            hard = resource.getrlimit(kind)[1]
            limit = int(value) if hard == resource.RLIM_INFINITY else min(int(value), hard)
            resource.setrlimit(kind, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
except (ImportError, ValueError, OSError):
    pass
try:
    os.execvp(sys.argv[6], sys.argv[6:])
except OSError as error:
    sys.stderr.write(error.strerror or str(error))
    sys.exit(127)
"""


def little_environment() -> dict[str, str]:
    """Return a small environment for programs: without keys, tokens and settings of this project."""
    return {name: value for name, value in os.environ.items() if name in _KEPT or name.startswith("LC_")}


def run_process(
    argv: Sequence[str],
    *,
    cwd: Path,
    stdin: bytes = b"",
    timeout: float,
    environment: Mapping[str, str] | None = None,
) -> ProcessResult:
    """Run a program and return its output.

    It has its own session. At the end all its processes are killed.
    """
    mark = uuid.uuid4().hex
    # A relative program is in its folder, as for a shell.
    program = argv[0]
    if not Path(program).is_absolute() and "/" in program:
        program = str(cwd / program)
    if (os.sep in program and not os.access(program, os.X_OK)) or not cwd.is_dir():
        reason = "is not executable" if Path(program).is_file() else "does not exist"
        raise ProcessError("not_found", f"{argv[0]!r} {reason} (in {cwd})")
    limits = [f"{name}={value}" for name, value in LIMITS.items()]
    command = [sys.executable, "-I", "-S", "-c", _LAUNCHER, *limits, program, *argv[1:]]
    started = time.monotonic()
    # Files, not pipes: a process that is left over could hold a pipe open.
    with (
        watched(argv, environment or {}) as given,
        tempfile.TemporaryFile() as source,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
    ):
        source.write(stdin)
        source.seek(0)
        try:
            process = subprocess.Popen(
                command,
                cwd=cwd,
                env={**little_environment(), **given, MARK: mark},
                stdin=source,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise ProcessError("not_found", f"{argv[0]!r} could not be started: {error}") from error
        try:
            while process.poll() is None:
                if time.monotonic() > started + timeout:
                    raise ProcessError("timeout", f"took longer than {timeout:g} s and was stopped")
                _check_size(out, err)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(0.05)
            _check_size(out, err)
        finally:
            _kill(process, mark)
        out.seek(0)
        err.seek(max(0, os.fstat(err.fileno()).st_size - _STDERR_KEPT))
        result = ProcessResult(process.returncode, out.read(), err.read(), time.monotonic() - started)
    if result.returncode == 127 and not result.stdout:
        raise ProcessError("not_found", f"{argv[0]!r} could not be started: {result.error_text[-500:]}")
    return result


def _check_size(out: IO[bytes], err: IO[bytes]) -> None:
    if os.fstat(out.fileno()).st_size > MOST_OUTPUT or os.fstat(err.fileno()).st_size > _STDERR_SHARE * MOST_OUTPUT:
        raise ProcessError("too_much_output", f"wrote more than {MOST_OUTPUT:,} bytes and was stopped")


def _kill(process: "subprocess.Popen[bytes]", mark: str) -> None:
    """Kill the program's group, and processes outside the group with its mark in their environment."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    needle = f"{MARK}={mark}".encode()
    for _ in range(3):
        left = []
        for folder in Path("/proc").glob("[0-9]*") if Path("/proc/self/environ").exists() else ():
            with contextlib.suppress(OSError):
                # A zombie process has an empty environment.
                if needle in (folder / "environ").read_bytes():
                    left.append(int(folder.name))
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not left:
            return
        # The next round finds processes that were started meanwhile.
        time.sleep(0.005)


_HOOK = str(Path(__file__).parent / "hook")
_MOST_NOTES = 20_000_000


@dataclass
class Opened:
    """Files that programs opened. ``places``: absolute path and kind; ``is_whole``: they may have opened any other file."""

    places: set[tuple[str, str]] = field(default_factory=set)
    is_whole: bool = os.name == "nt"
    programs: int = 0


_CURRENT: ContextVar[Opened | None] = ContextVar("opened", default=None)


@contextmanager
def recording() -> Iterator[Opened]:
    """Collect the files that programs open in this context."""
    token = _CURRENT.set(opened := Opened())
    try:
        yield opened
    finally:
        _CURRENT.reset(token)


@contextmanager
def watched(argv: Sequence[str], environment: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
    """Yield the environment that makes a program write notes; collect them afterwards."""
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
            # A stopped program may open more the next time.
            opened.is_whole = True
            raise
        try:
            _collect(opened, Path(folder), argv)
        except (OSError, ValueError, SyntaxError, TypeError, LookupError, RecursionError):
            opened.is_whole = True


def _collect(opened: Opened, folder: Path, argv: Sequence[str]) -> None:
    """Add the notes. Every started process must be a Python with notes and the same arguments."""
    started, seen = [tuple(single_command(argv))], Counter[tuple[str, ...]]()
    for file in folder.iterdir():
        for line in read_regular(file, _MOST_NOTES, [folder.resolve()]).splitlines():
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
