"""Notes what a Python process opens, lists, looks for and starts.

The interpreter of a suite's program loads this file as ``sitecustomize``, before the program. So do the Python programs that it
starts, because they inherit the environment. It needs Python 3.10 and the standard library.
"""

import contextlib
import os
import sys
from _thread import get_ident
from collections.abc import Callable
from typing import Any

# The environment variable with the folder for the notes, one file a process.
FOLDER = "PERSONA_PIPELINE_OPENED"
# Extension modules that open no files on their own. What any other opens raises no audit event.
HARMLESS = frozenset({
    "_brotli", "_cffi_backend", "_yaml", "aiohttp", "charset_normalizer", "frozenlist", "google", "greenlet", "httptools", "jiter",
    "markupsafe", "msgpack", "multidict", "numpy", "orjson", "propcache", "pydantic_core", "regex", "rpds", "simplejson",
    "sqlalchemy", "tiktoken", "ujson", "uvloop", "wrapt", "yaml", "yarl", "zstandard",
})  # fmt: skip
PACKAGES = ("/site-packages/", "/dist-packages/")
_LIBRARY = os.path.dirname(os.__file__) + "/"  # noqa: PTH120
_LOADED = ("os.exec", "os.posix_spawn", "os.spawn", "os.system", "pty.spawn", "ctypes.dlopen")
_PLACES = ("open", "os.listdir", "os.scandir", "os.stat", "exec", "import", "sqlite3.connect", "cpython.run_file")


def is_library(path: str) -> bool:
    """Return whether a file belongs to the standard library."""
    return path.startswith(_LIBRARY) and not any(part in path for part in PACKAGES)


class Watch:
    """Hears audit events and questions about files, and writes each fact once, as (kind, value).

    ``write``: takes a fact. ``is_others``: returns whether the current call is not the program's.
    """

    def __init__(self, write: Callable[[tuple[str, Any]], None], is_others: Callable[[], bool] = lambda: False) -> None:
        self._write, self._is_others = write, is_others
        self._noted: set[tuple[str, Any]] = set()
        self._inside: set[int] = set()

    def install(self) -> None:
        """Begin; there is no end."""
        sys.addaudithook(self.hear)
        # No audit event says that a program asks whether a file exists.
        for name in ("stat", "lstat", "access", "readlink"):
            self._wrap(name)

    def _wrap(self, name: str) -> None:
        call = getattr(os, name)

        def asked(path: Any, *arguments: Any, **named: Any) -> Any:
            if named.get("dir_fd") is None:
                self.hear("os.stat", (path,))
            return call(path, *arguments, **named)

        for known in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks, os.supports_effective_ids):
            if call in known:
                known.add(asked)
        setattr(os, name, asked)

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Note one event. It never raises: an event that cannot be read is a doubt."""
        me = get_ident()
        if me in self._inside or not (event in _PLACES or event in _LOADED or event == "subprocess.Popen"):
            return
        self._inside.add(me)
        try:
            if event in _PLACES:
                self._place(event, *arguments[:3])
            elif event == "subprocess.Popen":
                self._started(*arguments[:2])
            elif arguments[0] is not None:
                self.note("doubt", event)
        except Exception as error:
            self.note("doubt", f"{event}: {type(error).__name__}")
        finally:
            self._inside.discard(me)

    def note(self, kind: str, value: Any) -> None:
        fact = (kind, value)
        if fact not in self._noted and not self._is_others():
            self._noted.add(fact)
            self._write(fact)

    def _place(self, event: str, path: Any = None, second: Any = None, flags: Any = 0) -> None:
        # This function, the hook, and what called the interpreter; nothing did where it loads the program.
        frame = sys._getframe(1).f_back
        kind, caller = "asked" if event == "os.stat" else "file", frame.f_code.co_filename if frame else ""
        if event in ("os.listdir", "os.scandir"):
            path, kind = path or ".", "modules" if caller.startswith("<frozen importlib") else "folder"
        elif event == "exec":
            path = path.co_filename
        elif event == "import":
            if second is not None and path.partition(".")[0] not in HARMLESS and not is_library(second):
                self.note("doubt", f"the extension module {path}")
            path = second
        elif event == "sqlite3.connect":
            path = os.fsdecode(path).removeprefix("file:").partition("?")[0]
        elif event == "open" and (second[:1] in "wxa" if second else flags & os.O_ACCMODE == os.O_WRONLY):
            # Opened to be written; "a+" and "w+" read only what is there or what they wrote.
            path = path if second and second.startswith("a") and "+" in second else None
        if path is None or isinstance(path, int) or (event == "exec" and path.startswith("<")):
            return
        path = os.fsdecode(path)
        if event == "open" and second is None and not os.path.isabs(path) and not os.path.lexists(path):  # noqa: PTH117
            # Relative to an open folder, which may be any. The standard library opens what it removes so.
            if not caller.endswith("/shutil.py"):
                self.note("doubt", event)
            return
        path = os.path.join(os.getcwd(), path)  # noqa: PTH109, PTH118
        # Of a module the code is noted when it is executed.
        if not is_library(path) and not (path.endswith(".pyc") and "/__pycache__/" in path):
            self.note(kind, path)

    def _started(self, executable: Any, argv: Any) -> None:
        words = [argv] if isinstance(argv, str | bytes | os.PathLike) else argv
        # Each start counts, also of the same words.
        self.note("started", (len(self._noted), os.fsdecode(executable), *map(os.fsdecode, words)))


def _begin(folder: str) -> None:
    """Note what this process opens, and load the ``sitecustomize`` that the interpreter has without this one."""
    path = os.path.join(folder, str(os.getpid()))  # noqa: PTH118

    def write(fact: tuple[str, Any]) -> None:
        # Opened for each note: a program may close what it has not opened.
        try:
            stream = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(stream, f"{fact!a}\n".encode("ascii"))
            finally:
                os.close(stream)
        except OSError:
            # Without its notes the process counts as one that was not watched.
            os.unlink(path)  # noqa: PTH108

    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
    sys.path[:] = [place for place in sys.path if os.path.abspath(place) != here]  # noqa: PTH100
    watch = Watch(write)
    watch.note("process", tuple(sys.orig_argv))
    watch.install()
    own = sys.modules.pop("sitecustomize")
    with contextlib.suppress(ImportError):
        import sitecustomize  # pyright: ignore[reportUnusedImport] # noqa: F401
    sys.modules.setdefault("sitecustomize", own)


if __name__ == "sitecustomize" and os.environ.get(FOLDER) and hasattr(sys, "orig_argv"):
    _begin(os.environ[FOLDER])
