"""Files of one JSON object a line that people read in a diff: each line checked at its place, written in one spelling."""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from persona_pipeline.atomic_files import write_atomically
from persona_pipeline.documents.strict_json import JsonError, strict_json
from persona_pipeline.errors import Problem

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")

Row = TypeVar("Row")


def read_rows(
    path: Path, parse: Callable[[str], Row], problems: list[Problem], *, remedy: str
) -> list[tuple[int, Row]]:
    """Return the rows of a file with their line numbers, 1-based; blank lines are left out.

    Args:
        parse: returns the row of a line, or raises ``ValueError`` that says what is wrong with it.
        problems: gets every line that is no row, and a file that is not UTF-8.
        remedy: what to do about such a line.
    """
    try:
        text = path.read_bytes().decode("utf-8")
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
    """Return the object of a JSON line.

    Raises:
        ValueError: what is wrong with the line.
    """
    try:
        data = strict_json(line)
    except JsonError as error:
        raise ValueError(f"not JSON ({error.msg} at column {error.colno})") from None
    if not isinstance(data, dict):
        raise ValueError("not a JSON object")
    return data


def json_line(data: Mapping[str, Any]) -> str:
    """Return an object as a line, ended by a line feed: letters of any script as themselves, keys in their order."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False)
    return _LONE_SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", text) + "\n"


def write_if_changed(path: Path, text: str) -> bool:
    """Replace a file's text atomically, and return whether it was another before."""
    if path.exists() and path.read_bytes() == text.encode("utf-8"):
        return False
    write_atomically(path, text)
    return True
