"""JSON text of the suite format, and numbers in text."""

import json
import math
import re
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from persona_pipeline.base.errors import ConfigError, Problem
from persona_pipeline.base.text import storable_json

_LEADING_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def parse_float(text: str) -> float | None:
    """Return the number a text starts with (``"100 USD"`` is 100), None where there is none."""
    match = _LEADING_NUMBER.match(text.lstrip())
    value = float(match[0]) if match else math.nan
    return value if math.isfinite(value) else None


def stringify(value: Any, indent: int | None = None) -> str:
    """Return compact JSON text without escapes beyond JSON's own."""
    separators = (",", ":") if indent is None else (",", ": ")
    return json.dumps(value, ensure_ascii=False, indent=indent, separators=separators)


def reject(constant: str) -> NoReturn:
    """Raise ``ValueError`` for NaN and infinity, which Python's JSON has and JSON has not."""
    raise ValueError(f"{constant} is not JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))
        raise ValueError(f"key {twice!r} stands twice; remove one")
    return data


def _finite(text: str) -> float:
    # Only a number such as 1e999 turns into infinity when it is read.
    value = float(text)
    if math.isinf(value):
        raise ValueError("a number is too large")
    return value


_DECODER = json.JSONDecoder(parse_constant=reject, parse_float=_finite)
_STRICT_DECODER = json.JSONDecoder(parse_constant=reject, parse_float=_finite, object_pairs_hook=_unique)
# Whole numbers as floats: Python refuses integers of more than 4,300 digits, JSON does not.
_VALIDATOR = json.JSONDecoder(parse_constant=reject, parse_int=float)


def is_json(text: str) -> bool:
    """Return whether a text is JSON. Raises ``RecursionError`` when it nests too deep to tell."""
    try:
        _VALIDATOR.decode(text)
    except ValueError:
        return False
    return True


def parse_json(text: str, *, unique_keys: bool = False) -> Any:
    """Return the value of a JSON text. Raises ``ValueError`` for what is not JSON, NaN, infinity and too deep nesting included.

    ``unique_keys``: a key that stands twice in an object is an error too; otherwise the last counts.
    """
    try:
        return (_STRICT_DECODER if unique_keys else _DECODER).decode(storable_json(text))
    except RecursionError as error:
        raise ValueError("nests too deep") from error


def json_file(text: str, source: str, *, unique_keys: bool = False) -> Any:
    """Return the value of a file of JSON; ``ConfigError``: it is none. ``source``: the file, for that."""
    try:
        return parse_json(text, unique_keys=unique_keys)
    except ValueError as error:
        place = (error.lineno, error.colno) if isinstance(error, json.JSONDecodeError) else (1, 1)
        raise ConfigError(Problem(f"is not JSON: {getattr(error, 'msg', error)}", source, *place)) from error


def parse_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object inside an answer: code fences dropped, first ``{`` to last ``}``; None when there is none."""
    start, end = text.find("{"), text.rfind("}")
    if start < 0 or end < start:
        return None
    try:
        value = parse_json(text[start : end + 1])
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def json_equal(left: Any, right: Any) -> bool:
    """Return whether two JSON values are the same: 5 is 5.0, but true is not 1; the order of keys does not matter."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(json_equal(item, right[key]) for key, item in left.items())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(json_equal, left, right))
    if isinstance(left, int | float) and isinstance(right, int | float):
        return left == right
    return type(left) is type(right) and left == right


def json_rows(
    text: str, source: str, malformed: str, parse: Callable[[str], Any] = parse_json
) -> Iterator[tuple[int, Any]]:
    """Yield each row that is not blank with its line number. A last line without an end that is no JSON is left out.

    ``source``: the file, for problems. ``malformed``: what to say of a line that is not JSON; ``{number}`` and ``{error}`` stand
    for its number and the reason.
    """
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = parse(line)
        except (ValueError, RecursionError) as error:
            if number == len(lines):
                # The last line of a run that was killed while it wrote.
                return
            raise ConfigError(Problem(malformed.format(number=number, error=error), source, number, 1)) from error
        yield number, row
