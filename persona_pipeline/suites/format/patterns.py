"""Regular expressions of the suite format: JavaScript's language, run by RE2 in linear time.

JavaScript and RE2 read some things differently; ``translate`` rewrites them: ``\\s`` is Unicode, ``.`` stops at all four
line terminators, ``[^]`` and ``[]`` are classes, a ``[`` in a class is literal, ``(?<name>...)`` names a group. ``$`` without
flags is the very end in both. Without its flag u JavaScript counts a character beyond U+FFFF as two: each half becomes a
character of its own in pattern and text, unless the pattern says ``\\p{...}`` or ``\\u{...}``, which only the flag u has.
Look-around and back-references do not exist in RE2 and are refused.
"""

import re
from functools import lru_cache
from typing import Any

_SPACE = "\\t\\n\\v\\f\\r \\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}\\x{feff}"
_NOT_SPACE = (
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}!-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}"
    "\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{fefe}\\x{ff00}-\\x{10ffff}"
)
# Halves of surrogate pairs stand in the last plane, where no text has characters of its own; those it has are two halves too.
# With them ſ and the sign of kelvin, which RE2 takes for s and k where case does not count, and JavaScript does not.
_HALVES = 0x100000 - 0xD800
_BEYOND = re.compile("[\u017f\u212a\ud800-\udfff\U00010000-\U0010ffff]")
_CODES = re.compile(r"\\x\{(\w+)\}(?:-\\x\{(\w+)\})?")
_WHOLE_CHARACTERS = re.compile(r"\\(?:[pP]|u)\{")
_DOT = "[^\\n\\r\\x{2028}\\x{2029}]"
_SAME_IN_BOTH = frozenset("dDwWbBtnvfr")
# JavaScript takes these for the letter itself, other languages for something else: a pattern that has one is a mistake.
_MISLEADING = {
    "A": "write ^",
    **dict.fromkeys("zZ", "write $"),
    "Q": "escape each character",
    **dict.fromkeys("GK", "remove it"),
}
MAX_PATTERN = 10_000


class PatternError(ValueError):
    """The pattern cannot be used; the message says why and what to write instead."""


@lru_cache(maxsize=4096)
def compile_pattern(pattern: str, *, units: bool = True) -> Any:
    """Return a compiled pattern with ``search(text)``. ``units``: characters count as in JavaScript without the flag u."""
    import re2

    if len(pattern) > MAX_PATTERN:
        raise PatternError(f"the pattern is longer than {MAX_PATTERN:,} characters; shorten it")
    options = re2.Options()
    options.log_errors = False
    try:
        if units and in_halves(pattern):
            return re2.compile(_CODES.sub(_with_halves, translate(_halved(pattern))), options)
        return re2.compile(translate(pattern), options)
    except re2.error as error:
        reason = error.args[0].decode("utf-8", "replace") if error.args and isinstance(error.args[0], bytes) else error
        raise PatternError(f"is not a valid regular expression ({reason}){_advice(pattern)}") from error
    except UnicodeEncodeError as error:
        raise PatternError("holds half of a surrogate pair; write the whole character") from error


def search(pattern: str, text: str, *, units: bool = True) -> bool:
    # Half a surrogate pair cannot be encoded; where characters are whole no pattern can name one either.
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    text = _halved(text) if units and in_halves(pattern) else whole
    return compile_pattern(pattern, units=units).search(text) is not None


def in_halves(pattern: str) -> bool:
    """Return whether a character beyond U+FFFF counts as two in a pattern."""
    return _WHOLE_CHARACTERS.search(pattern) is None


def _halved(text: str) -> str:
    """Return a text with each half of a surrogate pair, alone or not, as a character that RE2 takes."""

    def halves(match: re.Match[str]) -> str:
        found = memoryview(match[0].encode("utf-16-le", "surrogatepass")).cast("H")
        return "".join(chr(unit + _HALVES) for unit in found)

    return _BEYOND.sub(halves, text)


def _with_halves(code: re.Match[str]) -> str:
    """Return a translated escape, or a range of two, with what stands for the halves in it."""
    low, high = int(code[1], 16), int(code[2] or code[1], 16)
    first, last = max(low, 0xD800), min(high, 0xDFFF)
    found = "".join(chr(unit + _HALVES) for unit in (0x17F, 0x212A) if low <= unit <= high)
    if first <= last:
        found += chr(first + _HALVES) + (f"-{chr(last + _HALVES)}" if code[2] else "")
    alone = found and (code[2] is None or (low, high) == (first, last))
    return found if alone else code[0] + found


def _advice(pattern: str) -> str:
    if any(sign in pattern for sign in ("(?=", "(?!", "(?<=", "(?<!")):
        return "; look-around is not available: use a second assert, with negate where something must be absent"
    if "\\k<" in pattern or any(f"\\{digit}" in pattern for digit in "123456789"):
        return "; back-references are not available"
    return "; escape characters meant literally with a backslash"


def translate(pattern: str) -> str:
    """Return the RE2 pattern that matches what the JavaScript pattern (without flags) matches."""
    # Whether a dot is any character in each group that is open.
    groups = [False]

    def token(match: re.Match[str]) -> str:
        text = match[0]
        if text == "." and groups[-1]:
            return "(?s:.)"
        if text.startswith("(?") and text.endswith(":"):
            on, _, off = text[2:-1].partition("-")
            if not {*on, *off} <= {*"ims"}:
                raise PatternError(f"{text} is not JavaScript; it has the modifiers i, m and s")
            groups.append("s" in on or (groups[-1] and "s" not in off))
            return text
        if text in ("(", "(?", "(?<"):
            groups.append(groups[-1])
        elif text == ")" and len(groups) > 1:
            groups.pop()
        return text if text in ("(", ")") else _token(match)

    return _TOKEN.sub(token, pattern)


_ESCAPE = r"\\(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|u\{[0-9A-Fa-f]+\}|c[A-Za-z]|.?)"
_TOKEN = re.compile(rf"{_ESCAPE}|\[(?:\\.|[^\]\\])*\]?|\.|\(\?(?:<(?![=!])|(?:[^\W\d_]|-)*[:)])?|[()]", re.DOTALL)
_IN_CLASS = re.compile(rf"{_ESCAPE}|\[", re.DOTALL)
_CLASSES = {"[^]": "(?s:.)", "[]": "[^\\x{0}-\\x{10ffff}]", ".": _DOT, "(?": "(?", "(?<": "(?P<", "(?)": "(?)"}


def _token(match: re.Match[str]) -> str:
    text = match[0]
    if text in _CLASSES:
        return _CLASSES[text]
    if text.startswith("["):
        return "[" + _IN_CLASS.sub(lambda inner: _escape(inner, in_class=True), text[1:])
    if text.startswith("\\"):
        return _escape(match)
    raise PatternError(f"{text} is not JavaScript; write {text[:-1]}:...) around what it should hold for")


def _escape(match: re.Match[str], *, in_class: bool = False) -> str:
    letter, code = match[0][1:2], match[0][2:].strip("{}")
    if match[0] == "[":
        return "\\["
    if not letter:
        raise PatternError("ends in a single backslash; double it")
    if letter in "sS":
        space = _SPACE if letter == "s" else _NOT_SPACE
        return space if in_class else f"[{space}]"
    if letter == "b" and in_class:
        return "\\x{8}"
    if code or letter == "0":
        return f"\\x{{{ord(code) % 32 if letter == 'c' else int(code or '0', 16):x}}}"
    if letter in _MISLEADING:
        raise PatternError(f"\\{letter} means the letter {letter} in JavaScript; {_MISLEADING[letter]}")
    named = letter in "pP" and match.string.startswith("{", match.end())
    if letter.isalpha() and letter not in _SAME_IN_BOTH and letter != "k" and not named:
        return letter
    return f"\\{letter}"
