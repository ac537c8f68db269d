"""The command line, ``persona-pipeline``: a file for each group of commands; heavy imports are inside functions."""

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
# Commands and options of earlier releases, by what replaces them.
_FORMER_COMMANDS = {"canary": "doctor --no-calls --no-dagster --judge"}
_GONE = {
    ("label", "label"): "label messages in the browser: run `persona-pipeline view`",
    ("compare", "--judges"): "check each judge with `persona-pipeline doctor --judge`",
    ("compare", "--suite"): "run the suite with each target, then `persona-pipeline suite compare`",
    ("compare", "--yardstick"): "the second version's claims judge both; name the versions in the other order",
}
_FORMER_OPTIONS = {"--out": "--output", "--reading": "--judge"}


def main() -> None:
    """Run the command line; errors are printed on stderr.

    Exit code 2 for bad input, 3 for a failure of the machine: a full disk, a read-only or newer database, missing permissions.
    """
    # Imports make many objects and little garbage; collecting it took a sixth of a short command.
    gc.set_threshold(100_000, 30, 30)
    # Set before numpy is imported: threads slow down small matrices and change the last digits of results.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

    from persona_pipeline.cli.app import app

    if sys.stdout is None:
        # The next file that is opened would take its place.
        typer.echo("standard output is closed; redirect it to a file or to /dev/null", err=True)
        sys.exit(EXIT_MACHINE)
    try:
        app(args=[*_current(sys.argv[1:])])
    except ConfigError as error:
        typer.echo(str(error), err=True)
        sys.exit(error.exit_code)
    except Exception as error:
        said = machine_failure(error)
        # An error in the program must not look like a drop.
        typer.echo(said or "".join(traceback.format_exception(error)), err=True)
        sys.exit(EXIT_MACHINE)


def _current(words: list[str]) -> Iterator[str]:
    """Yield the arguments of the command line, with the current names of former commands and options.

    The options of a former command mean nothing to the current one, so they are dropped. ``ConfigError``: a command is gone.
    """
    if words and (command := _FORMER_COMMANDS.get(words[0])):
        typer.echo(f"{words[0]} is now {command}" + (", without options" if words[1:] else ""), err=True)
        yield from command.split()
        return
    for word in words:
        name, sign, value = word.partition("=")
        if instead := _GONE.get((words[0], name)):
            raise ConfigError(f"{name} is gone; {instead}")
        if now := _FORMER_OPTIONS.get(name):
            typer.echo(f"{name} is now {now}", err=True)
        yield f"{now or name}{sign}{value}"


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
# Errors of an older process after a newer one migrated the store.
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
    "without one, move the file away and run again: files are read again, but earlier runs and paid answers are lost"
)
_ENGINE = "persona_pipeline.base.database.engine"
_KEPT = "the earlier content is unchanged"


def machine_failure(error: BaseException) -> str | None:
    """Return a line about an error of the machine; None: the error is one of the program."""
    for cause in _causes(error):
        if isinstance(cause, OSError) and cause.errno is not None:
            where = f"{cause.filename}: " if cause.filename else ""
            remedy = _REMEDIES.get(cause.errno, "fix that and run it again")
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
    # Only SQLite's own check decides that a file is damaged; an exception may be an error of this program.
    if found := damage():
        return f"the store is damaged ({found}); {_RESTORE}; {_START_AGAIN}"
    if any(word in said.lower() for word in _CHANGED):
        newer = "a newer persona-pipeline may have migrated it: upgrade and run again"
        return f"the store has another schema ({said}); {newer}; if this version is the newest, {_RESTORE}"
    if is_value or "stored value" in said:
        foreign = f"upgrade persona-pipeline and run again; if another program wrote to the store, {_RESTORE}"
        return f"{_place(error)} cannot read or write a value of the store ({said}); {_KEPT}; {foreign}"
    return f"the store failed ({said}); {_KEPT}; check PERSONA_DATABASE_URL"


def _place(error: BaseException) -> str:
    """Return the innermost function of this package in the traceback of an error."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    own = [frame for frame in frames if frame.f_globals.get("__name__", "").startswith("persona_pipeline.")]
    return f"{own[-1].f_globals['__name__']}.{own[-1].f_code.co_name}" if own else "persona-pipeline"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, the errors of a group, and their causes."""
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
    # These modules are imported only after a store was opened.
    exc, sqlite = sys.modules.get("sqlalchemy.exc"), sys.modules.get("sqlite3")
    if (sqlite is not None and isinstance(error, sqlite.OperationalError)) or type(error) is getattr(
        sqlite, "DatabaseError", None
    ):
        return True
    if exc is None:
        return False
    if type(error).__name__ == "ValidationError" and type(error).__module__.startswith("pydantic"):
        # Problems of files are ConfigErrors.
        return True
    if isinstance(error, ValueError) and error.__traceback__ is not None:
        # A value that does not fit its column.
        *_, last = traceback.walk_tb(error.__traceback__)
        return "sqlalchemy" in last[0].f_globals.get("__name__", "") or last[0].f_globals.get("__name__") == _ENGINE
    # Its other subclasses are errors of the program.
    failed = exc.OperationalError | exc.InterfaceError | exc.TimeoutError
    if isinstance(error, exc.ProgrammingError | exc.IntegrityError):
        return any(word in str(error).lower() for word in _CHANGED)
    return isinstance(error, failed) or type(error) is exc.DatabaseError
