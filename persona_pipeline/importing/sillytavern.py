"""Chats of SillyTavern: JSON lines, a header and then a message each."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import takewhile
from pathlib import PurePath
from typing import Any, ClassVar

from persona_pipeline.base.documents.json import rfc3339
from persona_pipeline.importing.base import Found, Importer, ReadOptions, Skipped, Source, object_of, spoken
from persona_pipeline.importing.records import each_record, first_records, records
from persona_pipeline.importing.times import Times

_HEADER = ("chat_metadata", "user_name", "character_name", "create_date")
_UNUSED = ("", "unused", None)
_MACRO = re.compile(r"\{\{(char|user)\}\}|<(bot|user)>", re.IGNORECASE)
_LONGEST_TIME, _FAR = 64, 1e15
_SYSTEM = "SillyTavern System"
_MERIDIEM = re.compile(r"\w{3,}\s+\d{1,2},\s*\d{4}\s+\d{1,2}:\d{2}\s*[ap]m", re.IGNORECASE)
_HUMANIZED = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})\s?@(\d{1,2})h\s?(\d{1,2})m\s?(\d{1,2})s(?:\s?(\d{1,3})ms)?", re.IGNORECASE
)
# Times to the minute leave the order open, which is the file's; a later line may be this much earlier.
_SLACK, _STEP = timedelta(hours=1), timedelta(milliseconds=1)


class SillyTavernChats(Importer):
    """A chat a file, with one character or a group; of a message that was swiped, the text that was kept."""

    name: ClassVar[str] = "sillytavern"
    about: ClassVar[str] = "chats of SillyTavern: JSON lines with name, is_user, mes, send_date"

    def recognises(self, source: Source) -> bool:
        found = first_records(source)[:2]
        return any("mes" in record and "is_user" in record for record in found) or (
            bool(found) and sum(key in found[0] for key in _HEADER) > 1
        )

    def rows(self, file: Source, options: ReadOptions) -> Iterator[Found]:
        self.require_no_fields(options)
        lines = list(records(file))
        items = [item for _, item in lines if isinstance(item, dict)]
        chat, shared = _Chat.of(PurePath(file.name).stem, items), _shared(file, items)

        def read(line: int, item: Mapping[str, Any]) -> list[Found]:
            if "mes" not in item and any(key in item for key in _HEADER):
                return [Skipped(line, "header")]
            # Skipped messages count for the ids and times of later ones.
            chat.place += 1
            found = chat.found(line, item, options)
            return [Skipped(line, "said in the main chat") if chat.place <= shared else found]

        return each_record(lines, read)


def _shared(file: Source, items: list[dict[str, Any]]) -> int:
    """Return how many messages a branch or checkpoint shares with the beginning of its main chat, a file next to it."""
    main = object_of(items[0].get("chat_metadata")).get("main_chat") if items else None
    if not isinstance(main, str) or PurePath(main).name != main:
        return 0
    path = file.path.with_name(f"{main}.jsonl")
    if path == file.path or not path.is_file():
        return 0
    others = [item for _, item in records(Source(path, main)) if isinstance(item, dict)]
    both = zip(_as_said(items), _as_said(others), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], both))


def _as_said(items: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [tuple(item.get(key) for key in ("name", "mes", "send_date")) for item in items if "mes" in item]


@dataclass
class _Chat:
    name: str
    key: str
    character: str
    user: str
    # Swipes before the user first spoke are other greetings of the card.
    asked: bool = False
    place: int = 0
    before: datetime | None = field(default=None)

    @classmethod
    def of(cls, name: str, items: list[dict[str, Any]]) -> "_Chat":
        header = items[0] if items and "mes" not in items[0] else {}
        named: dict[bool, Any] = {True: header.get("user_name"), False: header.get("character_name")}
        for is_user in named:
            if named[is_user] in _UNUSED or not isinstance(named[is_user], str):
                said = (item.get("name") for item in items if "mes" in item and bool(item.get("is_user")) is is_user)
                named[is_user] = next((name for name in said if isinstance(name, str)), "")
        own = header.get("character_name")
        folder = own if isinstance(own, str) and own not in _UNUSED else ""
        return cls(name, f"{folder}:{name}", named[False], named[True])

    def found(self, line: int, item: Mapping[str, Any], options: ReadOptions) -> Found:
        speaker, text = item.get("name"), item.get("mes")
        if not isinstance(text, str) or not isinstance(speaker, str):
            raise ValueError("is no message: name and mes must be texts")
        if item.get("is_system") and (speaker == _SYSTEM or object_of(item.get("extra")).get("type")):
            return Skipped(line, "system note")
        if not text.strip():
            return Skipped(line, "message without text")
        moment = self._time(item.get("send_date"), options)
        beside = {key: value for key, value in item.items() if key not in ("name", "mes", "swipes", "swipe_info")}
        self.asked = self.asked or bool(item.get("is_user"))
        if self.asked and "swipes" in item:
            beside["swiped_by"] = self.user or "user"
        if isinstance(swipes := item.get("swipes"), list):
            beside["swipes"] = [self._filled(other, item) if isinstance(other, str) else other for other in swipes]
        beside |= {"swipe_info": item["swipe_info"]} if "swipe_info" in item else {}
        values = {
            **beside, "id": f"sillytavern:{self.key}:{self.place}", "agent_id": speaker,
            "channel": self.name, "recipient": None, "run_id": None, "text": self._filled(text, item),
            "created_at": rfc3339(moment, exact=True),
        }  # fmt: skip
        return spoken(line, values, "message without text")

    def _time(self, sent: Any, options: ReadOptions) -> datetime:
        if sent in (None, "") and options.starting is not None:
            moment = options.starting + timedelta(seconds=self.place - 1)
        else:
            moment = sent_at(sent)
        if self.before is not None and timedelta() <= self.before - moment <= _SLACK:
            moment = self.before + _STEP
        self.before = moment
        return moment

    def _filled(self, text: str, item: Mapping[str, Any]) -> str:
        """Return a text with names for ``{{char}}``, ``{{user}}``, ``<BOT>`` and ``<USER>``; an empty name fills nothing."""
        character = self.character if item.get("is_user") else str(item["name"])
        names = {"char": character, "bot": character, "user": self.user}
        return _MACRO.sub(lambda match: names[(match[1] or match[2]).lower()] or match[0], text)


def sent_at(sent: Any) -> datetime:
    """Return the time of a ``send_date`` (UTC without an offset); ValueError: SillyTavern never wrote one like it."""
    text = str(int(sent) if isinstance(sent, float) and abs(sent) < _FAR else sent).strip()[:_LONGEST_TIME]
    text = _HUMANIZED.sub(
        lambda part: f"{part[1]}-{part[2]}-{part[3]} {part[4]}:{part[5]}:{part[6]}.{part[7] or 0:0>3}", text
    )
    try:
        match = _MERIDIEM.search(text)
        return Times().read(match[0] if match else text)
    except ValueError:
        said = f"send_date {str(sent)[:40]!r} is no time that SillyTavern writes"
        raise ValueError(f"{said}; correct it, or give --starting where it has none") from None
