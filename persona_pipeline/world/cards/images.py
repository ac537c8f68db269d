"""Cards in pictures (PNG) and archives (CHARX), read within bounds: nothing is decoded or unpacked to disk."""

import base64
import binascii
import io
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import PurePosixPath

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
# The third version comes first: the other chunk is for programs that do not know it.
KEYWORDS = (b"ccv3", b"chara")
MOST_CARD = 8_000_000
_MOST_CHUNK = 2 * MOST_CARD
_MOST_CHUNKS = 100_000
_TOO_LARGE = f"has a card larger than {MOST_CARD:,} bytes"


def is_png(data: bytes) -> bool:
    """Return whether some bytes are a PNG."""
    return data.startswith(_SIGNATURE)


def read_png(data: bytes) -> bytes:
    """Return the JSON of the card in a picture; ValueError: there is none, it is larger than 8 MB, or the file is damaged."""
    found = {}
    for kind, body in _chunks(data):
        if (keyword := _keyword(kind, body)) in KEYWORDS:
            found.setdefault(keyword, (kind, body[len(keyword) + 1 :]))
    for keyword in KEYWORDS:
        if keyword in found:
            return _decoded(*found[keyword])
    raise ValueError("has no character card: it is a picture without a chunk chara or ccv3")


def write_png(data: bytes, cards: dict[bytes, bytes]) -> bytes:
    """Return a picture with the JSON of cards by keyword, replacing others; ValueError: it is not a PNG, or damaged."""
    parts = [_SIGNATURE]
    for kind, body in _chunks(data):
        if kind == b"IEND":
            parts += [_chunk(b"tEXt", keyword + b"\0" + base64.b64encode(card)) for keyword, card in cards.items()]
        if _keyword(kind, body) not in KEYWORDS:
            parts.append(_chunk(kind, body))
    return b"".join(parts)


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    if not is_png(data):
        raise ValueError("is no PNG")
    at = len(_SIGNATURE)
    for _ in range(_MOST_CHUNKS):
        head = data[at : at + 8]
        if len(head) < 8:
            raise ValueError("is a damaged PNG: it ends within a chunk")
        length, kind = struct.unpack(">I4s", head)
        end = at + 8 + length
        body, check = data[at + 8 : end], data[end : end + 4]
        if len(body) < length or len(check) < 4 or zlib.crc32(kind + body) != struct.unpack(">I", check)[0]:
            raise ValueError(f"is a damaged PNG: its chunk at byte {at} is not what it was")
        yield kind, body
        if kind == b"IEND":
            return
        at = end + 4
    raise ValueError(f"is no picture anybody drew: it has more than {_MOST_CHUNKS:,} chunks")


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I4s", len(body), kind) + body + struct.pack(">I", zlib.crc32(kind + body))


def _keyword(kind: bytes, body: bytes) -> bytes | None:
    return body.partition(b"\0")[0] if kind in (b"tEXt", b"zTXt", b"iTXt") else None


def _decoded(kind: bytes, text: bytes) -> bytes:
    if kind == b"iTXt":
        # Whether and how it is compressed, a language and the keyword in it come before the text.
        kind, text = b"zTXt" if text[:1] == b"\1" else kind, text[1:2] + text[2:].split(b"\0", 2)[-1]
        text = text if kind == b"zTXt" else text[1:]
    if kind == b"zTXt":
        # One byte says how it is compressed; there is one way.
        unpacking = zlib.decompressobj()
        try:
            text = unpacking.decompress(text[1:], _MOST_CHUNK)
        except zlib.error as error:
            raise ValueError(f"has a damaged card ({error})") from None
        if unpacking.unconsumed_tail:
            raise ValueError(_TOO_LARGE)
    if len(text) > _MOST_CHUNK:
        raise ValueError(_TOO_LARGE)
    try:
        # Text of any letters needs no base64.
        card = text if text.lstrip()[:1] == b"{" else base64.b64decode(b"".join(text.split()), validate=True)
    except binascii.Error:
        raise ValueError("has a damaged card: it is not base64") from None
    if len(card) > MOST_CARD:
        raise ValueError(_TOO_LARGE)
    return card


CARD = "card.json"
_MOST_ENTRIES, _MOST_UNPACKED = 5_000, 500_000_000
_BLOCK = 1 << 20
# Files of one content are the same bytes whenever they are written.
_NEVER = (1980, 1, 1, 0, 0, 0)


def is_charx(data: bytes) -> bool:
    """Return whether some bytes are a ZIP file, maybe behind a picture, as some programs write them."""
    return zipfile.is_zipfile(io.BytesIO(data))


def read_charx(data: bytes) -> bytes:
    """Return the JSON of the card in a CHARX file; ValueError: there is none, or the file is damaged, encrypted or too large."""
    with _opened(data) as archive:
        return b"".join(_unpacked(archive, CARD, MOST_CARD))


def write_charx(card: bytes, data: bytes | None = None) -> bytes:
    """Return a CHARX file with a card and the assets of another one, if any; ValueError as with ``read_charx``."""
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
    except ValueError:
        raise
    except Exception as error:
        # Decompressors raise different errors.
        raise ValueError(f"is a damaged CHARX file ({error})") from None
