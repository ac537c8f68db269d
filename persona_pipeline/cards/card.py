"""A character card: what of it is a persona, what it calls the character, and how it lets the character speak."""

import copy
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from persona_pipeline.documents import JsonError, strict_json
from persona_pipeline.world.canonical import storable

V2, V3 = "chara_card_v2", "chara_card_v3"
# What a card of the first version calls a field, and what the tools before it did.
_OLDER = {
    "name": "char_name",
    "description": "char_persona",
    "scenario": "world_scenario",
    "mes_example": "example_dialogue",
}
_USER = "the user"
_MACRO = re.compile(r"\{\{(char|user)\}\}|<(bot|user)>", re.IGNORECASE)
_SPEAKER = re.compile(r"\s*(\{\{char\}\}|\{\{user\}\}|<bot>|<user>|[^\s:][^:\n]{0,63}):[ \t]*(.*)", re.IGNORECASE)
_OWN = ("{{char}}", "<bot>")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
# What a persona's text is made of, each with how it is introduced.
_PARTS = (("description", ""), ("personality", "Personality: "), ("scenario", "Scenario: "))


@dataclass(frozen=True)
class Card:
    """A card as it was written. ``data`` is all of it, whatever keys it has."""

    data: Mapping[str, Any]

    @classmethod
    def parse(cls, text: str) -> "Card":
        """Read the JSON of a card.

        Raises:
            ValueError: it is no card, and why.
        """
        try:
            data = strict_json(text)
        except JsonError as error:
            raise ValueError(f"is not JSON ({error.msg} at line {error.lineno})") from None
        if not isinstance(data, dict):
            raise ValueError("is no character card: it is not an object")
        card = cls(data)
        if not card.name:
            raise ValueError("is no character card: it has no name")
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
        return 3 if spec == V3 else 2 if self._fields is not self.data else 1

    @property
    def _fields(self) -> Mapping[str, Any]:
        inner = self.data.get("data")
        return inner if isinstance(inner, dict) else self.data

    def field(self, name: str) -> str:
        """Return a field's text; empty where it is not there, or no text."""
        value = self._fields.get(name)
        if value in (None, "") and name in _OLDER:
            value = self._fields.get(_OLDER[name])
        return value if isinstance(value, str) else ""

    @property
    def name(self) -> str:
        """What the character is called, in characters that a database takes."""
        return " ".join(storable(self.field("name")).split())

    @property
    def called(self) -> str:
        """What ``{{char}}`` stands for: the nickname where there is one."""
        return " ".join(storable(self.field("nickname")).split()) or self.name

    @property
    def persona(self) -> str:
        """Description, personality and scenario as one text, names filled in; empty where the card has none of them."""
        parts = ((opening, self.filled(self.field(name)).strip()) for name, opening in _PARTS)
        return "\n\n".join(opening + text for opening, text in parts if text)

    def filled(self, text: str) -> str:
        """Return a text with names for ``{{char}}`` and ``{{user}}``, each once; other macros stay as they are."""
        names = {"char": self.called, "bot": self.called, "user": _USER}
        return _MACRO.sub(lambda match: names[(match[1] or match[2]).lower()], storable(text))

    def examples(self) -> list[list[str]]:
        """Return what the character says in ``mes_example``, by conversation; what others say is left out."""
        found = []
        for block in re.split(r"<START>", self.field("mes_example"), flags=re.IGNORECASE):
            said: list[list[str]] = []
            own = False
            for line in block.splitlines():
                if match := _SPEAKER.match(line):
                    speaker = match[1].strip()
                    own = speaker.lower() in _OWN or speaker in (self.name, self.called)
                    if own:
                        said.append([match[2]])
                elif own:
                    said[-1].append(line)
            texts = [text for lines in said if (text := self.filled("\n".join(lines)).strip())]
            if texts:
                found.append(texts)
        return found

    def changed(self, name: str, persona: str) -> "Card":
        """Return the card of a persona that was edited since; the card itself where nothing was.

        An edited text stands in ``description``: nobody knows which part of it is whose.
        """
        values = {"name": name} if name != self.name else {}
        if persona != self.persona:
            values |= {"description": persona, "personality": "", "scenario": ""}
        if not values:
            return self
        data = copy.deepcopy(dict(self.data))
        inner = data.get("data")
        for fields in (data, inner) if isinstance(inner, dict) else (data,):
            # Some write the first version's fields beside the second's: those say the same.
            own = values if fields is inner or self.version == 1 else {k: v for k, v in values.items() if k in fields}
            fields.update(own)
            for key in own:
                fields.pop(_OLDER.get(key, ""), None)
        return Card(data)

    def as_version_2(self) -> "Card":
        """Return the same for programs that know no third version."""
        return Card({**self.data, "spec": V2, "spec_version": "2.0"})

    def text(self) -> str:
        """Return the card's JSON, letters of any script as themselves."""
        text = json.dumps(self.data, ensure_ascii=False, allow_nan=False, indent=2)
        return _LONE_SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", text) + "\n"
