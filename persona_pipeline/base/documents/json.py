"""JSON and CSV, read strictly and with storable text, numbered lines, one spelling and its hash; files written whole."""

import codecs
import csv
import hashlib
import io
import json
import math
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from persona_pipeline.base.errors import Problem
from persona_pipeline.base.files import FileRefusedError, read_regular
from persona_pipeline.base.text import calm_cell, shown_json, storable_json


class JsonError(json.JSONDecodeError):
    """The text is not JSON, or holds a key twice; ``msg`` says why in a few words."""


def strict_json(text: str, *, unique_keys: bool = True) -> Any:
    """Return the value of a JSON text; NUL and lone surrogates in it are U+FFFD.

    ``unique_keys``: a repeated key of an object is an error; otherwise the last one counts. ``JsonError``: the text is not JSON,
    has a repeated key or a number that is not finite, or is nested too deeply.
    """
    text = storable_json(text)
    value, end = decode_at(text, _pass(text, 0), unique_keys=unique_keys)
    if (end := _pass(text, end)) != len(text):
        raise JsonError("Extra data", text, end)
    return value


def decode_at(text: str, at: int, *, unique_keys: bool = True) -> tuple[Any, int]:
    """Return the value that begins at a place of a storable text as in ``strict_json``, and where it ends."""
    try:
        return (_DECODER if unique_keys else _LENIENT).raw_decode(text, at)
    except json.JSONDecodeError as error:
        # Errors of the hooks below have no position.
        raise JsonError(error.msg, text, error.pos or at) from None
    except RecursionError:
        raise JsonError("nested too deeply", text, at) from None


def strict_array(text: str) -> Iterator[tuple[int, Any]]:
    """Yield the values of a JSON array as in ``strict_json``, each with its 1-based line; ``JsonError``: the rest is not one."""
    text = storable_json(text)
    at, line, counted = _pass(text, 0), 1, 0
    if not text.startswith("[", at):
        raise JsonError("Expecting '['", text, at)
    at = _pass(text, at + 1)
    while not text.startswith("]", at):
        line, counted = line + text.count("\n", counted, at), at
        value, end = decode_at(text, at)
        yield line, value
        at = _pass(text, end)
        if text.startswith(",", at):
            at = _pass(text, at + 1)
        elif not text.startswith("]", at):
            raise JsonError("Expecting ',' delimiter", text, at)
    if _pass(text, at + 1) != len(text):
        raise JsonError("Extra data", text, at + 1)


def is_shallow(data: Any, most: int) -> bool:
    """Return whether JSON data has at most ``most`` levels; a text or a number is one level."""
    level = [data]
    for _ in range(most):
        inner = [item.values() if isinstance(item, dict) else item for item in level if isinstance(item, (dict, list))]
        level = [value for values in inner for value in values]
        if not level:
            return True
    return False


def _pass(text: str, at: int) -> int:
    """Return where white space ends."""
    while at < len(text) and text[at] in " \t\n\r":
        at += 1
    return at


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for key, value in pairs:
        if key in data:
            raise JsonError(f"the key {key[:40]!r} stands twice in an object", "", 0)
        data[key] = value
    return data


def _constant(name: str) -> Any:
    raise JsonError(f"{name} is not JSON", "", 0)


def _float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise JsonError(f"{text[:20]} is too large", "", 0)
    return number


def _int(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise JsonError("a number has too many digits", "", 0) from None


_LENIENT = json.JSONDecoder(parse_constant=_constant, parse_float=_float, parse_int=_int)
_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_constant, parse_float=_float, parse_int=_int)

# Bytes of a file of rows that are read into memory.
_MOST_ROWS = 2_000_000_000

Row = TypeVar("Row")


def read_rows(
    path: Path, parse: Callable[[str], Row], problems: list[Problem], *, remedy: str
) -> list[tuple[int, Row]]:
    """Return the rows of a file with their line numbers, 1-based; blank lines are left out.

    Args:
        parse: returns the row of a line, or raises ``ValueError`` with the reason.
        problems: gets every line that cannot be parsed, and a file that is not regular or not UTF-8.
        remedy: what to do about such a line.
    """
    try:
        text = read_regular(path, _MOST_ROWS).decode("utf-8")
    except FileRefusedError as error:
        problems.append(Problem(f"{error.strerror}; put the file itself in its place", str(path)))
        return []
    except UnicodeDecodeError as error:
        problems.append(Problem(f"not UTF-8 ({error.reason} at byte {error.start}); save it as UTF-8", str(path)))
        return []
    found = []
    # Not splitlines(): a text may hold U+2028.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            found.append((number, parse(line)))
        except ValueError as error:
            problems.append(Problem(f"{error}; {remedy}", str(path), number))
    return found


def json_object(line: str) -> dict[str, Any]:
    """Return the object of a JSON line; ``ValueError``: it is not one, with the reason."""
    try:
        data = strict_json(line)
    except JsonError as error:
        raise ValueError(f"not JSON ({error.msg} at column {error.colno})") from None
    if not isinstance(data, dict):
        raise ValueError("not a JSON object")
    return data


def json_line(data: Mapping[str, Any]) -> str:
    """Return an object as a line, ended by a line feed: letters of any script as themselves, keys in their order."""
    return shown_json(data, allow_nan=False) + "\n"


def write_if_changed(path: Path, text: str) -> bool:
    """Replace a file's text atomically and return whether it changed."""
    if path.exists() and path.read_bytes() == text.encode("utf-8"):
        return False
    write_atomically(path, text)
    return True


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    """Return rows as a CSV table. None is an empty cell; cells that look like formulas are defused."""
    text = io.StringIO(newline="")
    csv.writer(text).writerows(["" if cell is None else calm_cell(str(cell)) for cell in row] for row in rows)
    return text.getvalue()


# UTF-32 comes first: its mark begins with that of UTF-16.
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
# Letters of other code pages, read as Windows-1252: signs within words, and long runs of accents.
_NOT_WESTERN = re.compile(
    r"[^\W\d_][^\w\s!-~\u2019\u2026\u2013\u2014\u00ad\u00b7\u00ab\u00bb][^\W\d_]|[\u00c0-\u00ff]{4}"
)

_ACCENTED = frozenset(map(chr, range(0xC0, 0x100)))


def decoded_text(data: bytes, *, table: bool = False, whole: bool = True) -> str:
    """Return the text of bytes in UTF-8, UTF-16 or UTF-32, with or without a byte order mark.

    Args:
        table: spreadsheets also write Windows-1252, which is tried last.
        whole: False where the bytes are only the beginning, and may end within a character.

    Raises:
        UnicodeDecodeError: the text is in another encoding, or damaged.
    """
    marked = next((name for mark, name in _MARKS.items() if data.startswith(mark)), None)
    zeros = [data[place:4096:2].count(0) > max(4, len(data[:4096]) // 8) for place in (0, 1)]
    utf_32 = "utf-32-be" if data.startswith(b"\0") else "utf-32-le"
    wide = {(False, True): "utf-16-le", (True, False): "utf-16-be", (True, True): utf_32}.get((zeros[0], zeros[1]))
    encoding = marked or wide or "utf-8"
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(data, final=whole)
    except UnicodeDecodeError:
        text = data.decode("cp1252", "replace")
        # These letters are rare in Western languages, and what common ones of other code pages look like.
        rare, common = (sum(letter in found for letter in text) for found in ("ŠŒŽšœžŸ", _ACCENTED))
        # Text with more good than bad characters of UTF-8 is damaged.
        valid = sum(letter > "\x7f" for letter in data.decode("utf-8", "ignore"))
        damaged = valid > data.decode("utf-8", "replace").count("\ufffd")
        if (
            not table
            or encoding != "utf-8"
            or "\ufffd" in text
            or damaged
            or rare > common
            or _NOT_WESTERN.search(text)
        ):
            raise
    return text.removeprefix("\ufeff")


_DELIMITERS = (",", ";", "\t", "|")


def delimiter_of(text: str) -> str:
    """Return the delimiter of a CSV text: the sign that makes the most cells of its first line."""
    lines = text.lstrip("\n\r").splitlines() or [""]
    # Excel may write it in a first line.
    if lines[0].lower().startswith("sep=") and len(lines[0]) == 5:
        return lines[0][4]
    return max(_DELIMITERS, key=lambda sign: len(next(csv.reader([lines[0]], delimiter=sign), [])))


def csv_rows(text: str, path: str, problems: list[Problem], *, delimiter: str = ",") -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a text, each with its 1-based first line. Invalid CSV is added to ``problems`` and ends the rows."""
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    csv.field_size_limit(max(csv.field_size_limit(), len(text) + 1))
    line = 1
    try:
        for cells in rows:
            yield line, cells
            line = rows.line_num + 1
    except csv.Error as error:
        what = "a quoted cell is not closed" if "unexpected end" in str(error) else str(error)
        problems.append(Problem(f"is not valid CSV: {what}", path, line, 1))


def canonical_json(value: Any) -> str:
    """Return JSON with sorted keys, no spaces and ASCII escapes; NaN and infinity raise ``ValueError``."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def content_hash(value: Any) -> str:
    """Return the SHA-256 (64 hex digits) of a JSON value's canonical form."""
    return hashlib.sha256(canonical_json(value).encode("ascii")).hexdigest()


def object_schema(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of an object that has all of these properties and no others."""
    return {"type": "object", "additionalProperties": False, "required": [*properties], "properties": properties}


def list_schema(items: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of a list."""
    return {"type": "array", "items": items}


def rfc3339(moment: datetime, *, exact: bool = False) -> str:
    """Return a time in UTC, such as ``2026-06-01T09:30:00Z``: to the second, or ``exact``, with what parts of a second it has."""
    return moment.astimezone(UTC).isoformat(timespec="auto" if exact else "seconds").replace("+00:00", "Z")


def visible(text: str) -> str:
    """Return the text on one line, runs of white space and what cannot be printed as one space."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write bytes, or text as UTF-8 with line feeds. A crash or an error leaves the file as it was.

    A link is followed, a file keeps its mode, and a device or a named pipe is written to directly.

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
