"""The one gate for files that others name: regular ones, bounded, of certain folders; their digests and how they look."""

import errno
import hashlib
import os
import stat as modes
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from persona_pipeline.base.errors import ConfigError

# A change within this time of a reading may have left the file's times as they were: nanoseconds, by what the file system notes.
_FINE, _COARSE, _SECOND = 20_000_000, 2_000_000_000, 1_000_000_000

# Largest file that is fingerprinted.
MOST_BYTES = 64_000_000

_CHUNK = 1_000_000
_GIT_SECONDS = 60

# By path, how a file looked and its digest then: sensors look twice a minute from one process.
_DIGESTS: dict[str, tuple[str, str]] = {}


def look_of(stat: os.stat_result) -> str:
    """Return what a file looks like from outside."""
    return f"{stat.st_size}-{stat.st_mtime_ns}-{stat.st_ctime_ns}-{stat.st_ino}"


def repository_of(folder: Path) -> Path:
    """Return the top of the repository that a folder lies in, else the folder, links followed."""
    folder = folder.resolve()
    return next((parent for parent in (folder, *folder.parents) if (parent / ".git").exists()), folder)


def ask_git(root: Path, *arguments: str, standard_input: bytes | None = None) -> bytes:
    """Return the output of a git command in a folder's repository.

    ``standard_input``: the input of the command. Raises ``ConfigError``: there is no git, no repository, or no such commit.
    """
    # Neither hooks nor programs that the repository's configuration names are run by these commands.
    command = ["git", "-C", str(root), "--no-optional-locks", "-c", "core.fsmonitor=false", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_GIT_SECONDS, input=standard_input or b"")
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"git cannot be run ({type(error).__name__}); what has changed cannot be told") from error
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        what = said[0] if said else f"no such commit: {arguments[-1]}"
        raise ConfigError(f"git cannot tell what has changed ({what}); fetch the commit that is compared with")
    return done.stdout


class FileRefusedError(OSError):
    """A file is not one to read: no regular one, too large, or outside the folders it may be in."""


def read_regular(path: str | os.PathLike[str], most: int = MOST_BYTES, roots: Sequence[Path] | None = None) -> bytes:
    """Return the bytes of a regular file; at most ``most`` are read, also of a file whose size is reported as 0.

    ``roots``: resolved folders in which the file must lie once links are followed. ``FileRefusedError``: it is a pipe or a
    device, too large, or elsewhere; ``OSError``: it cannot be read.
    """
    with open_regular(path, roots) as stream:
        data = stream.read(most + 1)
    if len(data) > most:
        raise FileRefusedError(errno.EFBIG, f"is larger than {most:,} bytes; split it", str(path))
    return data


def open_regular(path: str | os.PathLike[str], roots: Sequence[Path] | None = None) -> BinaryIO:
    """Open a regular file to be read, like ``read_regular``."""
    name = os.path.realpath(path)
    _check_regular(os.stat(name), name, path, roots)  # noqa: PTH116
    stream = open(name, "rb", opener=_without_waiting)  # noqa: SIM115 -- the caller closes it
    try:
        # It may have been replaced since.
        _check_regular(os.fstat(stream.fileno()), os.path.realpath(name), path, roots)
    except BaseException:
        stream.close()
        raise
    return stream


def _check_regular(stat: os.stat_result, name: str, path: str | os.PathLike[str], roots: Sequence[Path] | None) -> None:
    if roots is not None and not any(Path(name).is_relative_to(root) for root in roots):
        raise FileRefusedError(errno.EACCES, "lies outside the folders it may be in", str(path))
    if modes.S_ISDIR(stat.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not modes.S_ISREG(stat.st_mode):
        raise FileRefusedError(errno.EINVAL, "is not a regular file", str(path))


def digest_within(path: str | os.PathLike[str], roots: Sequence[Path]) -> str | None:
    """Return the SHA-256 of a regular file of at most 64 MB in one of these folders, links followed; None of anything else.

    ``roots`` are resolved. A file that looks as it did when it was read is not read again. ``OSError``: it is not there, or
    cannot be read.
    """
    name = os.path.realpath(path)
    if not any(Path(name).is_relative_to(root) for root in roots):
        return None
    return regular_digest(name, os.stat(name))  # noqa: PTH116


def regular_digest(name: str, stat: os.stat_result, most: int = MOST_BYTES) -> str | None:
    """Return the SHA-256 of a regular file of at most ``most`` bytes; None of anything else, such as a pipe.

    A file that looks as it did when this process read it is not read again.
    """
    if not modes.S_ISREG(stat.st_mode) or stat.st_size > most:
        return None
    look = look_of(stat)
    known = _DIGESTS.get(name)
    if known is not None and known[0] == look:
        return known[1]
    # A file that changed so lately may change again and look the same.
    coarse = stat.st_ctime_ns % _SECOND == 0
    fresh = abs(time.time_ns() - max(stat.st_mtime_ns, stat.st_ctime_ns)) < (_COARSE if coarse else _FINE)
    digest, left = hashlib.sha256(), most + 1
    with open_regular(name) as stream:
        while left > 0 and (chunk := stream.read(min(_CHUNK, left))):
            digest.update(chunk)
            left -= len(chunk)
    if left <= 0:
        return None
    if not fresh:
        _DIGESTS[name] = (look, digest.hexdigest())
    return digest.hexdigest()


def _without_waiting(name: str, flags: int) -> int:
    # A pipe that took the file's place would be waited for.
    return os.open(name, flags | getattr(os, "O_NONBLOCK", 0))
