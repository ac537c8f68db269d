"""Patterns of texts that are written for a judge, in many languages, and what hides them: spelling, letters, encodings."""

import base64
import binascii
import codecs
import html
import itertools
import re
import tomllib
import unicodedata
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from pathlib import Path
from urllib.parse import unquote

import re2

from persona_pipeline.base.text import storable
from persona_pipeline.world.models import Trajectory

# An attack may be wrapped twice; more than that no judge unwraps either.
_DEPTH = 2
# Number of encoded runs that are decoded. Further ones are noise to a judge too.
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
# Four or more single letters, or runs of letters with signs between them.
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
    flat = unicodedata.normalize("NFKD", _HIDDEN.sub("", text).translate(_SQUARED))
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


def _respelled(plain: str) -> Iterator[str]:
    respelled = plain.translate(_LOOKALIKES) if _MIXED.search(plain) else plain
    if respelled != plain:
        yield respelled
    if _LEET.search(respelled):
        yield respelled.translate(_FIGURES)
    if "\u202e" in plain or "snoitcurtsni" in plain or "erongi" in plain or "erocs" in plain:
        yield plain[::-1]


def _opened(text: str) -> Iterator[str]:
    """Yield encoded parts of a text whose decoded form is readable."""
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
        bits = run.replace(" ", "")
        octets = [bits[start : start + 8] for start in range(0, len(bits) - 7, 8)]
        numbers = run.replace(",", " ").split() if encoding == "decimal" else octets
        return bytes(int(number, 10 if encoding == "decimal" else 2) for number in numbers).decode("utf-8")
    except (binascii.Error, ValueError):
        return None


def _is_readable(text: str) -> bool:
    seen = sum(letter.isalnum() or letter.isspace() or letter in ".,:;!?'\"-=+/()" for letter in text)
    return len(text) >= _SHORTEST_READABLE and seen >= 0.9 * len(text)


_SQUARED = {start + index: chr(97 + index) for start in (0x1F130, 0x1F150, 0x1F170) for index in range(26)}

# Words that together mean an attack, and patterns that do so alone.
_PATTERNS = tomllib.loads((Path(__file__).parent / "data" / "injection.toml").read_text(encoding="utf-8"))
_TOGETHER: list[tuple[frozenset[str], int]] = [(frozenset(words), reach) for words, reach in _PATTERNS["together"]]
_FRAMES, _ALWAYS, _RUNS = (tuple[str, ...](_PATTERNS[name]) for name in ("frames", "always", "runs"))
# "At nine" is an hour and not a score, and "never forget" does not ask to drop anything.
_HARMLESS = re2.compile(
    r"\b(?:at|by|until|till|past|around|before|after|since|um|ab|alle|las|às|as|o) (?:9|nine|neun|nove|nueve)\b"
    r"|\b(?:do not|don't|dont|never) (?:forget|ignore|skip)\b"
)
_OVERRIDES = "\u202d\u202e"
# Joiners in emoji and in Arabic or Indic words are ordinary; hidden runs between Latin letters are not.
_HIDDEN_IN_WORD = re2.compile(r"[A-Za-z][\x{ad}\x{180e}\x{200b}-\x{200d}\x{2060}-\x{2064}\x{feff}]+[A-Za-z]")
# A flag is a black flag, letters as tags, and a cancel tag.
_TAGS = re2.compile(r"[\x{e0020}-\x{e007e}]+\x{e007f}?")


def hides(text: str) -> bool:
    """Whether a text holds characters that hide words from people, or reorder them."""
    if text.isascii():
        return False
    if any(sign in text for sign in _OVERRIDES) or _HIDDEN_IN_WORD.search(text):
        return True
    return any(not run.endswith("\U000e007f") or len(run) > 8 for run in _TAGS.findall(text))


def matches(plain: str) -> bool:
    """Whether a folded text shows a known pattern of an attack on a judge."""
    encoded = _HARMLESS.sub(b" ", plain.encode("utf-8"))
    if any(pattern.search(encoded) for pattern in _compiled(_FRAMES)) or _means(encoded):
        return True
    run = "".join(filter(str.isalnum, plain))
    # Written letter by letter, or all in one.
    patterns = (*_ALWAYS, *_RUNS) if _SPACED.search(plain) or _LONG_RUN.search(plain) else _ALWAYS
    return any(pattern.search(run) for pattern in _compiled(patterns))


def _means(encoded: bytes) -> bool:
    """Whether all meanings of a rule occur near each other, each in a separate word."""
    hits = sorted((match.start(), name) for name, pattern in _concepts().items() for match in pattern.finditer(encoded))
    last: dict[str, tuple[int, ...]] = {}
    for place, name in hits:
        # A word may have two meanings: the previous place is kept, so that each meaning finds a separate word.
        last[name] = (*last.get(name, ())[-1:], place)
        for meanings, reach in _TOGETHER:
            if name in meanings and meanings <= last.keys() and _near([last[item] for item in meanings], place - reach):
                return True
    return False


def _near(places: Iterable[tuple[int, ...]], earliest: int) -> bool:
    return any(min(chosen) >= earliest and len(set(chosen)) == len(chosen) for chosen in itertools.product(*places))


@cache
def _concepts() -> dict[str, re2._Regexp]:
    words = tomllib.loads((Path(__file__).parent / "data" / "injection_words.toml").read_text(encoding="utf-8"))
    return {name: re2.compile("|".join(map(_stem, listed.split()))) for name, listed in words.items()}


def _stem(word: str) -> str:
    whole = word.endswith("_")
    plain = folded(word.rstrip("_").replace("~", " "))
    pattern = re.escape(plain).replace(r"\ ", r"[\s,.:'-]{1,3}")
    start = r"\b" if plain[:1].isascii() and plain[:1].isalnum() else ""
    # RE2 knows the borders of ASCII words only.
    end = r"\b" if whole and plain[-1:].isascii() else ""
    return start + pattern + end


@cache
def _compiled(patterns: tuple[str, ...]) -> tuple[re2._Regexp, ...]:
    options = re2.Options()
    options.dot_nl = True
    return tuple(re2.compile(pattern, options) for pattern in patterns)


# Keeps the cache below tens of megabytes.
_LONGEST_REMEMBERED = 5_000


def reads_as_injection(text: str) -> bool:
    """Whether a message seems to be written for the judge. A hint only: it errs both ways and never changes a score.

    All of the text is read, in time linear in its length.
    """
    return _read(text) if len(text) <= _LONGEST_REMEMBERED else _read.__wrapped__(text)


@lru_cache(maxsize=4096)
def _read(text: str) -> bool:
    text = storable(text)
    return hides(text) or any(matches(form) for form in dict.fromkeys(forms(text)))


@lru_cache(maxsize=256)
def suspicious_entries(trajectory: Trajectory) -> tuple[str, ...]:
    """Return the outside ids of the entries that read as an injection, names included, in order."""
    said = ((item.message_id, (item.text, item.speaker, item.channel, item.recipient)) for item in trajectory.entries)
    return tuple(message_id for message_id, texts in said if any(map(reads_as_injection, filter(None, texts))))
