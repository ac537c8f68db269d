"""Records of other programs, such as a helpdesk's CSV: which column holds what is given, or read from the words of its header."""

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import PurePath
from typing import Any, ClassVar

from persona_pipeline.base.documents.json import rfc3339, visible
from persona_pipeline.base.errors import ConfigError, Problem
from persona_pipeline.base.text import shortened
from persona_pipeline.importing.base import (
    Found,
    Importer,
    ReadOptions,
    Skipped,
    Source,
    TurnIds,
    as_text,
    message_row,
    value_at,
)
from persona_pipeline.importing.records import first_records, lists_in, records
from persona_pipeline.importing.times import DAY_FIRST, MONTH_FIRST, Times, UnclearOrderError, words, zone_of
from persona_pipeline.world.messages.files import FIELDS, ROLE, Row

# Characters of names of columns that are shown, and rows that are looked at to tell columns.
_LONGEST, _LOOKED_AT = 300, 200
_CAMEL, _ZONE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])"), re.compile(r"[(\[]([^()\[\]]+)[)\]]\s*$")
# Spreadsheets round long numbers: ids such as 1.23457E+11 are several messages' or tickets'.
_ROUNDED = re.compile(r"\d[.,]\d+E\+\d+")
_SPEAKING = {"agent": "assistant", "bot": "assistant", "customer": "user"}
_SILENT = {"note": "internal note", "system": "system line"}


class UnclearTableError(ConfigError):
    """It is not clear which column holds what.

    Attributes:
        columns: names of the columns. ``missing``: message fields for which a column must be named.
        dated: the column of dates that may be read in two ways; "": it is not about that.
    """

    def __init__(
        self, said: str, source: Source, columns: Sequence[str], missing: Sequence[str], dated: str = ""
    ) -> None:
        super().__init__(Problem(said, source.name))
        self.columns, self.missing, self.dated = columns, missing, dated


class NoMessagesFormatError(ConfigError):
    """A file is of no format that is known."""


@dataclass(frozen=True)
class Layout:
    """Which columns of a table hold what.

    Attributes:
        columns: name of the column by message field, or by another key of ``tables.toml``. ``given``: fields that were named.
        order: of day and month, where it is given. ``zone``: of times without one.
        flags: columns of yes or no, by what a yes says.
    """

    columns: Mapping[str, str]
    given: Collection[str] = ()
    order: str = ""
    zone: tzinfo = UTC
    flags: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, names: Sequence[str], given: Mapping[str, str], *, by_words: bool = True) -> "Layout":
        """Return what columns hold: as it is given, else as their names say it."""
        columns = {target.partition(":")[0]: name for name, target in given.items()}
        order = next((after for target in given.values() if (after := target.partition(":")[2])), "")
        left = {_plain(_without_zone(name)): name for name in reversed(names) if name not in given}
        known = words()["columns"] if by_words else {name: [name.replace("_", " ")] for name in FIELDS}
        for key, spellings in known.items():
            found = next((left[word] for word in spellings if word in left), None)
            # A column that is there twice may hold either half of what was said.
            if (
                key not in columns
                and found
                and not any(re.fullmatch(rf"{re.escape(found)} \d+", name) for name in names)
            ):
                columns[key] = found
                left = {word: name for word, name in left.items() if name != found}
        flags = (
            {key: left[word] for key in _FLAGS for word in words()["flags"][key] if word in left} if by_words else {}
        )
        match = _ZONE.search(columns.get("created_at", ""))
        return cls(columns, {*given.values()}, order, (match and zone_of(match[1])) or UTC, flags)

    def value(self, record: Mapping[str, Any], key: str) -> str:
        """Return what a record says under a field; "": nothing."""
        name = self.columns.get(key)
        value = None if name is None else value_at(record, name)
        if isinstance(value, list) and key == "text":
            value = _inline(value)
        elif key != "created_at":
            value = as_text(key, value)
        text = value if isinstance(value, str) else "" if value is None else str(value)
        return text.replace("\r\n", "\n") if key in ("text", "reply") else text.strip()


_FLAGS = ("agent", "customer", "note", "public")
_OTHER = {"agent": "customer", "customer": "agent"}


@dataclass(frozen=True)
class _Entry:
    """A record with its line, and the name of the object around it."""

    line: int
    record: Mapping[str, Any]
    around: str = ""


class Table:
    """The records of a file, and how they are read.

    Raises:
        ConfigError: the file cannot be read. UnclearTableError: which column holds what, or in which order dates are, is not clear.
    """

    def __init__(self, source: Source, options: ReadOptions) -> None:
        self.source, self.wrong, self._untold = source, list[Row](), list[Found]()
        entries: list[_Entry] = []
        for line, record in records(source, cells=()):
            if isinstance(record, ValueError):
                self.wrong.append(Row(line, record))
            else:
                entries.append(_Entry(line, record))
        is_json = source.beginning.lstrip()[:1] in ("{", "[")
        found = [
            (key, target) for key, target in options.remembered.items() if any(_has(item, key) for item in entries)
        ]
        mapped = {target.partition(":")[0] for target in options.fields.values()}
        given = {key: target for key, target in found if target.partition(":")[0] not in mapped} | dict(options.fields)
        self.entries = _within(entries, given, source) if is_json and given else entries
        self.names = list(dict.fromkeys(name for item in self.entries for name in item.record))
        self.layout = Layout.of(self.names, given, by_words=not is_json)
        self.roles = {word: kind for kind, listed in words()["roles"].items() for word in listed}
        self.roles |= {_plain(word): kind for word, kind in options.roles.items()}
        self.roles_known = any(self._role_word(item, ROLE) for item in self.entries)
        spoken = [self.layout.value(item.record, "agent_id") for item in self.entries]
        self.speakers_are_roles = all(self.roles.get(_plain(name)) in _SPEAKING for name in spoken if name)
        sides = [[bool(self.layout.value(item.record, key)) for key in _OTHER] for item in self.entries]
        self.one_side_each = bool(sides) and all(side.count(True) == 1 for side in sides)
        self._require_clear(options)
        self.times = self._times() if self.entries else Times()

    def rows(self) -> Iterator[Found]:
        """Yield what each record is."""
        yield from self.wrong
        told = list(self._told())
        said: Counter[tuple[str, datetime]] = Counter()
        ids = TurnIds()
        for item, values, moment in reversed(told) if self._newest_first(told) else told:
            # What was said in the same second stays in the order of the file.
            place = (values["channel"] or values["recipient"], moment)
            values["created_at"] = rfc3339(moment + timedelta(microseconds=said[place]), exact=True)
            said[place] += 1
            values["id"] = self._id(item, values, moment, ids)
            yield message_row(item.line, values)
        yield from self._untold

    def _told(self) -> Iterator[tuple[_Entry, dict[str, Any], datetime]]:
        """Yield what is said in records, and note what says nothing."""
        self._untold = []
        for item in self.entries:
            try:
                role = self._role(item)
                if role in _SILENT:
                    self._untold.append(Skipped(item.line, _SILENT[role]))
                    continue
                turns = [values for values in self._turns(item, role) if values["text"].strip()]
                if not turns:
                    self._untold.append(Skipped(item.line, "turn without text"))
                    continue
                moment = self._moment(item)
                for values in turns:
                    yield item, values, moment
            except ValueError as error:
                self._untold.append(Row(item.line, error))

    def _turns(self, item: _Entry, role: str) -> Iterator[dict[str, Any]]:
        record, value = item.record, self.layout.value
        channel, recipient = value(record, "channel"), value(record, "recipient")
        for text in (channel, value(record, "id")):
            if _ROUNDED.fullmatch(text):
                raise ValueError(f"{text!r} is an id that a spreadsheet has rounded; export it again as text")
        replied = value(record, "reply")
        role = role or ("customer" if "reply" in self.layout.columns else "")
        used = {*self.layout.columns.values(), *FIELDS}
        beside = {key: item for key, item in record.items() if key not in used}
        if not channel and ("recipient" not in self.layout.columns or not recipient):
            channel = item.around or PurePath(self.source.name).stem
        place = {"channel": channel or None, "recipient": None if channel else recipient}
        for text, side in ((value(record, "text"), role), (replied, "agent")):
            speaker = self._speaker(item, side) if text else ""
            said = {"role": _SPEAKING[side]} if side else {}
            yield {
                **beside,
                **said,
                **place,
                "agent_id": speaker,
                "text": text,
                "run_id": value(record, "run_id") or None,
            }
            if "reply" not in self.layout.columns:
                return

    def _speaker(self, item: _Entry, role: str) -> str:
        author = self.layout.value(item.record, "agent_id")
        is_reply = role == "agent" and "reply" in self.layout.columns
        if author and not self.speakers_are_roles and not is_reply:
            return author
        named = self.layout.value(item.record, "customer" if role == "customer" else "agent") if role else ""
        if not (named or role):
            raise ValueError("agent_id is missing")
        return named or role

    def _role(self, item: _Entry) -> str:
        """Return who wrote a record by what it says: agent, bot, customer, note, system; "": it does not say."""
        flags = {kind: self._flag(item, name) for kind, name in self.layout.flags.items()}
        if flags.get("note") or flags.get("public") is False:
            return "note"
        if (kind := self._role_word(item, "kind")) in _SILENT:
            return kind
        found = self._role_word(item, ROLE) if self.roles_known else ""
        if self.roles_known and not found:
            name, value = self.layout.columns[ROLE], self.layout.value(item.record, ROLE)
            raise ValueError(
                f"{name} {value[:40]!r} is not known; say whose it is under import: roles: in persona.yaml"
            )
        if found in ("", "message") and self.speakers_are_roles:
            found = self._role_word(item, "agent_id")
        if found in ("", "message"):
            says = [(kind, flags[kind]) for kind in ("agent", "customer") if flags.get(kind) is not None]
            found = next((kind if yes else _OTHER[kind] for kind, yes in says), "")
        if not found and self.one_side_each:
            found = next(key for key in _OTHER if self.layout.value(item.record, key))
        return found

    def _role_word(self, item: _Entry, key: str) -> str:
        return self.roles.get(_plain(self.layout.value(item.record, key)), "") if key in self.layout.columns else ""

    def _flag(self, item: _Entry, name: str) -> bool | None:
        value = _plain(str(value_at(item.record, name) if value_at(item.record, name) is not None else ""))
        return True if value in words()["flags"]["yes"] else False if value in words()["flags"]["no"] else None

    def _moment(self, item: _Entry) -> datetime:
        written = self._written(item)
        if not written:
            raise ValueError("created_at is missing")
        try:
            return self.times.read(written)
        except ValueError as error:
            raise ValueError(f"{self.layout.columns['created_at']} {error}") from None

    def _written(self, item: _Entry) -> str:
        written = self.layout.value(item.record, "created_at")
        clock = self.layout.value(item.record, "clock") if written and ":" not in written else ""
        return f"{written} {clock}".strip()

    def _times(self) -> Times:
        values, name = (
            [written for item in self.entries if (written := self._written(item))],
            self.layout.columns["created_at"],
        )
        try:
            return Times.of(values, self.layout.order, self.layout.zone)
        except UnclearOrderError as error:
            which = " or ".join(_map(name, f"created_at:{order}") for order in (DAY_FIRST, MONTH_FIRST))
            said = f"{visible(name)} {error}; say which: {which}"
            raise UnclearTableError(said, self.source, self.names, (), name) from None
        except ValueError as error:
            raise ConfigError(Problem(f"{visible(name)}: {error}", self.source.name)) from None

    def _newest_first(self, told: Sequence[tuple[_Entry, dict[str, Any], datetime]]) -> bool:
        last: dict[str, datetime] = {}
        later: Counter[bool] = Counter()
        for _, values, moment in told:
            place = values["channel"] or values["recipient"]
            if last.get(place, moment) != moment:
                later[moment > last[place]] += 1
            last[place] = moment
        return later[False] > later[True]

    def _id(self, item: _Entry, values: Mapping[str, Any], moment: datetime, ids: TurnIds) -> str:
        """Return a message's id: its program's, within the conversation, or one made of what was said by whom and when."""
        place, own = values["channel"] or values["recipient"], self.layout.value(item.record, "id")
        if own and "id" in self.layout.given:
            return own
        if own and values.get("role") == "assistant" and "reply" in self.layout.columns:
            own = f"{own}:reply"
        return (
            f"{place}:{own}"[:256]
            if own
            else ids.next(f"{place}\x1f{rfc3339(moment, exact=True)}", values["agent_id"], values["text"])
        )

    def _require_clear(self, options: ReadOptions) -> None:
        columns, missing = self.layout.columns, []
        if absent := [
            key for key in options.fields if self.entries and not any(_has(item, key) for item in self.entries)
        ]:
            said = f"there is no {absent[0]!r}; here the names are {_listed(self.names)}"
            raise UnclearTableError(said, self.source, self.names, ())
        both = "agent" in columns and "customer" in columns
        if "agent_id" not in columns and not self.roles_known and not {"agent", "customer"} & self.layout.flags.keys():
            if both and "reply" not in columns:
                missing += [] if self.one_side_each else ["agent_id"]
            elif not both and (alone := columns.get("agent") or columns.get("customer")):
                self.layout = Layout.of(self.names, {alone: "agent_id"})
            elif "reply" not in columns:
                missing.append("agent_id")
        missing += [name for name in ("text", "created_at") if name not in columns]
        if missing and self.entries:
            raise unclear(self.source, self.names, missing)


_SAID = {"agent_id": "who wrote it", "text": "the text", "created_at": "when it was sent"}


def unclear(source: Source, names: Sequence[str], missing: Sequence[str]) -> UnclearTableError:
    """Return what is said of a table whose columns are not all known."""
    said = (
        f"which column says {' and '.join(_SAID[name] for name in missing)} is not clear; here the columns are "
        f"{_listed(names)}: name them with {' '.join(f'--map COLUMN={name}' for name in missing)}"
    )
    return UnclearTableError(said, source, names, missing)


class Records(Importer):
    """CSV, JSON lines or lists in a JSON file, of any program. Ids are made of what was said where there are none."""

    name: ClassVar[str] = "table"
    about: ClassVar[str] = "CSV of a helpdesk by the words of its header, or any records with --map KEY=FIELD"

    def __init__(self) -> None:
        self._read: dict[tuple[str, str], Table] = {}

    def recognises(self, source: Source) -> bool:
        names = columns_of(source)
        columns = Layout.of(names, {}).columns if names else {}
        who = {"agent_id", ROLE, "agent", "customer", "reply"} & columns.keys()
        return bool(who) and {"text", "created_at"} <= columns.keys()

    def require_clear(self, file: Source, options: ReadOptions) -> None:
        """Raise ``ConfigError`` where it is not clear how a file is to be read; called before anything is written."""
        self._table(file, options)

    def rows(self, file: Source, options: ReadOptions) -> Iterator[Found]:
        return self._table(file, options).rows()

    def _table(self, file: Source, options: ReadOptions) -> Table:
        key = str(file.path), repr(options.fields)
        self._read[key] = self._read.get(key) or Table(file, options)
        return self._read[key]


def columns_of(source: Source) -> list[str]:
    """Return the names of the columns of a CSV file; none where it is something else."""
    if source.is_folder or not source.is_table or source.beginning.lstrip()[:1] in ("{", "["):
        return []
    found = [name for record in first_records(source) for name in record]
    return list(dict.fromkeys(found)) if len(set(found)) > 1 else []


def advice(source: Source) -> str:
    """Return which keys of a JSON file may be mapped, with an example that works where there is one; "": it has no records."""
    if source.is_folder or source.beginning.lstrip()[:1] not in ("{", "["):
        return ""
    groups = _groups([_Entry(line, record) for line, record in records(source) if isinstance(record, dict)])
    best = min(groups, key=lambda under: (len(_guessed(groups[under])) < len(_SAID), -len(groups[under])), default="")
    guessed = _guessed(groups[best]) if best in groups else {}
    maps = " ".join(_map(name, target) for name, target in guessed.items()) if len(guessed) >= len(_SAID) else ""
    inner = [f"{under} ({len(groups[under])})" for under in groups if under]
    lists = f"its lists of objects are {', '.join(inner[:8])}; " if inner else ""
    return lists + (f"to read {best or 'its records'} as messages: {maps}; " if maps else "")


def _guessed(entries: Sequence[_Entry]) -> dict[str, str]:
    names = dict.fromkeys(name for item in entries[:_LOOKED_AT] for name in item.record)
    inner = [
        f"{name}.{key}"
        for item in entries[:1]
        for name, value in item.record.items()
        if isinstance(value, dict)
        for key in value
    ]
    columns = Layout.of([*names, *inner], {}).columns
    return {columns[key]: key for key in (*_SAID, "channel") if key in columns}


def _groups(entries: Sequence[_Entry]) -> dict[str, list[_Entry]]:
    """Return records, and what they hold in lists, by the keys of the lists."""
    groups: dict[str, list[_Entry]] = {"": list(entries)}
    for item in entries:
        for under, around, objects in lists_in(item.record):
            groups.setdefault(under, []).extend(_Entry(item.line, inner, around) for inner in objects)
    return groups


def _within(entries: Sequence[_Entry], given: Mapping[str, str], source: Source) -> list[_Entry]:
    """Return the records that have the keys that are given: these, or those of one of the lists in them."""
    required = [key for key, target in given.items() if target.partition(":")[0] in _SAID] or list(given)
    groups = _groups(entries)
    fitting = {
        under: found
        for under, found in groups.items()
        if any(all(_has(item, key) for key in required) for item in found)
    }
    if len(fitting) > 1 and "" not in fitting:
        said = f"these keys are in several lists ({', '.join(fitting)}); give keys that only one of them has"
        raise UnclearTableError(said, source, list(given), ())
    return fitting.get("") or next(iter(fitting.values()), list(entries))


def _has(item: _Entry, key: str) -> bool:
    return value_at(item.record, key) is not None


def _inline(parts: Sequence[Any]) -> str:
    """Return the text of parts that stand in one line, such as words and links; of others, a line each."""
    if not any(isinstance(part, str) for part in parts):
        return as_text("text", parts)
    texts = (part if isinstance(part, str) else part.get("text") if isinstance(part, dict) else "" for part in parts)
    return "".join(text for text in texts if isinstance(text, str))


def _map(name: str, target: str) -> str:
    return f"--map '{visible(name)}={target}'"


def _listed(names: Sequence[str]) -> str:
    return shortened(", ".join(map(visible, names)), _LONGEST)


def _without_zone(name: str) -> str:
    match = _ZONE.search(name)
    return name[: match.start()] if match and zone_of(match[1]) else name


def _plain(text: str) -> str:
    """Return words without case, accents and signs, with one space between them."""
    text = unicodedata.normalize("NFKD", _CAMEL.sub(" ", text).casefold())
    text = "".join(sign for sign in text if not unicodedata.combining(sign))
    return " ".join("".join(sign if sign.isalnum() else " " for sign in text).split())
