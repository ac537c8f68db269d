"""The forms a text may hide in: spaced or swapped letters, invisible characters, encodings. Every step is linear in the text."""

import base64
import binascii
import codecs
import html
import unicodedata
from collections.abc import Iterator
from urllib.parse import unquote

import re2

# An attack may be wrapped twice; more than that no judge unwraps either.
_DEPTH = 2
# Of encoded runs that are opened, in all: what is beyond stays what it is, noise to a judge too.
_MOST_RUNS = 200
_SHORTEST_READABLE = 6

_HIDDEN = re2.compile(
    r"[\x{ad}\x{180e}\x{200b}-\x{200f}\x{202a}-\x{202e}\x{2060}-\x{2064}\x{2066}-\x{2069}\x{feff}\x{e0000}-\x{e0fff}]+"
)
_TAGGED = re2.compile(r"[\x{e0020}-\x{e007e}]+")
# Letters that pass for Latin ones: Cyrillic, Greek, small capitals; and the figures of "leet".
_LOOKALIKES = str.maketrans(
    "аеорсухіјѕԁɡһӏӀкмтвнΑΒΕΖΗΙΚΜΝΟΡΤΥΧοɪɴʀʟʏʜɢʙꜰᴀᴄᴅᴇᴊᴋᴍᴏᴘꜱᴛᴜᴠᴡᴢ",
    "aeopcyxijsdghllkmtbnabezhikmnoptyxoinrlyhgbfacdejkmopstuvwz",
)
_FIGURES = str.maketrans("013457@$!", "oieastasi")
_MIXED = re2.compile(
    r"[a-z][\x{370}-\x{3ff}\x{400}-\x{4ff}ɪɴʀʟʏʜɢʙꜰᴀ-ᴢ]|[\x{370}-\x{3ff}\x{400}-\x{4ff}ɪɴʀʟʏʜɢʙꜰᴀ-ᴢ][a-z]|[ᴀ-ᴢ]{2}"
)
_LEET = re2.compile(r"[a-z][013457@$!]+[a-z]|\b[013457][a-z]")
# Four letters or more that stand alone, or runs of letters with signs between them.
_SPACED = re2.compile(r"(?:[ \t\n.,_*|/:;-][a-z0-9][ \t\n.,_*|/:;-]?){5}|(?:[a-z0-9][.,_*|/:;-]){5}")
_LONG_RUN = re2.compile(r"[a-z0-9]{24}")
_ESCAPES = re2.compile(r"(?:\\u[0-9a-fA-F]{4}|\\x[0-9a-fA-F]{2})+")
_ENCODED = (
    (re2.compile(r"[A-Za-z0-9+/_-]{12,}={0,2}(?:\n[A-Za-z0-9+/_-]{4,}={0,2})*"), "base64"),
    (re2.compile(r"\b[A-Z2-7]{16,}={0,6}"), "base32"),
    (re2.compile(r"\b(?:[0-9a-fA-F]{2}[ :]?){8,}"), "hex"),
    (re2.compile(r"\b(?:[01]{8} ?){4,}"), "binary"),
    (re2.compile(r"\b(?:[0-9]{2,3}[ ,]+){5,}[0-9]{2,3}\b"), "decimal"),
)


def folded(text: str) -> str:
    """Return a text by which to compare: compatible forms, lower case, no accents, nothing that cannot be seen."""
    if text.isascii():
        return text.lower()
    flat = unicodedata.normalize("NFKD", _HIDDEN.sub("", text).translate(_squared()))
    return "".join(letter for letter in flat if not unicodedata.combining(letter)).casefold()


def forms(text: str, depth: int = _DEPTH) -> Iterator[str]:
    """Yield the folded text, and what it may be read as where it shows signs of being disguised."""
    plain = folded(text)
    yield plain
    if tagged := "".join(_TAGGED.findall(text)):
        yield "".join(chr(ord(letter) - 0xE0000) for letter in tagged).lower()
    yield from _respelled(plain)
    if depth == 0:
        return
    for opened in _opened(text):
        yield from forms(opened, depth - 1)


def squeezed(plain: str) -> str:
    """Return the letters and figures of a folded text in one run."""
    return "".join(filter(str.isalnum, plain))


def is_written_apart(plain: str) -> bool:
    """Whether a folded text seems to be written letter by letter, or all in one."""
    return bool(_SPACED.search(plain) or _LONG_RUN.search(plain))


def _respelled(plain: str) -> Iterator[str]:
    respelled = plain.translate(_LOOKALIKES) if _MIXED.search(plain) else plain
    if respelled != plain:
        yield respelled
    if _LEET.search(respelled):
        yield respelled.translate(_FIGURES)
    if "\u202e" in plain or "snoitcurtsni" in plain or "erongi" in plain or "erocs" in plain:
        yield plain[::-1]


def _opened(text: str) -> Iterator[str]:
    """Yield what is readable once it is decoded."""
    unescaped = html.unescape(unquote(text)) if "&" in text or "%" in text else text
    unescaped = _ESCAPES.sub(lambda match: _characters(match[0]), unescaped)
    if unescaped != text:
        yield unescaped
    if text.isascii():
        yield codecs.encode(text, "rot13")
    runs = 0
    for pattern, encoding in _ENCODED:
        for match in pattern.finditer(text):
            runs += 1
            if runs > _MOST_RUNS:
                return
            decoded = _decoded(match[0] or "", encoding)
            if decoded is not None and _is_readable(decoded):
                yield decoded


def _characters(escapes: str) -> str:
    return "".join(chr(int(escape[1:], 16)) for escape in escapes.split("\\")[1:])


def _decoded(run: str, encoding: str) -> str | None:
    run = "".join(run.split()) if encoding == "base64" else run
    try:
        if encoding == "base64":
            bare = run.rstrip("=").replace("-", "+").replace("_", "/")
            return base64.b64decode(bare[: len(bare) - (len(bare) % 4 == 1)] + "=" * (-len(bare) % 4)).decode(
                "utf-8", "ignore"
            )
        if encoding == "base32":
            bare = run.rstrip("=")
            return base64.b32decode(bare + "=" * (-len(bare) % 8)).decode("utf-8")
        if encoding == "hex":
            return bytes.fromhex(run.replace(":", "")).decode("utf-8")
        numbers = run.replace(",", " ").split() if encoding == "decimal" else _octets(run)
        return bytes(int(number, 10 if encoding == "decimal" else 2) for number in numbers).decode("utf-8")
    except (binascii.Error, ValueError):
        return None


def _octets(run: str) -> list[str]:
    bits = run.replace(" ", "")
    return [bits[start : start + 8] for start in range(0, len(bits) - 7, 8)]


def _is_readable(text: str) -> bool:
    seen = sum(letter.isalnum() or letter.isspace() or letter in ".,:;!?'\"-=+/()" for letter in text)
    return len(text) >= _SHORTEST_READABLE and seen >= 0.9 * len(text)


def _squared() -> dict[int, str]:
    return _SQUARED


_SQUARED = {start + index: chr(97 + index) for start in (0x1F130, 0x1F150, 0x1F170) for index in range(26)}
