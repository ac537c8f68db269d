"""Records of an export: JSON lines, a JSON array, an object around one, CSV, or a chat as text; each with the line it begins on."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from persona_pipeline.base.documents.json import JsonError, csv_rows, delimiter_of, strict_array, strict_json
from persona_pipeline.base.errors import Problem
from persona_pipeline.importing.base import Source
from persona_pipeline.world.messages.files import Row

Told = TypeVar("Told")
# A cell or field may also hold a text as JSON.
_IN_CELLS = ("{", "[", '"')
# The beginning of a message in a chat as text, as WhatsApp writes it: a time, and a speaker unless it is a notice.
_SAID = re.compile(
    r"^[\u200e\u200f]*(?!\d{4}-\d\d-\d\d )\[?(\d{1,4}[./-]\d{1,2}[./-]\d{1,4},?\s\d{1,2}[:.]\d{2}(?:[:.]\d{2})?"
    r"(?:\s?[ap]\.?\s?m\.?)?)(?:\]|\s[-\u2013])\s(?:([^:\n\"\u201c]{1,80}):\s)?",
    re.MULTILINE | re.IGNORECASE,
)
Record = tuple[int, dict[str, Any] | ValueError]


def records(source: Source, within: Sequence[str] = (), *, cells: Collection[str] = _IN_CELLS) -> Iterator[Record]:
    """Yield the records of a file; others are a ``ValueError`` with the reason and a remedy.

    Args:
        within: keys of an object that may hold the list of records.
        cells: how cells of CSV begin that are read as JSON.

    Raises:
        ConfigError: the file cannot be read.
    """
    yield from _read(source.text(), within, cells)


def _read(text: str, within: Sequence[str], cells: Collection[str] = _IN_CELLS) -> Iterator[Record]:
    start, (first, _, rest) = text.lstrip()[:1], text.strip().partition("\n")
    whole = _decoded(text.strip()) if start == "{" else None
    if _SAID.match(text.lstrip()):
        yield from _chat(text)
    elif start not in ("{", "["):
        yield from _csv(text, cells)
    elif start == "[" and (not rest or isinstance(_decoded(first), str)):
        yield from _array(text)
    elif not isinstance(whole, dict):
        # The first line is a complete value, so every line of the file is a record.
        yield from _lines(text)
    else:
        listed = next((whole[key] for key in within if isinstance(whole.get(key), list)), [whole])
        yield from ((1, _object(value, f"record {number} ")) for number, value in enumerate(listed, start=1))


def each_record(found: Iterable[Record], read: Callable[[int, dict[str, Any]], Iterable[Told]]) -> Iterator[Told | Row]:
    """Yield the results of reading records; a record that cannot be read gives a row with the reason."""
    for line, record in found:
        try:
            if isinstance(record, ValueError):
                raise record
            yield from read(line, record)
        except RecursionError:
            yield Row(line, ValueError("is nested too deeply; export it again"))
        except ValueError as error:
            yield Row(line, error)


def first_records(source: Source, within: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return the records in the beginning of a file, as far as they can be read."""
    text = source.beginning.lstrip()
    if text[:1] == "{" and text[1:].lstrip().startswith(tuple(f'"{name}"' for name in within)):
        # The list may go on behind the beginning.
        text = text[max(0, text.find("[")) :]
    elif text[:1] not in ("[", "{") and source.is_longer:
        # A cell that was cut off may be any.
        text = text[: text.rfind("\n") + 1]
    return [record for _, record in _read(text, within) if isinstance(record, dict)]


def _array(text: str) -> Iterator[Record]:
    try:
        for line, value in strict_array(text):
            yield line, _object(value)
    except JsonError as error:
        yield error.lineno, ValueError(f"is not JSON ({error.msg}); what follows is not read, export it again")


def _lines(text: str) -> Iterator[Record]:
    # Not splitlines(): a text may hold U+2028.
    for line, raw in enumerate(text.split("\n"), start=1):
        if raw.strip():
            try:
                yield line, _object(strict_json(raw))
            except JsonError as error:
                yield line, ValueError(f"is not JSON ({error.msg}); write one object a line")


def _chat(text: str) -> Iterator[Record]:
    marks, line, before = list(_SAID.finditer(text)), 1, 0
    for mark, end in zip(marks, [*(other.start() for other in marks[1:]), len(text)], strict=True):
        line, before = line + text.count("\n", before, mark.start()), mark.start()
        words = text[mark.end() : end].strip()
        # WhatsApp writes an invisible mark in front of notices and pictures.
        kind = "message" if mark[2] and not words.startswith("\u200e") else "system"
        yield line, {"date": mark[1], "author": mark[2] or "", "type": kind, "message": words}


def _csv(text: str, decode: Collection[str]) -> Iterator[Record]:
    problems: list[Problem] = []
    header: list[str] | None = None
    sign = delimiter_of(text)
    for line, cells in csv_rows(text, "", problems, delimiter=sign):
        if not any(cell.strip() for cell in cells) or cells in ([f"sep={sign}"], ["sep=", ""]):
            continue
        if header is None:
            header = _names(cells)
        elif len(cells) > len(header) and any(cells[len(header) :]):
            yield line, ValueError("has more cells than the header; quote cells that hold commas")
        else:
            yield line, {name: _decoded(cell, decode) for name, cell in zip(header, cells, strict=False) if cell}
    for problem in problems:
        yield problem.line or 1, ValueError(problem.message)


def header_of(source: Source) -> list[str]:
    """Return the names in the first line of a CSV file, also of columns that are empty."""
    text = source.beginning.lstrip()
    return _names(next((cells for _, cells in csv_rows(text, "", [], delimiter=delimiter_of(text))), []))


def _names(cells: Sequence[str]) -> list[str]:
    """Return names of columns, each once: a second one of a name gets a number."""
    names: list[str] = []
    for place, cell in enumerate(cells, start=1):
        name = cell.strip() or f"column {place}"
        names.append(name if name not in names else f"{name} {place}")
    return names


def _decoded(value: Any, beginnings: Collection[str] = ("{", "[")) -> Any:
    """Return what a text says that is JSON, as exports write objects and lists in cells and fields; else the value itself."""
    if isinstance(value, str) and value[:1] in beginnings:
        with suppress(JsonError):
            return strict_json(value)
    return value


def _object(value: Any, which: str = "") -> dict[str, Any] | ValueError:
    return value if isinstance(value, dict) else ValueError(f"{which}is not an object; export it again")
