"""Python processes that are forked from one in which Dagster and the project are loaded: loading them takes longer than most runs.

``forked_commands`` has a program that is started in place of Python. It hands arguments, environment and open files to the server
of this module, which forks, and ends as the forked process does. Signals are passed on; whoever kills it kills that process too.
The server is started when it is first needed, and serves until ``stop_server``.
"""

import contextlib
import fcntl
import functools
import gc
import importlib
import io
import json
import multiprocessing.spawn
import os
import pkgutil
import resource
import runpy
import select
import signal
import socket
import subprocess
import sys
import types
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.waiting import wait_until

PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# What a world's definitions are made of, and what Dagster's own processes load.
_LOADED = ("dagster._cli", "dagster._daemon.cli", "dagster._grpc.server", "dagster_webserver.cli", "dagster.components")
_OTHERS = ("persona_pipeline.definitions", "persona_pipeline.__main__")
_CLIENT = """#!{python} -IS
import json, os, resource, signal, socket, sys
arguments = sys.argv[1:]
opened = [int(name) for name in os.listdir("/proc/self/fd")]
opened = [number for number in opened if os.path.exists(f"/proc/self/fd/{{number}}") and os.get_inheritable(number)]
limit = resource.getrlimit(resource.RLIMIT_FSIZE)
body = dict(arguments=arguments, folder=os.getcwd(), environment=dict(os.environ), files=opened, most_bytes=limit)
connection = socket.socket(socket.AF_UNIX)
connection.connect({address!r})
for number in {passed_on!r}:
    signal.signal(number, lambda number, frame: connection.sendall(bytes([number])))
data = json.dumps(body).encode("utf-8", "surrogateescape")
socket.send_fds(connection, [len(data).to_bytes(8, "big")], opened)
connection.sendall(data)
ended = connection.recv(4)
code = int.from_bytes(ended, "big", signed=True) if ended else -9
if code < 0:
    signal.signal(-code, signal.SIG_DFL) if -code not in (9, 19) else None
    os.kill(os.getpid(), -code)
os._exit(code)
"""


@dataclass(frozen=True)
class Asked:
    """A process that a client asks for.

    ``files``: numbers of the client's open files. ``most_bytes``: how long a file may become, as ``RLIMIT_FSIZE`` says.
    """

    arguments: list[str]
    folder: str
    environment: dict[str, str]
    files: list[int]
    most_bytes: list[int]


_RUNNING = contextlib.ExitStack()


@functools.cache
def forked_commands() -> Path:
    """Return the folder of ``python``, ``persona-pipeline`` and Dagster's commands, as processes forked from one server."""
    # A socket's address may be 107 bytes long, which pytest's folders are near.
    folder = _RUNNING.enter_context(TemporaryDirectory(prefix="forked"))
    return _RUNNING.enter_context(_forked_python(Path(folder)))


def forked_python() -> str:
    """Return the program that is started in place of Python."""
    return str(forked_commands() / "python")


def stop_server() -> None:
    """Stop the server of this process, if one is running."""
    _RUNNING.close()
    forked_commands.cache_clear()


@contextlib.contextmanager
def _forked_python(folder: Path) -> Iterator[Path]:
    address, commands = str(folder / "socket"), folder / "bin"
    commands.mkdir()
    client = commands / "python"
    client.write_text(_CLIENT.format(python=sys.executable, address=address, passed_on=[*map(int, PASSED_ON)]))
    for script in [*Path(sys.executable).parent.glob("dagster*"), Path(sys.executable).parent / "persona-pipeline"]:
        text = script.read_text("utf-8")
        (commands / script.name).write_text(text.replace(f"#!{sys.executable}", f"#!{client}", 1), "utf-8")
    for path in commands.iterdir():
        path.chmod(0o755)
    server = subprocess.Popen([sys.executable, "-W", "ignore", "-m", "tests.support.forking", address, str(client)])
    try:
        wait_until(Path(address).exists)
        yield commands
    finally:
        server.kill()
        server.wait()


def serve(address: str, client: str) -> Asked:
    """Fork a process for each client and return in it, with what it is to run."""
    _load()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{address}.new")
    listener.listen(64)
    Path(f"{address}.new").rename(address)
    # Each process that waits for another ends on its own.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    gc.collect()
    gc.freeze()
    while True:
        connection, _ = listener.accept()
        if os.fork():
            connection.close()
            continue
        listener.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        asked, received = _received(connection)
        if child := os.fork():
            for number in received:
                os.close(number)
            _stand_by(connection, child)
        connection.close()
        _become(asked, received, client)
        return asked


def _load() -> None:
    import persona_pipeline

    for name in _LOADED:
        importlib.import_module(name)
    for module in pkgutil.walk_packages(persona_pipeline.__path__, "persona_pipeline."):
        if module.name not in _OTHERS and not module.name.endswith(".office"):
            with contextlib.suppress(ImportError):
                importlib.import_module(module.name)


def _received(connection: socket.socket) -> tuple[Asked, list[int]]:
    head, received, _, _ = socket.recv_fds(connection, 8, 250)
    left, data = int.from_bytes(head, "big"), b""
    while len(data) < left:
        data += connection.recv(left - len(data))
    return Asked(**json.loads(data.decode("utf-8", "surrogateescape"))), received


def _stand_by(connection: socket.socket, child: int) -> None:
    """Pass on signals of the client, end the process with all it started when the client is gone, and tell how it ended."""
    ended = os.pidfd_open(child)
    while True:
        ready, _, _ = select.select([connection, ended], [], [])
        if ended in ready:
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            with contextlib.suppress(OSError):
                connection.sendall(code.to_bytes(4, "big", signed=True))
            os._exit(0)
        for number in _read(connection) or [signal.SIGKILL]:
            with contextlib.suppress(ProcessLookupError):
                (os.killpg if number == signal.SIGKILL else os.kill)(child, number)


def _read(connection: socket.socket) -> bytes:
    try:
        return connection.recv(64)
    except OSError:
        return b""


def _become(asked: Asked, received: list[int], client: str) -> None:
    """Take over what the client was started with."""
    os.setsid()
    moved = [fcntl.fcntl(number, fcntl.F_DUPFD, 300) for number in received]
    os.closerange(3, 300)
    for number, target in zip(moved, asked.files, strict=True):
        os.dup2(number, target)
        os.close(number)
    resource.setrlimit(resource.RLIMIT_FSIZE, (asked.most_bytes[0], asked.most_bytes[1]))
    os.chdir(asked.folder)
    os.environ.clear()
    os.environ.update(asked.environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.executable = client
    multiprocessing.spawn.set_executable(client)
    warnings.resetwarnings()
    # As they are made when Python starts: of a terminal each line is written at once.
    sys.stdin = io.TextIOWrapper(io.FileIO(0, closefd=False), encoding="utf-8")
    sys.stdout = _writes(1, "strict")
    sys.stderr = _writes(2, "backslashreplace")


def _writes(number: int, errors: str) -> io.TextIOWrapper:
    is_watched = number == 2 or os.isatty(number)
    raw = io.BufferedWriter(io.FileIO(number, "w", closefd=False))
    return io.TextIOWrapper(raw, encoding="utf-8", errors=errors, line_buffering=is_watched)


def run(arguments: list[str]) -> None:
    """Run what Python is to run with these arguments: a module, code or a script. Of its options, ``-W`` has an effect."""
    while arguments[0].startswith("-") and arguments[0] not in ("-m", "-c"):
        if arguments[0].startswith("-W"):
            warnings._setoption(arguments[0][2:] or arguments[1])  # pyright: ignore[reportAttributeAccessIssue]
        arguments = arguments[2 if arguments[0] in ("-W", "-X") else 1 :]
    kind, rest = (arguments[0], arguments[1:]) if arguments[0] in ("-m", "-c") else ("", arguments)
    sys.path[0] = {"-m": str(Path.cwd()), "-c": ""}.get(kind, str(Path(rest[0]).parent))
    if kind == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        return
    sys.argv = ["-c", *rest[1:]] if kind else rest
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    if not kind:
        main.__file__ = rest[0]
    sys.modules["__main__"] = main
    code = compile(rest[0], "<string>", "exec") if kind else compile(Path(rest[0]).read_bytes(), rest[0], "exec")
    exec(code, main.__dict__)


if __name__ == "__main__":
    run(serve(*sys.argv[1:]).arguments)
