"""JSON as it is meant: no key twice in an object, no NaN, no nesting without end. Everything that others wrote is read so."""

import json
import math
from collections.abc import Iterator
from typing import Any


class JsonError(json.JSONDecodeError):
    """The text is no JSON, or says two things at once; ``msg`` says what, in a few words."""


def strict_json(text: str) -> Any:
    """Return the value of a JSON text.

    Raises:
        JsonError: it is no JSON, an object has a key twice, a number is not finite, or it nests too deeply.
    """
    try:
        return _DECODER.decode(text)
    except _OddJsonError as error:
        raise JsonError(str(error), text, 0) from None
    except json.JSONDecodeError as error:
        raise JsonError(error.msg, text, error.pos) from None
    except RecursionError:
        raise JsonError("nested too deeply", text, 0) from None


def strict_array(text: str) -> Iterator[tuple[int, Any]]:
    """Yield the values of a JSON array, each with the 1-based line it begins on.

    Raises:
        JsonError: it is no JSON array; what came before was yielded.
    """
    at, line, counted = _pass(text, 0), 1, 0
    if not text.startswith("[", at):
        raise JsonError("Expecting '['", text, at)
    at = _pass(text, at + 1)
    while not text.startswith("]", at):
        line, counted = line + text.count("\n", counted, at), at
        try:
            value, end = _DECODER.raw_decode(text, at)
        except _OddJsonError as error:
            raise JsonError(str(error), text, at) from None
        except json.JSONDecodeError as error:
            raise JsonError(error.msg, text, error.pos) from None
        except RecursionError:
            raise JsonError("nested too deeply", text, at) from None
        yield line, value
        at = _pass(text, end)
        if text.startswith(",", at):
            at = _pass(text, at + 1)
        elif not text.startswith("]", at):
            raise JsonError("Expecting ',' delimiter", text, at)
    if _pass(text, at + 1) != len(text):
        raise JsonError("Extra data", text, at + 1)


def _pass(text: str, at: int) -> int:
    """Return where white space ends."""
    while at < len(text) and text[at] in " \t\n\r":
        at += 1
    return at


class _OddJsonError(Exception):
    pass


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for key, value in pairs:
        if key in data:
            raise _OddJsonError(f"the key {key[:40]!r} stands twice in an object")
        data[key] = value
    return data


def _constant(name: str) -> Any:
    raise _OddJsonError(f"{name} is not JSON")


def _float(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _constant(text[:20])


def _int(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise _OddJsonError("a number has too many digits") from None


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_constant, parse_float=_float, parse_int=_int)
