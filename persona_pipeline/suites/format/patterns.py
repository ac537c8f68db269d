"""Regular expressions of the suite format: JavaScript's language, run by RE2 in linear time.

JavaScript and RE2 read some things differently; ``translate`` rewrites them: ``\\s`` is Unicode, ``.`` stops at all four
line terminators, ``[^]`` and ``[]`` are classes, a ``[`` in a class is literal, ``(?<name>...)`` names a group. ``$`` without
flags is the very end in both. Look-around and back-references do not exist in RE2 and are refused.
"""

from functools import lru_cache
from typing import Any

from persona_pipeline.base.documents.json import encodable

_SPACE = "\\t\\n\\v\\f\\r \\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}\\x{feff}"
_NOT_SPACE = (
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}!-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}"
    "\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{fefe}\\x{ff00}-\\x{10ffff}"
)
_DOT = "[^\\n\\r\\x{2028}\\x{2029}]"
_SAME_IN_BOTH = frozenset("dDwWbBtnvfr")
# JavaScript takes these for the letter itself, other languages for something else: a pattern that has one is a mistake.
_MISLEADING = {
    "A": "write ^",
    "z": "write $",
    "Z": "write $",
    "Q": "escape each character",
    "G": "remove it",
    "K": "remove it",
}
MAX_PATTERN = 10_000


class PatternError(ValueError):
    """The pattern cannot be used; the message says why and what to write instead."""


@lru_cache(maxsize=4096)
def compile_pattern(pattern: str) -> Any:
    """Return a compiled pattern with ``search(text)``."""
    import re2

    if len(pattern) > MAX_PATTERN:
        raise PatternError(f"the pattern is longer than {MAX_PATTERN:,} characters; shorten it")
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(translate(pattern), options)
    except re2.error as error:
        reason = error.args[0].decode("utf-8", "replace") if error.args and isinstance(error.args[0], bytes) else error
        raise PatternError(f"is not a valid regular expression ({reason}){_advice(pattern)}") from error
    except UnicodeEncodeError as error:
        raise PatternError("holds half of a surrogate pair; write the whole character") from error


def search(pattern: str, text: str) -> bool:
    """Return whether the pattern matches anywhere in the text."""
    try:
        return compile_pattern(pattern).search(text) is not None
    except UnicodeEncodeError:
        # Half a surrogate pair cannot be encoded; no pattern can name one either.
        return compile_pattern(pattern).search(encodable(text)) is not None


def _advice(pattern: str) -> str:
    if any(sign in pattern for sign in ("(?=", "(?!", "(?<=", "(?<!")):
        return "; look-around is not available: use a second assert, with negate where something must be absent"
    if "\\k<" in pattern or any(f"\\{digit}" in pattern for digit in "123456789"):
        return "; back-references are not available"
    return "; escape characters meant literally with a backslash"


def translate(pattern: str) -> str:
    """Return the RE2 pattern that matches what the JavaScript pattern (without flags) matches."""
    out: list[str] = []
    position, in_class = 0, False
    while position < len(pattern):
        character = pattern[position]
        if character == "\\":
            text, position = _escape(pattern, position, in_class)
            out.append(text)
            continue
        if in_class:
            in_class = character != "]"
            out.append("\\[" if character == "[" else character)
        elif character == "[":
            text, length = _class_start(pattern, position)
            in_class = text in ("[", "[^")
            out.append(text)
            position += length
            continue
        elif character == ".":
            out.append(_DOT)
        elif pattern.startswith("(?", position):
            text, length = _group(pattern, position)
            out.append(text)
            position += length
            continue
        else:
            out.append(character)
        position += 1
    return "".join(out)


def _class_start(pattern: str, position: int) -> tuple[str, int]:
    if pattern.startswith("[^]", position):
        return "(?s:.)", 3
    if pattern.startswith("[]", position):
        return "[^\\x{0}-\\x{10ffff}]", 2
    return ("[^", 2) if pattern.startswith("[^", position) else ("[", 1)


def _group(pattern: str, position: int) -> tuple[str, int]:
    rest = pattern[position + 2 : position + 4]
    if rest[:1] == "<" and rest[1:] not in ("=", "!"):
        return "(?P<", 3
    end = position + 2
    while end < len(pattern) and (pattern[end].isalpha() or pattern[end] == "-"):
        end += 1
    if end > position + 2 and pattern[end : end + 1] == ")":
        flags = pattern[position + 2 : end]
        raise PatternError(f"(?{flags}) is not JavaScript; write (?{flags}:...) around what it should hold for")
    return "(?", 2


def _escape(pattern: str, position: int, in_class: bool) -> tuple[str, int]:
    letter = pattern[position + 1 : position + 2]
    if not letter:
        raise PatternError("ends in a single backslash; double it")
    after = position + 2
    if letter == "s":
        return (_SPACE if in_class else f"[{_SPACE}]"), after
    if letter == "S":
        return (_NOT_SPACE if in_class else f"[{_NOT_SPACE}]"), after
    if letter == "b" and in_class:
        return "\\x{8}", after
    if letter in _SAME_IN_BOTH:
        return f"\\{letter}", after
    if letter in "xu":
        return _code_point(pattern, position, letter)
    if letter == "c" and pattern[after : after + 1].isascii() and pattern[after : after + 1].isalpha():
        return f"\\x{{{ord(pattern[after]) % 32:x}}}", after + 1
    if letter == "0":
        return "\\x{0}", after
    if letter in "pP" and pattern[after : after + 1] == "{":
        return f"\\{letter}", after
    if letter in _MISLEADING:
        raise PatternError(f"\\{letter} means the letter {letter} in JavaScript; {_MISLEADING[letter]}")
    if letter.isalpha() and letter != "k":
        return letter, after
    return f"\\{letter}", after


def _code_point(pattern: str, position: int, letter: str) -> tuple[str, int]:
    start = position + 2
    if letter == "u" and pattern[start : start + 1] == "{":
        end = pattern.find("}", start)
        digits, after = pattern[start + 1 : end], end + 1
    else:
        length = 4 if letter == "u" else 2
        digits, after = pattern[start : start + length], start + length
        if len(digits) < length:
            digits = ""
    try:
        return f"\\x{{{int(digits, 16):x}}}", after
    except ValueError:
        return letter, start
