"""Notes the files that a Python process opens, lists, looks for and starts.

The interpreter of a suite's program loads this file as ``sitecustomize``, before the program. So do Python programs that
it starts, because they inherit the environment. It needs Python 3.10 and imports no module that a program may replace.
"""

import contextlib
import os
import sys
from _frozen_importlib_external import source_from_cache
from _thread import get_ident
from typing import Any

# The environment variable with the folder for notes, one file per process.
FOLDER = "PERSONA_PIPELINE_OPENED"
# Extension modules that open no files. Files that other ones open raise no audit event.
_HARMLESS = frozenset({
    "_brotli", "_cffi_backend", "_yaml", "aiohttp", "charset_normalizer", "frozenlist", "google", "greenlet", "httptools", "jiter",
    "markupsafe", "msgpack", "multidict", "numpy", "orjson", "propcache", "pydantic_core", "regex", "rpds", "simplejson",
    "sqlalchemy", "tiktoken", "ujson", "uvloop", "wrapt", "yaml", "yarl", "zstandard",
})  # fmt: skip
_LIBRARY = os.path.dirname(os.__file__) + "/"  # noqa: PTH120
_UNSEEN = ("os.exec", "os.posix_spawn", "os.spawn", "os.system", "pty.spawn", "ctypes.dlopen")
_WRITING = os.O_TRUNC | os.O_EXCL
_INSIDE: set[int] = set()
_NOTES: set[str] = set()


def _write(kind: str, value: Any) -> None:
    """Write a note once. Without its file the process counts as not watched."""
    note = f"{(kind, value)!a}\n"
    if note in _NOTES:
        return
    _NOTES.add(note)
    try:
        # Opened for each note, because a program may close files it did not open.
        stream = os.open(_FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(stream, note.encode("ascii"))
        finally:
            os.close(stream)
    except OSError:
        os.unlink(_FILE)  # noqa: PTH108


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    """Note one event. It never raises: an event that cannot be read is noted as unseen."""
    me = get_ident()
    heard = _EVENTS.get(event)
    if heard is None or me in _INSIDE:
        return
    _INSIDE.add(me)
    try:
        heard(*arguments)
    except Exception as error:
        _write("unseen", f"{event}: {type(error).__name__}")
    finally:
        _INSIDE.discard(me)


def _place(path: Any, kind: str = "") -> None:
    if path is None or isinstance(path, int):
        return
    path = os.path.join(os.getcwd(), os.fsdecode(path))  # noqa: PTH109, PTH118
    if path.endswith(".pyc") and "/__pycache__/" in path:
        path = source_from_cache(path)
    if not path.startswith(_LIBRARY) or "-packages/" in path:
        _write("place", (path, kind))


def _opened(path: Any, mode: str | None, flags: int) -> None:
    if flags & _WRITING or flags & os.O_ACCMODE == os.O_WRONLY:
        return
    if mode is None and isinstance(path, str) and not os.path.isabs(path) and not os.path.lexists(path):  # noqa: PTH117
        # Relative to an open folder, which may be any. The standard library removes files so.
        if not sys._getframe(2).f_code.co_filename.endswith("/shutil.py"):
            _write("unseen", "open")
        return
    _place(path)


def _listed(path: Any = None) -> None:
    is_import = sys._getframe(2).f_code.co_filename.startswith("<frozen importlib")
    _place("." if path is None else path, "*.py" if is_import else "*")


def _imported(name: str, file: str | None, *_: Any) -> None:
    if (
        file is not None
        and name.partition(".")[0] not in _HARMLESS
        and (not file.startswith(_LIBRARY) or "-packages/" in file)
    ):
        _write("unseen", f"the extension module {name}")
    _place(file)


def _connected(path: Any) -> None:
    path = os.fsdecode(path).removeprefix("file:").partition("?")[0]
    _place(path)
    _place(f"{path}-wal")


def _started(executable: Any, argv: Any, *_: Any) -> None:
    words = [argv] if isinstance(argv, str | bytes | os.PathLike) else argv
    # Each start counts, also of the same words.
    _write("started", (len(_NOTES), *map(os.fsdecode, words)))


def _wrap(name: str) -> None:
    """Note calls of a function of ``os`` that raises no audit event."""
    call = getattr(os, name)

    def asked(path: Any, *arguments: Any, **named: Any) -> Any:
        if named.get("dir_fd") is None:
            _hear("stat", (path,))
        return call(path, *arguments, **named)

    for known in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks, os.supports_effective_ids):
        if call in known:
            known.add(asked)
    setattr(os, name, asked)


_EVENTS: dict[str, Any] = {
    # A library without a name is the program itself.
    **{event: lambda what, *_, event=event: what is None or _write("unseen", event) for event in _UNSEEN},
    "open": _opened,
    "os.listdir": _listed,
    "os.scandir": _listed,
    "stat": _place,
    "import": _imported,
    "cpython.run_file": _place,
    "sqlite3.connect": _connected,
    "subprocess.Popen": _started,
}

if __name__ == "sitecustomize" and os.environ.get(FOLDER) and hasattr(sys, "orig_argv"):
    _FILE = os.path.join(os.environ[FOLDER], str(os.getpid()))  # noqa: PTH118
    _here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
    sys.path[:] = [place for place in sys.path if os.path.abspath(place) != _here]  # noqa: PTH100
    _write("process", tuple(sys.orig_argv))
    sys.addaudithook(_hear)
    for _name in ("stat", "lstat", "access", "readlink"):
        _wrap(_name)
    # The interpreter's own ``sitecustomize``.
    _own = sys.modules.pop("sitecustomize")
    with contextlib.suppress(ImportError):
        import sitecustomize  # pyright: ignore[reportUnusedImport] # noqa: F401
    sys.modules.setdefault("sitecustomize", _own)
