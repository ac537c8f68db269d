"""Foreign text: characters that cannot be stored become U+FFFD on entry, and unsafe ones are removed for printing."""

import json
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any

REPLACEMENT = "\ufffd"
# Escapes in JSON: a backslash and a pair of surrogates, which stay, then NUL and half a pair, which do not.
_JSON_ESCAPES = re.compile(
    r"\\(?:\\|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u0000|u[dD][89a-fA-F][0-9a-fA-F]{2}))"
)
# CSI and two-character escapes, then OSC, DCS, SOS, PM and APC strings up to their terminator, in 7- and 8-bit spelling.
_ESCAPES = re.compile(
    r"(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|\x1b[ -/]*[0-~]?"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# Marks, embeddings, overrides and isolates that reorder the text around them.
_BIDI = re.compile(r"[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_UNSHOWN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_LIKE_AN_ESCAPE, _ESCAPED = re.compile(r"\\u(?=[0-9a-f]{4})"), re.compile(r"\\u([0-9a-f]{4})")
# What a spreadsheet would take for a formula.
_FORMULA = re.compile(r"'*[=+\-@\t\r]")

# Thinking in front of an answer, as models and servers mark it.
_TAG = r"(?:\w+:)?(?:ant)?(?:think|thinking|thoughts?|reasoning|scratchpad)"
_OPENED = (
    rf'(?:<{_TAG}(?:\s[^<>]*)?>|\[{_TAG}\]|◁{_TAG}▷|<details type="reasoning"[^<>]*>'
    r"|<\|(?:START_THINKING|begin_of_thought)\|>|(?:<\|start\|>assistant)?<\|channel\|>analysis<\|message\|>)"
)
_CLOSED = rf"(?:</{_TAG}>|\[/{_TAG}\]|◁/{_TAG}▷|<\|(?:END_THINKING|end_of_thought)\|>)"
_ENDED = rf"(?:{_CLOSED}|</details>|<\|end\|>(?=(?:<\|start\|>assistant)?<\|channel\|>final<\|message\|>))"
# Between tags, before a closing tag that has no opening one, or cut off before its end. A closing tag in quotes is a word about
# the tag.
_THINKING = re.compile(
    rf"\s*{_OPENED}((?:(?!{_OPENED}|{_ENDED}).)*){_ENDED}\s*"
    rf"|((?:(?!{_OPENED}|{_ENDED}).)*)(?<![`'\"]){_CLOSED}(?![`'\"])\s*|\s*{_OPENED}(.*)",
    re.DOTALL | re.IGNORECASE,
)
_MAY_BE_THINKING = re.compile(f"{_OPENED}|{_CLOSED}", re.IGNORECASE)
# Marks of a model's template around an answer's words.
_AROUND_WORDS = re.compile(
    r"\A\s*(?:<\|(?:START_RESPONSE|begin_of_solution)\|>|(?:<\|start\|>assistant)?<\|channel\|>final<\|message\|>)\s*"
    r"|\s*<\|(?:END_RESPONSE|end_of_solution|return)\|>\s*\Z"
)


def storable(text: str) -> str:
    """Return the text with NUL and lone surrogates, which no database or UTF-8 file holds, as U+FFFD."""
    text = text.replace("\x00", REPLACEMENT)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        # Two adjacent halves become the character that they encode.
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def storable_json(text: str) -> str:
    """Return JSON text whose escapes say what ``storable`` keeps. Every other character stays at its place."""
    return _JSON_ESCAPES.sub(lambda match: r"\ufffd" if match[1] else match[0], text)


def storable_data(value: Any, letters: Callable[[str], str] = storable) -> Any:
    """Return JSON-like data in which every text, keys included, is as in ``storable``, or as ``letters`` makes it."""
    if isinstance(value, str):
        return letters(value)
    if isinstance(value, Mapping):
        return {storable_data(key, letters): storable_data(item, letters) for key, item in value.items()}
    if isinstance(value, list | tuple):
        found = [storable_data(item, letters) for item in value]
        return found if isinstance(value, list) else tuple(found)
    return value


def clean(text: str) -> str:
    """Return the text of another program or a model as it is stored and compared: as in ``storable``, letters composed (NFC).

    Not for ids: a stored id must be found in the form in which it came.
    """
    return unicodedata.normalize("NFC", storable(text))


def printable(text: str) -> str:
    """Return text without escape sequences, control characters (new line and tab stay), bidi controls and lone surrogates."""
    return without_controls(_ESCAPES.sub("", text))


def without_controls(text: str) -> str:
    """Return text without control characters (new line and tab stay) and bidi controls; lone surrogates become U+FFFD."""
    return storable(_BIDI.sub("", _CONTROLS.sub("", text)))


def shortened(text: str, most: int) -> str:
    """Return at most ``most`` characters of a text, with an ellipsis where there are more."""
    return text if len(text) <= most else f"{text[:most].rstrip()}…"


def shown_json(data: Any, indent: int | None = None, *, allow_nan: bool = True) -> str:
    """Return JSON with letters of any script as themselves, and as escapes what a terminal must not get raw."""
    return escaped(storable_json(json.dumps(data, indent=indent, ensure_ascii=False, allow_nan=allow_nan)))


def escaped(text: str) -> str:
    """Return a text as in ``storable``, with control and bidi characters written as escapes of JSON."""
    return _UNSHOWN.sub(lambda match: f"\\u{ord(match[0]):04x}", storable(text))


def calm_cell(text: str) -> str:
    """Return a cell's text with an apostrophe before what a spreadsheet would take for a formula, and escapes as in ``escaped``."""
    text = escaped(_LIKE_AN_ESCAPE.sub(r"\\u005cu", text))
    return f"'{text}" if _FORMULA.match(text) else text


def plain_cell(text: str) -> str:
    """Return the text that ``calm_cell`` made a cell of."""
    text = text[1:] if text.startswith("'") and _FORMULA.match(text) else text
    return _ESCAPED.sub(_unescaped, text)


def _unescaped(match: re.Match[str]) -> str:
    letter = storable(chr(int(match[1], 16)))
    return letter if letter in ("\\", REPLACEMENT) or _UNSHOWN.match(letter) else match[0]


def plural(count: int, one: str) -> str:
    """Return a count with a noun."""
    return f"{count:,} {one if count == 1 else one + 's'}"


def some(texts: Sequence[str], most: int = 3, between: str = ", ") -> str:
    """Return the first texts in a line, and how many more there are."""
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return between.join(texts[:most]) + more


def names_in(text: str) -> list[str]:
    """Return the names in a text with commas between them."""
    return [name.strip() for name in text.split(",") if name.strip()]


def split_thinking(text: str) -> tuple[str, str]:
    """Return the thinking in front of an answer, ``""`` where there is none, and the answer's words."""
    thinking = ""
    while _MAY_BE_THINKING.search(text) and (found := _THINKING.match(text)):
        thinking, text = thinking + (found[1] or found[2] or found[3] or ""), text[found.end() :]
    return thinking, _AROUND_WORDS.sub("", text) if "<|" in text else text
