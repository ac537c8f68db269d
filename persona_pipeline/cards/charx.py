"""CHARX: a card and its assets in a ZIP file. Nothing is unpacked to disk, and nothing further than bounds allow."""

import io
import zipfile
from collections.abc import Iterator
from pathlib import PurePosixPath

from persona_pipeline.cards.png import MOST_CARD

CARD = "card.json"
_MOST_ENTRIES, _MOST_UNPACKED = 5_000, 500_000_000
_BLOCK = 1 << 20
# Files of one content are the same bytes whenever they are written.
_NEVER = (1980, 1, 1, 0, 0, 0)


def is_charx(data: bytes) -> bool:
    """Return whether some bytes are a ZIP file, maybe behind a picture, as some programs write them."""
    return zipfile.is_zipfile(io.BytesIO(data))


def read_charx(data: bytes) -> bytes:
    """Return the JSON of the card in a CHARX file.

    Raises:
        ValueError: there is none, or the file is damaged, encrypted or larger than it may be.
    """
    with _opened(data) as archive:
        return b"".join(_unpacked(archive, CARD, MOST_CARD))


def write_charx(card: bytes, data: bytes | None = None) -> bytes:
    """Return a CHARX file with a card and the assets of another one, None: without any.

    Raises:
        ValueError: as with ``read_charx``.
    """
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as written:
        written.writestr(_entry(CARD), card)
        if data is not None:
            with _opened(data) as archive:
                room = _MOST_UNPACKED
                for name in archive.namelist():
                    if name == CARD or name.endswith("/"):
                        continue
                    with written.open(_entry(name), "w", force_zip64=True) as entry:
                        for block in _unpacked(archive, name, room):
                            entry.write(block)
                            room -= len(block)
    return out.getvalue()


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _NEVER)
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry


def _opened(data: bytes) -> zipfile.ZipFile:
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except (zipfile.BadZipFile, NotImplementedError, OSError, ValueError) as error:
        raise ValueError(f"is a damaged CHARX file ({error})") from None
    entries = archive.infolist()
    names = [entry.filename for entry in entries]
    if len(entries) > _MOST_ENTRIES:
        raise ValueError(f"has more than {_MOST_ENTRIES:,} files")
    if len(set(names)) < len(names):
        raise ValueError("has a file twice; which one is meant cannot be told")
    for entry in entries:
        path = PurePosixPath(entry.filename.replace("\\", "/"))
        if path.is_absolute() or ".." in path.parts or ":" in path.parts[0]:
            raise ValueError(f"has a file that would stand outside its folder ({entry.filename[:80]!r})")
        if entry.flag_bits & 1:
            raise ValueError("is encrypted; export it without a password")
    if sum(entry.file_size for entry in entries) > _MOST_UNPACKED:
        raise ValueError(f"is larger than {_MOST_UNPACKED:,} bytes when it is unpacked")
    if CARD not in names:
        raise ValueError(f"has no character card: there is no {CARD} in it")
    return archive


def _unpacked(archive: zipfile.ZipFile, name: str, most: int) -> Iterator[bytes]:
    """Yield the content of an entry; what its head says of its size is not believed."""
    try:
        with archive.open(name) as entry:
            while block := entry.read(_BLOCK):
                most -= len(block)
                if most < 0:
                    raise ValueError(f"has more in {name[:80]} than it may")
                yield block
    except (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, EOFError, OSError, RuntimeError) as error:
        raise ValueError(f"is a damaged CHARX file ({error})") from None
    except Exception as error:
        # Decompressors raise errors of their own.
        if isinstance(error, ValueError):
            raise
        raise ValueError(f"is a damaged CHARX file ({error})") from None
