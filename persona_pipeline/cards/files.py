"""Files of cards, and personas made of them: ``cards/<agent_id>.<ending>`` is the card as it came, byte by byte."""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path

from persona_pipeline.atomic_files import write_atomically
from persona_pipeline.cards.card import Card
from persona_pipeline.cards.charx import is_charx, read_charx, write_charx
from persona_pipeline.cards.png import KEYWORDS, MOST_CARD, is_png, read_png, write_png
from persona_pipeline.documents.yaml_text import to_yaml
from persona_pipeline.errors import ConfigError, Problem
from persona_pipeline.world.files import check_agent_id, find_yaml, is_name
from persona_pipeline.world.models import Message
from persona_pipeline.world.personas import PERSONAS, load_persona

CARDS = "cards"
_LARGEST = 200_000_000
_LONGEST_PERSONA = 500_000
_BEGINNING_OF_TIME = datetime(1970, 1, 1, tzinfo=UTC)


class CardFormat(StrEnum):
    """What a card is written as."""

    JSON = "json"
    PNG = "png"
    CHARX = "charx"


@dataclass(frozen=True)
class CardFile:
    """A card, and the file it stood in."""

    card: Card
    format: CardFormat
    data: bytes

    def written(self, format: CardFormat, image: bytes | None = None) -> bytes:
        """Return the card in a format.

        Args:
            image: the picture of a PNG; None: the one it came in.

        Raises:
            ValueError: there is no picture, or it is no PNG.
        """
        text = self.card.text().encode("utf-8")
        if format is CardFormat.JSON:
            return text
        if format is CardFormat.CHARX:
            return write_charx(text, self.data if self.format is CardFormat.CHARX else None)
        picture = image if image is not None else self.data if self.format is CardFormat.PNG else None
        if picture is None:
            raise ValueError("a card in a PNG needs a picture; name one with --image")
        if self.card.version < 3:
            return write_png(picture, {b"chara": text})
        return write_png(
            picture, dict(zip(KEYWORDS, (text, self.card.as_version_2().text().encode("utf-8")), strict=True))
        )


def read_card(path: Path) -> CardFile:
    """Read a card, whatever the file is called.

    Raises:
        ConfigError: it is no card, or larger than it may be: 8 MB of card, 200 MB of file, 500 MB unpacked.
    """
    try:
        if path.stat().st_size > _LARGEST:
            raise ValueError(f"is larger than {_LARGEST:,} bytes")
        return parse_card(path.read_bytes())
    except OSError as error:
        raise ConfigError(Problem(f"cannot be read ({error.strerror}); check the path", str(path))) from error
    except ValueError as error:
        raise ConfigError(Problem(str(error), str(path))) from None


def parse_card(data: bytes) -> CardFile:
    """Return the card of a file's bytes.

    Raises:
        ValueError: it is none, and why.
    """
    if is_png(data):
        found, raw = CardFormat.PNG, read_png(data)
    elif is_charx(data):
        found, raw = CardFormat.CHARX, read_charx(data)
    elif len(data) > MOST_CARD:
        raise ValueError(f"is neither a PNG nor CHARX, and larger than {MOST_CARD:,} bytes")
    else:
        found, raw = CardFormat.JSON, data
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        kind = "is neither JSON, PNG nor CHARX" if found is CardFormat.JSON else "has a card that is not UTF-8"
        raise ValueError(f"{kind} (byte {error.start})") from None
    return CardFile(Card.parse(text), found, data)


def import_card(root: Path, path: Path, agent_id: str | None = None) -> tuple[str, list[Path]]:
    """Write a persona file from a card, and the card beside it; nothing is overwritten.

    Returns:
        The agent's id, and the files.

    Raises:
        ConfigError: the card cannot be read or says nothing of the character, or a file is there already.
    """
    file = read_card(path)
    card = file.card
    agent_id = check_agent_id(agent_id) if agent_id else _agent_id(card.name, path)
    if not card.persona:
        raise ConfigError(
            Problem("says nothing of the character: description, personality and scenario are empty", str(path))
        )
    if len(card.persona) > _LONGEST_PERSONA:
        raise ConfigError(Problem(f"describes the character in more than {_LONGEST_PERSONA:,} characters", str(path)))
    there = [*filter(None, [find_yaml(root / PERSONAS, agent_id)]), *_stored(root, agent_id)]
    if there:
        raise ConfigError(Problem("is there already; remove it, or name another agent with --agent", str(there[0])))
    names = dict.fromkeys(name for name in (card.name, card.called) if name != agent_id and is_name(name))
    data = {"agent_id": agent_id, "display_name": card.name, "persona": card.persona}
    persona, kept = root / PERSONAS / f"{agent_id}.yaml", root / CARDS / f"{agent_id}.{file.format}"
    head = "# yaml-language-server: $schema=../schemas/persona.json\n"
    head += f"# From a character card, which is kept in {CARDS}/{kept.name}.\n"
    kept.parent.mkdir(exist_ok=True)
    write_atomically(kept, file.data)
    write_atomically(persona, head + to_yaml({**data, **({"aliases": list(names)} if names else {})}))
    try:
        load_persona(root, agent_id)
    except ConfigError:
        for written in (kept, persona):
            written.unlink()
        raise
    return agent_id, [persona, kept]


@dataclass(frozen=True)
class Exported:
    """A card to be written. ``notes``: what is not in it, or not where it was."""

    data: bytes
    format: CardFormat
    notes: tuple[str, ...] = ()


def export_card(root: Path, agent_id: str, format: CardFormat | None = None, image: Path | None = None) -> Exported:
    """Return an agent's card: the one its persona came from with what was edited since, or a new one.

    Where nothing was edited and the format is the card's own, it is the same bytes.

    Raises:
        ConfigError: the agent has no persona file, its card or the picture cannot be read.
    """
    persona = load_persona(root, agent_id)
    stored = _stored(root, agent_id)
    kept = read_card(stored[0]) if stored else None
    picture = _picture(image) if image else None
    if kept is None:
        kept = CardFile(Card.of_persona(persona.display_name, persona.persona), CardFormat.JSON, b"")
        format = format or CardFormat.JSON
        card = kept.card
    else:
        card = kept.card.changed(persona.display_name, persona.persona)
        if card is kept.card and picture is None and format in (None, kept.format):
            return Exported(kept.data, kept.format)
    format = format or kept.format
    notes = []
    if stored and persona.persona != kept.card.persona:
        notes.append("the persona was edited: all of it stands in description; personality and scenario are empty")
    if kept.format is CardFormat.CHARX and format is not CardFormat.CHARX:
        notes.append(f"assets stay in {stored[0].name}: {format} has no place for them")
    try:
        return Exported(CardFile(card, kept.format, kept.data).written(format, picture), format, tuple(notes))
    except ValueError as error:
        raise ConfigError(Problem(str(error), str(image) if image else None)) from None


def example_messages(root: Path, agent_id: str, since: datetime | None = None) -> list[Message]:
    """Return what an agent's card lets it say in examples, as made-up messages before all others; none where it has no card.

    Args:
        since: they are dated from then on.
    """
    stored = _stored(root, agent_id)
    if not stored:
        return []
    start, found = since or _BEGINNING_OF_TIME, []
    for number, texts in enumerate(read_card(stored[0]).card.examples(), start=1):
        for text in texts:
            moment = start + timedelta(microseconds=len(found) + 1)
            name = f"{CARDS}/{stored[0].name}#{number}.{len(found) + 1}"
            found.append(Message(name, agent_id, text, moment, f"example {number}", synthetic=True))
    return found


def _stored(root: Path, agent_id: str) -> list[Path]:
    paths = (root / CARDS / f"{agent_id}.{format}" for format in CardFormat)
    return [path for path in paths if path.is_file()]


def _picture(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(Problem(f"cannot be read ({error.strerror}); check the path", str(path))) from error


def _agent_id(name: str, path: Path) -> str:
    """Return an id made of a name's Latin letters and digits."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode("ascii").lower()
    found = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:64].strip("-")
    if not found:
        raise ConfigError(
            Problem(f"is of {name[:40]!r}, whose letters make no id; name the agent with --agent", str(path))
        )
    return found


def card_notes(card: Card) -> Iterator[str]:
    """Yield what of a card a persona has no place for, in words."""
    examples = sum(map(len, card.examples()))
    if examples:
        yield f"{examples} example message{'s' if examples > 1 else ''}: its voice is learnt from them while it has said too little"
    for name in ("system_prompt", "post_history_instructions"):
        if card.field(name).strip():
            yield f"{name} is kept in the card and not in the persona"
