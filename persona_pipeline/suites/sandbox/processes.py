"""Running a suite's own programs: argv and no shell, a deadline, limits, little environment, and nothing left running."""

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

MARK = "PERSONA_PIPELINE_PROCESS"
_KEPT = ("PATH", "HOME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TEMP", "TMP", "SYSTEMROOT", "COMSPEC", "PATHEXT")
_CHUNK = 65_536
_STDERR_KEPT = 200_000


@dataclass(frozen=True)
class ProcessLimits:
    """What a program may take.

    Attributes:
        output_bytes: on its standard output; more ends it.
        cpu_seconds, memory_bytes, file_bytes, open_files, processes: resource limits where the system has them. Memory is
            what is written to (RLIMIT_DATA): JavaScript engines reserve far more addresses than they use, and a limit on those
            would stop them.
    """

    output_bytes: int = 10_000_000
    cpu_seconds: int = 600
    memory_bytes: int = 4 * 1024**3
    file_bytes: int = 1024**3
    open_files: int = 1024
    processes: int = 4096

    def arguments(self) -> list[str]:
        values = (self.cpu_seconds, self.memory_bytes, self.file_bytes, self.open_files, self.processes)
        return [str(value) for value in values]


@dataclass(frozen=True)
class ProcessResult:
    """How a program ended. ``stderr`` is the last part of it."""

    returncode: int
    stdout: bytes
    stderr: bytes
    seconds: float

    @property
    def error_text(self) -> str:
        """The end of standard error, for a message."""
        return self.stderr.decode("utf-8", "replace").strip()[-2000:]


class ProcessError(Exception):
    """The program could not be started (``not_found``), took too long (``timeout``) or wrote too much (``too_much_output``)."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason, self.message = reason, message


# Sets limits in the program's own process before it becomes the program: a hook between fork and exec could deadlock under threads.
_LAUNCHER = """
import os, sys
try:
    import resource
    names = ("RLIMIT_CPU", "RLIMIT_DATA", "RLIMIT_FSIZE", "RLIMIT_NOFILE", "RLIMIT_NPROC")
    for name, value in zip(names, sys.argv[1:6]):
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


def scrubbed_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the little of this process's environment that programs need: no keys, no tokens, no settings of this project."""
    kept = {name: value for name, value in os.environ.items() if name in _KEPT or name.startswith("LC_")}
    return kept | dict(extra or {})


def run_process(
    argv: Sequence[str],
    *,
    cwd: Path,
    stdin: bytes = b"",
    timeout: float,
    environment: Mapping[str, str] | None = None,
    limits: ProcessLimits | None = None,
) -> ProcessResult:
    """Run a program to its end and return what it wrote.

    It gets a session of its own; when it ends, runs out of time or is abandoned, everything it started is killed with it.

    Raises:
        ProcessError: it could not be started, took longer than ``timeout`` seconds, or wrote more than it may.
    """
    limits = limits or ProcessLimits()
    mark = uuid.uuid4().hex
    # A relative program is the one in its folder, as a shell would find it there.
    program = argv[0]
    if not Path(program).is_absolute() and "/" in program:
        program = str(cwd / program)
    if (os.sep in program and not os.access(program, os.X_OK)) or not cwd.is_dir():
        reason = "is not executable" if Path(program).is_file() else "does not exist"
        raise ProcessError("not_found", f"{argv[0]!r} {reason} (in {cwd})")
    command = [sys.executable, "-I", "-S", "-c", _LAUNCHER, *limits.arguments(), program, *argv[1:]]
    started = time.monotonic()
    try:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env={**scrubbed_environment(environment), MARK: mark},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise ProcessError("not_found", f"{argv[0]!r} could not be started: {error}") from error
    try:
        stdout, stderr = _communicate(process, stdin, started + timeout, timeout, limits.output_bytes)
    finally:
        _kill(process, mark)
    if process.returncode == 127 and not stdout:
        raise ProcessError("not_found", f"{argv[0]!r} could not be started: {stderr.decode('utf-8', 'replace')[-500:]}")
    return ProcessResult(process.returncode, stdout, stderr, time.monotonic() - started)


def _communicate(
    process: "subprocess.Popen[bytes]", stdin: bytes, deadline: float, timeout: float, most: int
) -> tuple[bytes, bytes]:
    """Feed standard input and read both outputs until the program is done. Pipes held open by what it left behind do not count."""
    assert process.stdin and process.stdout and process.stderr
    out, err = bytearray(), bytearray()
    waiting = memoryview(stdin)
    with selectors.DefaultSelector() as selector:
        for pipe in (process.stdin, process.stdout, process.stderr):
            os.set_blocking(pipe.fileno(), False)
        selector.register(process.stdin, selectors.EVENT_WRITE)
        selector.register(process.stdout, selectors.EVENT_READ, out)
        selector.register(process.stderr, selectors.EVENT_READ, err)
        done_at: float | None = None
        while selector.get_map():
            now = time.monotonic()
            if now > deadline:
                raise ProcessError("timeout", f"took longer than {timeout:g} s and was stopped")
            if process.poll() is not None:
                # Give what is already in the pipes a moment, then let go.
                done_at = done_at or now
                if now - done_at > 1.0:
                    break
            for key, _ in selector.select(min(0.1, max(0.0, deadline - now))):
                if key.data is None:
                    waiting = _feed(key.fileobj, waiting)
                    if not waiting:
                        _close(selector, key.fileobj)
                    continue
                chunk = _read(key.fileobj)
                if chunk is None:
                    continue
                if not chunk:
                    _close(selector, key.fileobj)
                    continue
                key.data.extend(chunk)
                if len(out) > most:
                    raise ProcessError("too_much_output", f"wrote more than {most:,} bytes and was stopped")
                if len(err) > _STDERR_KEPT:
                    del err[: len(err) - _STDERR_KEPT // 2]
        while process.poll() is None:
            if time.monotonic() > deadline:
                raise ProcessError("timeout", f"took longer than {timeout:g} s and was stopped")
            time.sleep(0.005)
    return bytes(out), bytes(err)


def _feed(pipe: object, waiting: memoryview) -> memoryview:
    try:
        return waiting[os.write(pipe.fileno(), waiting[:_CHUNK]) :] if waiting else waiting  # type: ignore[attr-defined]
    except BlockingIOError:
        return waiting
    except OSError:
        # The program does not read its input; that is its business.
        return waiting[len(waiting) :]


def _read(pipe: object) -> bytes | None:
    try:
        return os.read(pipe.fileno(), _CHUNK)  # type: ignore[attr-defined]
    except BlockingIOError:
        return None
    except OSError:
        return b""


def _close(selector: selectors.BaseSelector, pipe: object) -> None:
    selector.unregister(pipe)  # type: ignore[arg-type]
    with contextlib.suppress(OSError):
        pipe.close()  # type: ignore[attr-defined]


def _kill(process: "subprocess.Popen[bytes]", mark: str) -> None:
    """Kill the program's group, and what left the group but still carries its mark in the environment."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        with contextlib.suppress(OSError):
            if pipe:
                pipe.close()
    needle = f"{MARK}={mark}".encode()
    for _ in range(3):
        left = _marked(needle)
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not left:
            return
        # What was started while we looked is found the next time.
        time.sleep(0.005)


def _marked(needle: bytes) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*") if Path("/proc/self/environ").exists() else ():
        with contextlib.suppress(OSError):
            # A dead process that nobody has waited for has an empty environment.
            if needle in (folder / "environ").read_bytes():
                found.append(int(folder.name))
    return found
