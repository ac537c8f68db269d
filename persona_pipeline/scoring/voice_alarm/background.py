"""Everyday language that every voice is held against: how assistants, support desks and circulars write, in ten languages."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from persona_pipeline.base.errors import ConfigError, Problem
from persona_pipeline.scoring.text.agreement import UNKNOWN, language_of

BACKGROUND = "background"
_DATA = Path(__file__).parent / "data"
# A line that begins a section, and what a voice that comes near it is said to read like.
SECTIONS = {
    "assistant": "a stock assistant",
    "courtesy": "a support desk's courtesies",
    "corporate": "a corporate circular",
    "smalltalk": "small talk",
}
# Most people's small talk is near every character that talks like people: held against, and no change of its own.
NO_CHANGE = "smalltalk"


def languages() -> list[str]:
    """Return the codes of the languages that come with the package."""
    return sorted(path.stem for path in _DATA.glob("*.txt"))


def everyday(texts: Sequence[str], root: Path | None = None) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return the language of texts, and everyday lines in it as pairs of section and line; none where there are none.

    Args:
        root: a world's folder; what stands in its ``background/<language>.txt`` is added.

    Raises:
        ConfigError: a line of the world's file stands under no section.
    """
    language = language_of(texts)
    if language == UNKNOWN:
        return language, ()
    own = root / BACKGROUND / f"{language}.txt" if root else None
    return language, (*_packaged(language), *(_lines(own) if own and own.is_file() else ()))


@cache
def _packaged(language: str) -> tuple[tuple[str, str], ...]:
    path = _DATA / f"{language}.txt"
    return _lines(path) if path.is_file() else ()


def _lines(path: Path) -> tuple[tuple[str, str], ...]:
    found, section = [], ""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if line.removeprefix("# ") in SECTIONS and line.startswith("# "):
            section = line.removeprefix("# ")
        elif line.strip() and not section:
            known = ", ".join(f"'# {name}'" for name in SECTIONS)
            raise ConfigError(
                Problem(f"this line stands under no section; begin one with a line {known}", str(path), number)
            )
        elif line.strip():
            found.append((section, line.strip()))
    return tuple(found)
