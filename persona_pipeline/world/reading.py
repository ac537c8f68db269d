"""Reading message files line by line, from anywhere in them: nothing of a file is kept in memory but the line at hand."""

import codecs
import csv
import hashlib
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from persona_pipeline.documents import JsonError, strict_json
from persona_pipeline.errors import ConfigError, Problem, did_you_mean
from persona_pipeline.world.models import Message

FIELDS = ("id", "agent_id", "channel", "recipient", "text", "created_at", "run_id")
REQUIRED = ("id", "agent_id", "text", "created_at")
ENDINGS = (".jsonl", ".csv")
_BLOCK = 1 << 20
# The longest text that is taken, each character of it escaped, and some more.
_LONGEST_LINE = 16_000_000


@dataclass(frozen=True)
class Row:
    """A message of a file, or why a line is none.

    Attributes:
        line: where it begins, from 1.
        settled: what is wrong with it will not mend itself: the end of the file may still be written.
    """

    line: int
    found: Message | ValueError
    settled: bool = True


class MessageFile:
    """A message file that is read from its start or from a place up to which it is known. Use it as a context manager.

    Args:
        mapped: message fields by columns of CSV that ``parse`` takes for them.

    Raises:
        ConfigError: the file cannot be read, or its ending is neither .jsonl nor .csv.

    Attributes:
        end, lines: how many bytes and lines were read or skipped, without a last line that is not settled.
    """

    def __init__(self, path: Path, mapped: Mapping[str, str] | None = None) -> None:
        self.path, self._mapped = path, mapped or {}
        self._csv = path.suffix.lower() == ".csv"
        if path.suffix.lower() not in ENDINGS:
            raise ConfigError(Problem("is neither .jsonl nor .csv; rename or convert it", str(path)))
        self._hash = hashlib.sha256()
        self.end = self.lines = 0
        self._stream: BinaryIO | None = None

    def __enter__(self) -> "MessageFile":
        with self._errors():
            self._stream = self.path.open("rb")
        return self

    def __exit__(self, *_: object) -> None:
        if self._stream:
            self._stream.close()

    @property
    def digest(self) -> str:
        """SHA-256 of the first ``end`` bytes."""
        return self._hash.hexdigest()

    def skip(self, size: int, lines: int | None, digest: str) -> bool:
        """Go to where the file was read to before; return False and stay where it does not begin as it did then.

        Args:
            size, digest: how many bytes were read, and their SHA-256.
            lines: how many lines they were; None: they are counted.
        """
        known, counted, last = hashlib.sha256(), 0, b""
        with self._errors():
            stream = self._opened
            stream.seek(0)
            remaining = size
            while remaining:
                block = stream.read(min(_BLOCK, remaining))
                if not block:
                    return False
                known.update(block)
                counted += block.count(b"\n")
                remaining, last = remaining - len(block), block[-1:]
            follows = stream.read(1)
        # What was read as a last line without its end must not have grown.
        if known.hexdigest() != digest or (last not in (b"", b"\n", b"\r") and follows not in (b"", b"\n", b"\r")):
            return False
        self._hash, self.end = known, size
        self.lines = counted if lines is None else lines
        return True

    def require_text(self) -> None:
        """Look at the bytes that follow.

        Raises:
            ConfigError: they are not UTF-8.
        """
        decoder, at = codecs.getincrementaldecoder("utf-8")(), self.end
        with self._errors():
            self._opened.seek(at)
            while True:
                block, pending = self._opened.read(_BLOCK), len(decoder.getstate()[0])
                try:
                    decoder.decode(block, final=not block)
                except UnicodeDecodeError as error:
                    wrong = f"is not UTF-8 (byte {at - pending + error.start}); save it as UTF-8"
                    raise ConfigError(Problem(wrong, str(self.path))) from error
                if not block:
                    return
                at += len(block)

    def rows(self, parse: Callable[[Any], Message]) -> Iterator[Row]:
        """Yield what follows, a line (of CSV: a record) at a time; ``end``, ``lines`` and ``digest`` go along.

        Args:
            parse: makes a message of a decoded line, or raises a ``ValueError``.

        Raises:
            ConfigError: it cannot be read, or CSV has no header that names what a message needs.
        """
        with self._errors():
            yield from self._csv_rows(parse) if self._csv else self._jsonl_rows(parse)

    @property
    def _opened(self) -> BinaryIO:
        assert self._stream is not None
        return self._stream

    def _jsonl_rows(self, parse: Callable[[Any], Message]) -> Iterator[Row]:
        stream = self._opened
        stream.seek(self.end)
        # Only "\n" ends a line: str.splitlines would cut at U+2028 and others, which JSON strings may hold.
        while raw := stream.readline(_LONGEST_LINE):
            line = self.lines + 1
            if len(raw) == _LONGEST_LINE and not raw.endswith(b"\n"):
                self._take(raw, 0)
                while not raw.endswith(b"\n") and (raw := stream.readline(_LONGEST_LINE)):
                    self._take(raw, raw.count(b"\n"))
                yield Row(line, ValueError("is too long; split the message"))
                continue
            try:
                value = _json_value(raw.removeprefix(codecs.BOM_UTF8) if line == 1 else raw) if raw.strip() else None
            except ValueError as error:
                # Half of an object is none: it is read again when there is more of it.
                if settled := raw.endswith(b"\n"):
                    self._take(raw, 1)
                yield Row(line, error, settled)
                continue
            self._take(raw, raw.count(b"\n"))
            if raw.strip():
                yield Row(line, _parsed(parse, value))

    def _csv_rows(self, parse: Callable[[Any], Message]) -> Iterator[Row]:
        with self.path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as start:
            names = next(csv.reader(start), [])
        if wrong := _wrong_header([self._mapped.get(name, name) for name in names]):
            raise ConfigError(Problem(f"{wrong}; the columns are {', '.join(FIELDS)}", str(self.path), 1))
        header = self.end == 0
        self._opened.seek(self.end)
        text = io.TextIOWrapper(self._opened, encoding="utf-8", errors="surrogateescape", newline="")
        consumed: list[str] = []
        try:
            reader = csv.reader(_noted(text, consumed), strict=True)
            while True:
                line, cells, found = self.lines + 1, [], None
                try:
                    cells = next(reader)
                except StopIteration:
                    return
                except csv.Error as error:
                    found = ValueError(f"is not CSV ({error}); check the quotes")
                raw = "".join(consumed)
                # A quote that is open at the end of the file may still be closed.
                settled = raw.endswith(("\n", "\r")) and not (found and consumed[-1] == "")
                consumed.clear()
                if not header and (cells or found):
                    found = found or _parsed(parse, _csv_value(cells, names))
                    if settled or not isinstance(found, ValueError):
                        self._take(raw.encode("utf-8", "surrogateescape"), raw.count("\n") or raw.endswith("\r"))
                    yield Row(line, found, settled)
                else:
                    header = False
                    self._take(raw.encode("utf-8", "surrogateescape"), raw.count("\n") or raw.endswith("\r"))
        finally:
            text.detach()

    def _take(self, raw: bytes, lines: int) -> None:
        self._hash.update(raw)
        self.end += len(raw)
        self.lines += lines

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ConfigError(Problem(f"cannot be read ({error.strerror}); check the path", str(self.path))) from error


def _wrong_header(names: Sequence[str]) -> str:
    """Return what is wrong with the names of columns; a name that is not known is an extra."""
    missing = next((name for name in REQUIRED if name not in names), None)
    twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if not set(names) & set(FIELDS):
        return "has no header"
    if missing:
        return f"column {missing!r} is missing{did_you_mean(missing, names)}"
    return f"column {twice!r} stands twice" if twice is not None else ""


def _parsed(parse: Callable[[Any], Message], value: Any) -> Message | ValueError:
    try:
        return parse(value)
    except ValueError as error:
        return error


def _json_value(raw: bytes) -> Any:
    try:
        return strict_json(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(f"is not UTF-8 (byte {error.start} of the line); save it as UTF-8") from None
    except JsonError as error:
        raise ValueError(f"is not JSON ({error.msg}); write one object a line") from None


def _noted(text: io.TextIOWrapper, consumed: list[str]) -> Iterator[str]:
    """Yield lines and note them; at the end of the file, an empty one is noted."""
    while line := text.readline(_LONGEST_LINE):
        consumed.append(line)
        yield line
    consumed.append("")


def _csv_value(cells: Sequence[str], names: Sequence[str]) -> Any:
    if len(cells) > len(names):
        return ValueError("has more cells than the header; quote cells that hold commas")
    # An empty cell means absent, except for a text, which may be empty.
    return {name: cell for name, cell in zip(names, cells, strict=False) if cell or name == "text"}
