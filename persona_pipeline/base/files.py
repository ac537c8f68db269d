"""Files that are whole or not there: written beside their place and moved onto it."""

import os
import stat
import tempfile
from pathlib import Path


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write bytes, or text as UTF-8 with line feeds. A crash or an error leaves what was there before.

    A link is followed, a file keeps its mode, and what is no regular file (a device, a named pipe) is written through to.

    Raises:
        OSError: the file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode("utf-8") if isinstance(content, str) else content
    # Moved onto a link, a file would replace the link.
    place = Path(os.path.realpath(path))
    try:
        mode = place.stat().st_mode
    except FileNotFoundError:
        mode = stat.S_IFREG | 0o644
    if stat.S_ISREG(mode):
        _replace(path, place, data, stat.S_IMODE(mode))
        return
    with place.open("wb", buffering=0) as stream:
        left = memoryview(data)
        while left:
            left = left[stream.write(left) :]


def _replace(path: Path, place: Path, data: bytes, mode: int) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).chmod(mode)
        Path(temporary).replace(place)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno is not None and error.filename in (None, temporary):
            # The user knows the file by its own name.
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
