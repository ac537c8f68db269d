"""JSON, texts of messages, and regular expressions of Python's ``regex`` package with a time limit."""

import contextlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import regex

from persona_pipeline.base.documents.json import JsonError, strict_json
from persona_pipeline.base.errors import ConfigError, Problem
from persona_pipeline.base.text import clean
from persona_pipeline.suites.format.files import ReasonedError

MISSING: Any = object()
_STEP = re.compile(r"\[(\d+)\]|([^.\[\]]+)")


def parse_float(text: str) -> float | None:
    """Return the finite number of a text; None if it is not a number."""
    with contextlib.suppress(ValueError):
        return value if math.isfinite(value := float(text)) else None
    return None


def stringify(value: Any, indent: int | None = None) -> str:
    """Return compact JSON text without escapes beyond JSON's own."""
    separators = (",", ":") if indent is None else (",", ": ")
    return json.dumps(value, ensure_ascii=False, indent=indent, separators=separators)


def parse_json(text: str) -> Any:
    """Return the value of a program's JSON; the last of equal keys wins. Raises ``ValueError``."""
    return strict_json(text, unique_keys=False)


def json_file(text: str, source: str, *, unique_keys: bool = False) -> Any:
    """Return the value of a JSON file. Raises ``ConfigError``: it is not valid. ``source``: the file, for messages."""
    try:
        return strict_json(text, unique_keys=unique_keys)
    except JsonError as error:
        raise ConfigError(Problem(f"is not JSON: {error.msg}", source, error.lineno, error.colno)) from error


def parse_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object inside an answer, from the first ``{`` to the last ``}``; None without one."""
    try:
        value = parse_json(text[text.index("{") : text.rindex("}") + 1])
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def json_equal(left: Any, right: Any) -> bool:
    """Return whether two JSON values are equal: 5 is 5.0, true is not 1; the order of keys and composed letters aside."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(json_equal(item, right[key]) for key, item in left.items())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(json_equal, left, right))
    if isinstance(left, str) and isinstance(right, str):
        return left == right or clean(left) == clean(right)
    return left == right


def value_at(value: Any, path: str) -> Any:
    """Return the value at a path of keys and list positions, such as ``a.b[0].c``; ``MISSING`` without a value."""
    for match in _STEP.finditer(path):
        index, key = match.groups()
        if isinstance(value, list):
            # lines.0 is lines[0]: a list has no other keys.
            number = index if index is not None else key if key.isascii() and key.isdigit() else None
            value = MISSING if number is None or int(number) >= len(value) else value[int(number)]
        elif isinstance(value, dict):
            value = value.get(key if index is None else index, MISSING)
        else:
            return MISSING
    return value


def json_rows(
    text: str, source: str, malformed: str, problems: list[Problem] | None = None
) -> Iterator[tuple[int, str, Any]]:
    """Yield each row that is not blank: its line number, its text and its value.

    Args:
        source: the file, for problems.
        malformed: message for a line that is not JSON, with ``{number}`` and ``{error}``.
        problems: collects lines that are not JSON, and repeated keys. None: the first such line raises ``ConfigError``, but
            an incomplete last line is ignored, because its run was killed.
    """
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield number, line, strict_json(line, unique_keys=problems is not None)
        except JsonError as error:
            problem = Problem(malformed.format(number=number, error=error.msg), source, number, error.colno)
            if problems is not None:
                problems.append(problem)
            elif number < len(lines):
                raise ConfigError(problem) from error


def question_text(messages: Sequence[dict[str, Any]]) -> str:
    """Return the text of all messages, each trimmed, joined by one space; blank ones are left out."""
    texts = (text.strip() for message in messages for text in content_texts(message.get("content")))
    return " ".join(text for text in texts if text)


def content_texts(content: Any) -> list[str]:
    """Return the texts of a message's content: a string, a mapping as JSON, or the text parts of a list."""
    if isinstance(content, str):
        return [content]
    if isinstance(content, dict):
        return [stringify(content, indent=2)]
    parts = content if isinstance(content, list) else ()
    texts = [
        part.get("value", part.get("text")) for part in parts if isinstance(part, dict) and part.get("type") == "text"
    ]
    return [text for text in texts if isinstance(text, str)]


def under_roles(said: Iterable[tuple[str, str]]) -> str:
    """Return texts, each under its speaker's role; blank ones are left out, and a single text has no role."""
    texts = [(role, text) for role, text in said if text.strip()]
    if len(texts) == 1:
        return texts[0][1]
    return "\n\n".join(f"@[{role.capitalize()}]:\n{text}" for role, text in texts)


def reference_answer(messages: Sequence[dict[str, Any]]) -> str:
    """Return the last message as text: its content, else its tool calls; data as indented JSON."""
    if not messages:
        return ""
    content = messages[-1].get("content")
    if isinstance(content, str):
        return content
    value = content if content is not None else messages[-1].get("tool_calls")
    return "" if value is None else stringify(value, indent=2)


MAX_PATTERN = 10_000
# Some short patterns would take years on a short text.
MOST_SECONDS = 2.0


class PatternError(ValueError):
    """The pattern cannot be used; the message has the reason and a remedy."""


@lru_cache(maxsize=4096)
def compile_pattern(pattern: str) -> Any:
    """Return a compiled pattern. Raises ``PatternError``: it is too long or not valid."""
    if len(pattern) > MAX_PATTERN:
        raise PatternError(f"the pattern is longer than {MAX_PATTERN:,} characters; shorten it")
    try:
        return regex.compile(pattern)
    except (regex.error, ValueError, OverflowError, RecursionError) as error:
        said = f"is not a valid regular expression ({error})"
        raise PatternError(f"{said}; escape characters meant literally with a backslash") from error


def search(pattern: str, text: str) -> bool:
    """Return whether a pattern matches anywhere in a text.

    Raises ``PatternError`` for an invalid pattern, ``ReasonedError`` if the search takes longer than ``MOST_SECONDS``.
    """
    try:
        return compile_pattern(pattern).search(text, timeout=MOST_SECONDS, concurrent=True) is not None
    except TimeoutError:
        said = (
            f"the search for {pattern[:100]!r} takes more than {MOST_SECONDS:g} s; avoid a repetition in a repetition"
        )
        raise ReasonedError("pattern_too_slow", said) from None
