"""Character cards: what of a card is a persona, and ``cards/<agent_id>.<ending>``, the card as it came, byte by byte."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from persona_pipeline.base.documents.json import (
    JsonError,
    decoded_text,
    is_shallow,
    strict_json,
    visible,
    write_atomically,
)
from persona_pipeline.base.documents.yaml import to_yaml
from persona_pipeline.base.errors import ConfigError, Problem
from persona_pipeline.world.cards.images import (
    KEYWORDS,
    MOST_CARD,
    is_charx,
    is_png,
    read_charx,
    read_png,
    write_charx,
    write_png,
)
from persona_pipeline.world.names import read_names, same_name
from persona_pipeline.world.personas import PERSONAS, agent_id_of, check_agent_id, find_yaml, is_name, load_persona

V2, V3 = "chara_card_v2", "chara_card_v3"
# What a card of the first version calls a field, and what the tools before it did.
_OLDER = {
    "name": "char_name",
    "description": "char_persona",
    "scenario": "world_scenario",
    "mes_example": "example_dialogue",
}
# Pictures that may hold a card which is not read, by how they begin.
_PICTURES = {b"RIFF": "WebP", b"\xff\xd8\xff": "JPEG", b"GIF8": "GIF"}
_USER = "the user"
_DEEPEST, _LONGEST_NAME = 100, 256
_MACRO = re.compile(r"\{\{(char|user)\}\}|<(bot|user)>", re.IGNORECASE)
# What a persona's text is made of, each with how it is introduced.
_PARTS = (("persona", ""), ("description", ""), ("personality", "Personality: "), ("scenario", "Scenario: "))


@dataclass(frozen=True)
class Card:
    """A card as it was written. ``data`` is all of it, whatever keys it has."""

    data: Mapping[str, Any]

    @classmethod
    def parse(cls, text: str) -> "Card":
        """Read the JSON of a card; ValueError says why it is none."""
        try:
            data = strict_json(text)
        except JsonError as error:
            raise ValueError(f"is not JSON ({error.msg} at line {error.lineno})") from None
        if not isinstance(data, dict):
            raise ValueError("is no character card: it is not an object")
        card = cls(data)
        if not is_shallow(data, _DEEPEST):
            raise ValueError(f"is nested deeper than {_DEEPEST}")
        if not card.name:
            raise ValueError("is no character card: it has no name")
        if len(card.name) > _LONGEST_NAME:
            raise ValueError(f"has a name longer than {_LONGEST_NAME} characters")
        return card

    @classmethod
    def of_persona(cls, name: str, persona: str) -> "Card":
        """Return a new card of the second version, which every program reads."""
        texts = ("personality", "scenario", "first_mes", "mes_example", "creator_notes", "system_prompt")
        data = {
            "name": name, "description": persona, **dict.fromkeys(texts, ""), "post_history_instructions": "",
            "alternate_greetings": [], "tags": [], "creator": "", "character_version": "", "extensions": {},
        }  # fmt: skip
        return cls({"spec": V2, "spec_version": "2.0", "data": data})

    @property
    def version(self) -> int:
        """1, 2 or 3."""
        spec = self.data.get("spec")
        return 3 if spec == V3 else 2 if self.fields is not self.data else 1

    @property
    def fields(self) -> Mapping[str, Any]:
        """What describes the character, by key."""
        inner = self.data.get("data")
        return inner if isinstance(inner, dict) else self.data

    def field(self, name: str) -> str:
        """Return a field's text; empty where it is not there, or no text."""
        value = self.fields.get(name)
        if value in (None, "") and name in _OLDER:
            value = self.fields.get(_OLDER[name])
        return value if isinstance(value, str) else ""

    @property
    def name(self) -> str:
        """What the character is called; TinyTroupe says it in the persona."""
        inner = self.fields.get("persona")
        own = inner.get("name") if isinstance(inner, dict) else None
        return " ".join((self.field("name") or (own if isinstance(own, str) else "")).split())

    @property
    def called(self) -> str:
        """The text for ``{{char}}``: the nickname where there is one."""
        return " ".join(self.field("nickname").split()) or self.name

    @property
    def persona(self) -> str:
        """Persona, description, personality and scenario as one text, names filled in.

        Empty where the card has none of them, and where it has a scenario alone: the character may be described in an unknown form.
        """
        parts = [(words, self.field(name) or _described(self.fields.get(name))) for name, words in _PARTS]
        texts = [(opening, self.filled(text).strip()) for opening, text in parts]
        if not any(text for _, text in texts[:-1]):
            return ""
        return "\n\n".join(opening + text for opening, text in texts if text)

    def filled(self, text: str) -> str:
        """Return a text with names for ``{{char}}`` and ``{{user}}``, each once; other macros stay as they are."""
        names = {"char": self.called, "bot": self.called, "user": _USER}
        return _MACRO.sub(lambda match: names[(match[1] or match[2]).lower()], text)

    def changed(self, name: str, persona: str) -> "Card":
        """Return the card of a persona that was edited since; the card itself without an edit.

        An edited text goes into ``description``: its parts are unknown.
        """
        values = {"name": name} if name != self.name else {}
        if persona != self.persona:
            values |= {"description": persona, "personality": "", "scenario": ""}
        if not values:
            return self
        data = dict(self.data)
        inner = data.get("data")
        if isinstance(inner, dict):
            inner = data["data"] = dict(inner)
        for fields in (data, inner) if isinstance(inner, dict) else (data,):
            # Some programs write the first version's fields next to the second's.
            own = values if fields is inner or self.version == 1 else {k: v for k, v in values.items() if k in fields}
            fields.update(own)
            for key in own:
                fields.pop(_OLDER.get(key, ""), None)
            if "description" in own and fields.pop("persona", None) is not None:
                fields["name"] = name
        return Card(data)

    def text(self) -> str:
        """Return the card's JSON, letters of any script as themselves."""
        return json.dumps(self.data, ensure_ascii=False, allow_nan=False, indent=2) + "\n"


def _described(persona: Any) -> str:
    """Return a persona as a text: a list, that of Agnai (a text, or attributes by kind) or TinyTroupe (anything by name)."""
    if not isinstance(persona, dict):
        return _listed(persona) if isinstance(persona, str | list) else ""
    attributes = persona["attributes"] if isinstance(persona.get("attributes"), dict) else persona
    if persona.get("kind") == "text":
        text = attributes.get("text") or ""
        return "\n".join(map(_listed, text if isinstance(text, list) else [text]))
    lines = (f"{key}: {_listed(value)}" for key, value in attributes.items() if value and key not in ("kind", "name"))
    return "\n".join(lines)


def _listed(value: Any) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{key}: {_listed(item)}" for key, item in value.items() if item)
    return ", ".join(map(_listed, value)) if isinstance(value, list) else str(value)


CARDS = "cards"
_LARGEST = 200_000_000
_LONGEST_PERSONA = 500_000


class CardFormat(StrEnum):
    """What a card is written as."""

    JSON = "json"
    PNG = "png"
    CHARX = "charx"


@dataclass(frozen=True)
class CardFile:
    """A card and its file."""

    card: Card
    format: CardFormat
    data: bytes

    def written(self, format: CardFormat, image: bytes | None = None) -> bytes:
        """Return the card in a format; ``image``: a picture for PNG; ValueError: it is missing, or not a PNG."""
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
        # The same for programs that know no third version.
        older = Card({**self.card.data, "spec": V2, "spec_version": "2.0"}).text().encode("utf-8")
        return write_png(picture, dict(zip(KEYWORDS, (text, older), strict=True)))


def read_card(path: Path) -> CardFile:
    """Read a card under any file name.

    ConfigError: it is not a card, or too large: 8 MB of card, 200 MB of file, 500 MB unpacked.
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
    """Return the card of a file's bytes; ValueError says why it is none."""
    if is_png(data):
        found, raw = CardFormat.PNG, read_png(data)
    elif is_charx(data):
        found, raw = CardFormat.CHARX, read_charx(data)
    elif len(data) > MOST_CARD:
        raise ValueError(f"is neither a PNG nor CHARX, and larger than {MOST_CARD:,} bytes")
    else:
        found, raw = CardFormat.JSON, data
    if found is CardFormat.JSON and (
        kind := next((_PICTURES[head] for head in _PICTURES if data.startswith(head)), None)
    ):
        raise ValueError(f"is a {kind}, and cards are read from PNG, CHARX and JSON; save it as one of these")
    try:
        text = decoded_text(raw)
    except UnicodeDecodeError as error:
        kind = "is neither JSON, PNG nor CHARX" if found is CardFormat.JSON else "has a card that is not UTF-8"
        raise ValueError(f"{kind} (byte {error.start})") from None
    return CardFile(Card.parse(text), found, data)


def import_card(root: Path, path: Path, agent_id: str | None = None) -> tuple[str, list[Path]]:
    """Write a persona file from a card and keep the card; nothing is overwritten.

    Returns the agent's id and the files. Raises ``ConfigError``: the card cannot be read or does not describe the character, or a
    file exists.
    """
    file = read_card(path)
    card = file.card
    agent_id = check_agent_id(agent_id) if agent_id else agent_id_of(card.name)
    if not agent_id:
        said = f"is of {card.name[:40]!r}, whose letters make no id; name the agent with --agent"
        raise ConfigError(Problem(said, str(path)))
    if not card.persona:
        said = "says nothing of the character: persona, description and personality are empty or in a form that is not known"
        raise ConfigError(Problem(f"{said}; it has {', '.join(map(visible, card.fields))}", str(path)))
    if len(card.persona) > _LONGEST_PERSONA:
        raise ConfigError(Problem(f"describes the character in more than {_LONGEST_PERSONA:,} characters", str(path)))
    there = [*filter(None, [find_yaml(root / PERSONAS, agent_id)]), *_stored(root, agent_id)]
    if there:
        raise ConfigError(Problem("is there already; remove it, or name another agent with --agent", str(there[0])))
    taken = {
        same_name(name) for item in read_names(root).values() for name in (item.agent_id, *dict(item.aliases or ()))
    }
    names = dict.fromkeys(
        name for name in (card.name, card.called) if name != agent_id and is_name(name) and same_name(name) not in taken
    )
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
    """A card to write. ``notes``: parts that are missing or moved."""

    data: bytes
    format: CardFormat
    notes: tuple[str, ...] = ()


def export_card(root: Path, agent_id: str, format: CardFormat | None = None, image: Path | None = None) -> Exported:
    """Return an agent's card: the one of its persona with later edits, or a new one.

    Without an edit, in the card's own format, the bytes are the same. Raises ``ConfigError``: the agent has no persona file, or its
    card or the picture cannot be read.
    """
    persona = load_persona(root, agent_id)
    stored = _stored(root, agent_id)
    new = Card.of_persona(persona.display_name, persona.persona)
    kept = read_card(stored[0]) if stored else CardFile(new, CardFormat.JSON, b"")
    try:
        picture = image.read_bytes() if image else None
    except OSError as error:
        raise ConfigError(Problem(f"cannot be read ({error.strerror}); check the path", str(image))) from error
    card = kept.card.changed(persona.display_name, persona.persona)
    if stored and card is kept.card and picture is None and format in (None, kept.format):
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


def _stored(root: Path, agent_id: str) -> list[Path]:
    paths = (root / CARDS / f"{agent_id}.{format}" for format in CardFormat)
    return [path for path in paths if path.is_file()]


def card_notes(root: Path, agent_id: str) -> Iterator[str]:
    """Yield what of an agent's card its persona has no place for, in words."""
    card, aliases = read_card(_stored(root, agent_id)[0]).card, load_persona(root, agent_id).aliases
    for name in dict.fromkeys((card.name, card.called)):
        if name != agent_id and name not in aliases:
            yield f"messages under {name!r} are not its own: that is another agent's name"
    for name in ("system_prompt", "post_history_instructions"):
        if card.field(name).strip():
            yield f"{name} is kept in the card and not in the persona"
