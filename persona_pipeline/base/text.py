"""Text of others made harmless where it is shown (a terminal, JSON on it, a cell of a spreadsheet), and names listed in a text."""

import json
import re
from typing import Any

REPLACEMENT = "\ufffd"
# CSI and two-character escapes, then OSC, DCS, SOS, PM and APC strings up to their terminator, in 7- and 8-bit spelling.
_ESCAPES = re.compile(
    r"(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|\x1b[ -/]*[0-~]?"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# Marks, embeddings, overrides and isolates that reorder what stands around them.
_BIDI = re.compile(r"[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_SURROGATES = re.compile(r"[\ud800-\udfff]")
_UNSHOWN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_LIKE_AN_ESCAPE, _ESCAPED = re.compile(r"\\u(?=[0-9a-f]{4})"), re.compile(r"\\u([0-9a-f]{4})")
# What a spreadsheet would take for a formula.
_FORMULA = re.compile(r"'*[=+\-@\t\r]")


def printable(text: str) -> str:
    """Return text without escape sequences, control characters (new line and tab stay), bidi controls and lone surrogates."""
    return without_controls(_ESCAPES.sub("", text))


def without_controls(text: str) -> str:
    """Return text without control characters (new line and tab stay) and bidi controls; lone surrogates become U+FFFD."""
    return _SURROGATES.sub(REPLACEMENT, _BIDI.sub("", _CONTROLS.sub("", text)))


def shortened(text: str, most: int) -> str:
    """Return at most so many characters of a text, with an ellipsis where there are more."""
    return text if len(text) <= most else f"{text[:most].rstrip()}…"


def shown_json(data: Any, indent: int | None = None) -> str:
    """Return JSON with letters of any script as themselves and what no terminal should get raw as escapes: the same value."""
    return escaped(json.dumps(data, indent=indent, ensure_ascii=False))


def escaped(text: str) -> str:
    """Return JSON text with control and bidi characters and lone surrogates written as escapes."""
    return _UNSHOWN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def calm_cell(text: str) -> str:
    """Return a cell's text with an apostrophe before what a spreadsheet would take for a formula, and escapes as in ``escaped``."""
    text = escaped(_LIKE_AN_ESCAPE.sub(r"\\u005cu", text))
    return f"'{text}" if _FORMULA.match(text) else text


def plain_cell(text: str) -> str:
    """Return the text that ``calm_cell`` made a cell of."""
    text = text[1:] if text.startswith("'") and _FORMULA.match(text) else text
    return _ESCAPED.sub(_unescaped, text)


def _unescaped(match: re.Match[str]) -> str:
    letter = chr(int(match[1], 16))
    return letter if letter == "\\" or _UNSHOWN.match(letter) else match[0]


def names_in(text: str) -> list[str]:
    """Return what is written with commas between it."""
    return [name.strip() for name in text.split(",") if name.strip()]
