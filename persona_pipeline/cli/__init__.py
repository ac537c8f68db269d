"""The command line, ``persona-pipeline``. One file a group of commands; heavy imports stay inside them."""

import errno
import gc
import os
import sys
import traceback
from collections.abc import Iterator

import typer

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.text import printable

EXIT_MACHINE = 3


def main() -> None:
    """Run the command line; errors become their message on stderr.

    Exit code 2 for bad input, 3 where the machine failed: a full disk, a read-only or a newer database, a file that may not be
    written.
    """
    # Importing makes many objects and hardly any garbage; looking for it so often was a sixth of a short command.
    gc.set_threshold(100_000, 30, 30)
    # Before numpy is imported: more threads wait for each other longer than such small matrices take, and their number would
    # be in the last digits of what is computed.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

    from persona_pipeline.cli.app import app

    try:
        app()
    except ConfigError as error:
        typer.echo(str(error), err=True)
        sys.exit(error.exit_code)
    except Exception as error:
        said = machine_failure(error)
        # A mistake in the program is no drop of anybody's.
        typer.echo(said or "".join(traceback.format_exception(error)), err=True)
        sys.exit(EXIT_MACHINE)


_REMEDIES = {
    errno.ENOSPC: "free some space and run it again",
    errno.EDQUOT: "free some of your quota and run it again",
    errno.EFBIG: "raise the limit of file sizes and run it again",
    errno.EROFS: "write to another place, or mount it writable",
    errno.EACCES: "check who owns it and its permissions",
    errno.EPERM: "check who owns it and its permissions",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.EIO: "check the disk",
}
_STORE_REMEDIES = (
    ("full", "free some space and run it again"),
    ("readonly", "check who owns the database's file and folder, and their permissions"),
    ("read-only", "check who owns the database's file and folder, and their permissions"),
    ("disk i/o", "check the disk and its free space"),
    ("unable to open", "check the folder of the database and its permissions"),
    ("locked", "wait for what is writing to it, then run it again"),
)
# What an older process hears of a store that a newer one has brought up to date meanwhile.
_CHANGED = (
    "no such table",
    "no such column",
    "has no column",
    "does not exist",
    "not null constraint",
    "violates not-null",
)
_RESTORE = "put a backup of it in its place"
_START_AGAIN = (
    "without one, move the file away and run again: the world's files are read again, and what only the store had (earlier "
    "runs, paid answers) is gone"
)
_ENGINE = "persona_pipeline.base.database.engine"
_KEPT = "what stood there before is still there"


def machine_failure(error: BaseException) -> str | None:
    """Return what to tell of an error that is the machine's and no mistake in the program, in one line; else None."""
    for cause in _causes(error):
        if isinstance(cause, OSError) and cause.errno is not None:
            where = f"{cause.filename}: " if cause.filename else ""
            remedy = _REMEDIES.get(cause.errno, "mend that and run it again")
            return f"{where}{cause.strerror or type(cause).__name__}; {_KEPT}; {remedy}"
        if _is_of_the_store(cause):
            return _store_failure(cause)
    return None


def _store_failure(error: BaseException) -> str:
    from persona_pipeline.base.database.engine import damage

    said = " ".join(printable(str(getattr(error, "orig", None) or error)).split())[:200] or type(error).__name__
    is_value = isinstance(error, ValueError)
    if remedy := next((told for word, told in _STORE_REMEDIES if not is_value and word in said.lower()), None):
        return f"the store failed ({said}); {_KEPT}; {remedy}"
    # Only SQLite's own check calls a file damaged: an exception may as well be a mistake in this program.
    if found := damage():
        return f"the store is damaged ({found}); {_RESTORE}; {_START_AGAIN}"
    if any(word in said.lower() for word in _CHANGED):
        newer = "a newer persona-pipeline may have changed it meanwhile: upgrade and run again"
        return f"the store is not as this version left it ({said}); {newer}; if it is up to date, {_RESTORE}"
    if is_value or "stored value" in said:
        foreign = f"upgrade persona-pipeline and run again; if another program wrote to the store, {_RESTORE}"
        return f"{_place(error)} cannot read or write a value of the store ({said}); {_KEPT}; {foreign}"
    return f"the store failed ({said}); {_KEPT}; check PERSONA_DATABASE_URL"


def _place(error: BaseException) -> str:
    """Return the innermost function of this package that an error passed."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    own = [frame for frame in frames if frame.f_globals.get("__name__", "").startswith("persona_pipeline.")]
    return f"{own[-1].f_globals['__name__']}.{own[-1].f_code.co_name}" if own else "persona-pipeline"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error itself, those of a group, and what each was raised for."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _causes(inner)
        return
    seen = error
    for _ in range(10):
        yield seen
        following = seen.__cause__ or seen.__context__
        if following is None:
            return
        seen = following


def _is_of_the_store(error: BaseException) -> bool:
    # Imported only where a store was opened.
    exc, sqlite = sys.modules.get("sqlalchemy.exc"), sys.modules.get("sqlite3")
    if (sqlite is not None and isinstance(error, sqlite.OperationalError)) or type(error) is getattr(
        sqlite, "DatabaseError", None
    ):
        return True
    if exc is None:
        return False
    if type(error).__name__ == "ValidationError" and type(error).__module__.startswith("pydantic"):
        # What comes from files is a ConfigError by then.
        return True
    if isinstance(error, ValueError) and error.__traceback__ is not None:
        # A value that no column of its kind can hold.
        *_, last = traceback.walk_tb(error.__traceback__)
        return "sqlalchemy" in last[0].f_globals.get("__name__", "") or last[0].f_globals.get("__name__") == _ENGINE
    # Its subclasses beside these are mistakes of the program.
    failed = exc.OperationalError | exc.InterfaceError | exc.TimeoutError
    if isinstance(error, exc.ProgrammingError | exc.IntegrityError):
        return any(word in str(error).lower() for word in _CHANGED)
    return isinstance(error, failed) or type(error) is exc.DatabaseError
