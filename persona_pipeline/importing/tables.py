"""Records of other programs, such as a helpdesk's CSV. The meaning of columns is given, or read from the header."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
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
    is_placeholder,
    list_of,
    message_row,
    object_of,
    value_at,
)
from persona_pipeline.importing.records import first_records, header_of, records
from persona_pipeline.importing.times import Times, UnclearOrderError, words, zone_of
from persona_pipeline.world.messages.files import FIELDS, ORDERS, ROLE, Row
from persona_pipeline.world.names import plain_words

# Characters of column names in messages, rows from which columns are read, and depth to which lists are searched.
_LONGEST, _LOOKED_AT, _DEEPEST = 300, 200, 8
_CAMEL, _ZONE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])"), re.compile(r"[(\[]([^()\[\]]+)[)\]]\s*$")
# Spreadsheets round long numbers: ids such as 1.23457E+11 are several messages' or tickets'.
_ROUNDED = re.compile(r"\d[.,]\d+E\+\d+")
# Several lines of a text that begin with a time in brackets and a name are a whole chat.
_TRANSCRIPT = re.compile(
    r"^[(\[]\s*(?:\d+[hms]\s*|\d+:\d\d(?::\d\d)?\s*(?:[ap]m\s*)?)+[)\]]\s+[^:\n]{1,60}:\s", re.M | re.I
)
_PERSON = re.compile(r" (?:name|nickname|display name|email)$")
_SPEAKING = {"agent": "assistant", "bot": "assistant", "customer": "user"}
_SILENT = {"note": "internal note", "system": "system line"}
_OTHER = {"agent": "customer", "customer": "agent"}
# Keys with known words in records of any program, in addition to a message's fields.
_SIDES = (ROLE, "kind", "is_agent", "is_customer", "is_note", "is_public")


class UnclearTableError(ConfigError):
    """It is not clear which column holds what.

    Attributes:
        columns: names of the columns. ``missing``: message fields for which a column must be named.
        dated: the column of dates that may be read in two ways; "": it is not about that.
    """

    def __init__(
        self, said: str, source: Source, columns: Sequence[str], missing: Sequence[str] = (), dated: str = ""
    ) -> None:
        super().__init__(Problem(said, source.name))
        self.columns, self.missing, self.dated = columns, missing, dated


class NoMessagesFormatError(ConfigError):
    """A file is of no format that is known."""


@dataclass(frozen=True)
class Layout:
    """Which columns of a table hold what.

    Attributes:
        columns: name of the column by message field, or by another key of ``tables.toml``.
        order: of day and month, where it is given. ``zone``: of times without one.
    """

    columns: Mapping[str, str]
    order: str = ""
    zone: tzinfo = UTC

    @classmethod
    def of(cls, names: Sequence[str], given: Mapping[str, str], *, by_words: bool = True) -> "Layout":
        """Return what columns hold: as it is given, else as their names say it."""
        columns = {target.partition(":")[0]: name for name, target in given.items()}
        order = next((after for target in given.values() if (after := target.partition(":")[2])), "")
        spelt = {_plain(_parted(name)[0]): name for name in reversed(names)}
        known = words()["columns"]
        if not by_words:
            known = {name: [name.replace("_", " ")] for name in FIELDS} | {key: known[key] for key in _SIDES}
        for key, spellings in known.items():
            free = (spelt[word] for word in spellings if word in spelt and spelt[word] not in columns.values())
            found = next(free, None)
            if found is None or key in columns:
                continue
            # Of a repeated column, either copy may hold the words.
            if not any(re.fullmatch(rf"{re.escape(found)} \d+", name) for name in names):
                columns[key] = found
        return cls(columns, order, _parted(columns.get("created_at", ""))[1] or UTC)

    def value(self, record: Mapping[str, Any], key: str) -> str:
        """Return what a record says under a field; "": nothing."""
        value = value_at(record, self.columns[key]) if key in self.columns else None
        if key in ("text", "reply"):
            text = _inline(value) if isinstance(value, list) else as_text("text", value)
            return "" if isinstance(text, dict) else str(text or "").replace("\r\n", "\n")
        value = value if key == "created_at" else as_text(key, value)
        return "" if value is None else str(value).strip()


@dataclass(frozen=True)
class _TableRow:
    """A record with its line, and the name of the object around it."""

    line: int
    record: Mapping[str, Any]
    around: str = ""


class HelpdeskTable:
    """The records of a file, and how they are read.

    Raises:
        ConfigError: the file cannot be read. UnclearTableError: which column holds what, or in which order dates are, is not clear.
    """

    def __init__(self, source: Source, options: ReadOptions) -> None:
        self.source, found = source, list(records(source, cells=()))
        self.wrong = [Row(line, item) for line, item in found if isinstance(item, ValueError)]
        entries = [_TableRow(line, item) for line, item in found if not isinstance(item, ValueError)]
        mapped = {target.partition(":")[0] for target in options.fields.values()}
        given = {
            key: target
            for key, target in options.remembered.items()
            if target.partition(":")[0] not in mapped and any(_has(item, key) for item in entries)
        } | dict(options.fields)
        self.entries = _within(entries, given, source) if source.is_json and given else entries
        self.names = list(dict.fromkeys(name for item in self.entries for name in item.record))
        found = _names_in(self.entries) if source.is_json else self.names
        self.layout = Layout.of(found, given, by_words=not source.is_json)
        self._leave_replies()
        self.ids_are_whole = "id" in given.values()
        self.roles = {word: kind for kind, listed in words()["roles"].items() for word in listed}
        self.roles |= {_plain(word): kind for word, kind in options.roles.items()}
        sides = {self._word(item, ROLE) for item in self.entries}
        if sides & {"customer", "contact"} and not any(self.roles.get(word) == "agent" for word in sides):
            # Next to customers, a user is one of the helpdesk's program.
            self.roles["user"] = "agent"
        self.roles_known = any(self._role_word(item, ROLE) for item in self.entries)
        sides = [[bool(self.layout.value(item.record, key)) for key in _OTHER] for item in self.entries]
        self.one_side_each = bool(sides) and all(side.count(True) == 1 for side in sides)
        if self.entries:
            self._require_clear(options)
        spoken = {_plain(self.layout.value(item.record, "agent_id")) for item in self.entries} - {""}
        self.speakers_are_roles = all(self.roles.get(name) in _SPEAKING for name in spoken)
        # The column of ids that belongs to the column of names.
        self.person = _PERSON.sub("", _plain(self.layout.columns.get("agent_id", "")))
        self.person_id = next((name for name in found if _plain(name) == f"{self.person} id"), "")
        self.kind_is_seen = _plain(self.layout.columns.get("kind", "")) == "visibility"
        self.internal = {"message", "comment"} <= {self._word(item, "kind") for item in self.entries}
        self.times = self._times() if self.entries else Times()

    def rows(self) -> Iterator[Found]:
        """Yield what each record is."""
        yield from self.wrong
        told: list[tuple[int, list[dict[str, Any]]]] = []
        for item in self.entries:
            try:
                side = self._side(item)
                turns = self._turns(item, side) if side not in _SILENT else []
            except ValueError as error:
                yield Row(item.line, error)
                continue
            told.append((item.line, turns))
            if not turns:
                yield Skipped(item.line, _SILENT.get(side, "turn without text"))
        said: Counter[tuple[str, datetime]] = Counter()
        ids = TurnIds()
        ordered = reversed(told) if _newest_first([turns[0] for _, turns in told if turns]) else told
        for line, values in ((line, values) for line, turns in ordered for values in turns):
            # Messages of the same second stay in the order of the file.
            place, moment = _place(values), values["created_at"]
            when = f"{place}\x1f{rfc3339(moment, exact=True)}"
            values["id"] = values["id"] or ids.next(when, values["agent_id"], values["text"])
            values["created_at"] = rfc3339(moment + timedelta(microseconds=said[place, moment]), exact=True)
            said[place, moment] += 1
            yield message_row(line, values)

    def _turns(self, item: _TableRow, side: str) -> list[dict[str, Any]]:
        """Return the turns of a record: a text, or a question and its reply."""
        value, columns = partial(self.layout.value, item.record), self.layout.columns
        asking = side or ("customer" if "reply" in columns else "")
        texts = [(value("text"), asking, ""), (value("reply"), "agent", ":reply")]
        texts = [text for text in texts if not is_placeholder(text[0])]
        if not texts:
            return []
        own, channel, recipient = value("id"), value("channel"), value("recipient")
        if rounded := next(filter(_ROUNDED.fullmatch, (channel, own)), None):
            raise ValueError(f"{rounded!r} is an id that a spreadsheet has rounded; export it again as text")
        channel = channel or ("" if recipient else item.around or _named_after(self.source))
        used = {*columns.values(), *FIELDS}
        shared = {key: cell for key, cell in item.record.items() if key not in used} | {
            "channel": channel or None,
            "recipient": None if channel else recipient,
            "run_id": value("run_id") or None,
            "created_at": self._moment(item),
        }
        turns = []
        for text, who, ending in texts:
            # The program's id is one within the conversation.
            given = f"{own}{ending}" if self.ids_are_whole else f"{_place(shared)}:{own}{ending}"[:256]
            if len(_TRANSCRIPT.findall(text)) > 1:
                raise ValueError("holds a whole chat in one text; export one message a row")
            turn = {**shared, "id": own and given, "text": text, **({"role": _SPEAKING[who]} if who else {})}
            turns.append({**turn, **self._speaker(item, who, is_reply=bool(ending))})
        return turns

    def _leave_replies(self) -> None:
        """Leave a column of conversations that names other messages of the table, which are answered."""
        read = {key: {self.layout.value(item.record, key) for item in self.entries} - {""} for key in ("id", "channel")}
        if _plain(self.layout.columns.get("channel", "")) == "parent id" and read["id"] & read["channel"]:
            self.layout = replace(
                self.layout, columns={key: name for key, name in self.layout.columns.items() if key != "channel"}
            )

    def _speaker(self, item: _TableRow, side: str, *, is_reply: bool) -> dict[str, str]:
        author = "" if is_reply or self.speakers_are_roles else self.layout.value(item.record, "agent_id")
        named = self.layout.value(item.record, "customer" if side == "customer" else "agent") if side else ""
        if not (author or named or side):
            raise ValueError("agent_id is missing")
        own = value_at(item.record, self.person_id) if author and self.person_id else None
        return {
            "agent_id": author or named or side,
            **({} if own in (None, "") else {"speaker_id": f"{self.person}: {own}"}),
        }

    def _side(self, item: _TableRow) -> str:
        """Return who wrote a record by what it says: agent, bot, customer, note, system; "": it does not say."""
        if self._flag(item, "is_note") or self._flag(item, "is_public") is False:
            return "note"
        if (kind := self._role_word(item, "kind")) in _SILENT:
            return kind
        # Rows visible to agents are internal, and so are comments next to messages.
        if (kind == "agent" and self.kind_is_seen) or (self.internal and self._word(item, "kind") == "comment"):
            return "note"
        found = self._role_word(item, ROLE) if self.roles_known else ""
        if self.roles_known and not found and not self.source.is_json:
            name, value = self.layout.columns[ROLE], self.layout.value(item.record, ROLE)
            raise ValueError(
                f"{name} {value[:40]!r} is not known; say whose it is under import: roles: in persona.yaml"
            )
        if found in ("", "message") and self.speakers_are_roles:
            found = self._role_word(item, "agent_id")
        if found in ("", "message"):
            says = ((kind, self._flag(item, f"is_{kind}")) for kind in _OTHER)
            found = next((kind if yes else _OTHER[kind] for kind, yes in says if yes is not None), "")
        if not found and self.one_side_each:
            found = next(key for key in _OTHER if self.layout.value(item.record, key))
        return found

    def _role_word(self, item: _TableRow, key: str) -> str:
        return self.roles.get(self._word(item, key), "") if key in self.layout.columns else ""

    def _word(self, item: _TableRow, key: str) -> str:
        return _plain(self.layout.value(item.record, key))

    def _flag(self, item: _TableRow, key: str) -> bool | None:
        """Return what a column of yes or no says; None: there is none, or it says neither."""
        value = _plain(self.layout.value(item.record, key)) if key in self.layout.columns else None
        return next((says == "yes" for says, spellings in words()["flags"].items() if value in spellings), None)

    def _moment(self, item: _TableRow) -> datetime:
        written = self._written(item)
        if not written:
            raise ValueError("created_at is missing")
        try:
            return self.times.read(written)
        except ValueError as error:
            raise ValueError(f"{self.layout.columns['created_at']} {error}") from None

    def _written(self, item: _TableRow) -> str:
        written = self.layout.value(item.record, "created_at")
        clock = self.layout.value(item.record, "clock") if written and ":" not in written else ""
        return f"{written} {clock}".strip()

    def _times(self) -> Times:
        name = self.layout.columns["created_at"]
        try:
            return Times.of(filter(None, map(self._written, self.entries)), self.layout.order, self.layout.zone)
        except UnclearOrderError as error:
            which = " or ".join(_map(name, order) for order in ORDERS)
            said = f"{visible(name)} {error}; say which: {which}"
            raise UnclearTableError(said, self.source, self.names, dated=name) from None
        except ValueError as error:
            raise ConfigError(Problem(f"{visible(name)}: {error}", self.source.name)) from None

    def _require_clear(self, options: ReadOptions) -> None:
        """Take the only column of names for the speaker; raise ``UnclearTableError`` where a column is not known."""
        columns = dict(self.layout.columns)
        absent = next((key for key in options.fields if not any(_has(item, key) for item in self.entries)), "")
        if absent:
            said = f"there is no {absent!r}; here the names are {listed(self.names)}"
            raise UnclearTableError(said, self.source, self.names)
        sides = [columns[key] for key in _OTHER if key in columns]
        tells = {"agent_id", "reply", "is_agent", "is_customer"} & columns.keys()
        if len(sides) == 1 and not tells and not self.roles_known:
            columns["agent_id"] = sides[0]
        elif tells or self.roles_known or self.one_side_each:
            # The speaker is known without a separate column.
            columns.setdefault("agent_id", "")
        missing = [name for name in _SAID if name not in columns]
        if missing:
            empty = [name for name in header_of(self.source) if name not in self.names and not self.source.is_json]
            if (left := Layout.of(empty, {}).columns).keys() & {*missing}:
                said = f"the column {listed(left.values())} is empty in every row; export it again with what it holds"
                raise UnclearTableError(said, self.source, self.names)
            said = (
                f"it is unclear which column has {', '.join(_SAID[name] for name in missing)}; the columns are "
                f"{listed(self.names)}: name it with {' '.join(f'--map COLUMN={name}' for name in missing)}"
            )
            raise UnclearTableError(said, self.source, self.names, missing)
        self.layout = replace(self.layout, columns={key: name for key, name in columns.items() if name})


_SAID = {"agent_id": "the speaker", "text": "the text", "created_at": "the time"}


def _named_after(source: Source) -> str:
    """Return the name of a file, or of its archive where the file's name is always the same."""
    path = PurePath(source.name)
    return path.parent.stem if path.stem.startswith("_") and path.parent.name else path.stem


def _place(values: Mapping[str, Any]) -> str:
    return values["channel"] or values["recipient"]


def _newest_first(told: Sequence[Mapping[str, Any]]) -> bool:
    last: dict[str, datetime] = {}
    later: Counter[bool] = Counter()
    for values in told:
        place, moment = _place(values), values["created_at"]
        if last.get(place, moment) != moment:
            later[moment > last[place]] += 1
        last[place] = moment
    return later[False] > later[True]


class Records(Importer):
    """CSV, JSON lines or lists in a JSON file, of any program. Missing ids are made from the messages."""

    name: ClassVar[str] = "table"
    about: ClassVar[str] = "CSV of a helpdesk by the words of its header, or any records with --map KEY=FIELD"

    def __init__(self) -> None:
        self._read: dict[tuple[str, str], HelpdeskTable] = {}

    def recognises(self, source: Source) -> bool:
        columns = Layout.of(columns_of(source), {}).columns
        who = {"agent_id", ROLE, "agent", "customer", "reply"} & columns.keys()
        return bool(who) and {"text", "created_at"} <= columns.keys()

    def require_clear(self, source: Source, options: ReadOptions) -> None:
        self._table(source, options)

    def rows(self, file: Source, options: ReadOptions) -> Iterator[Found]:
        return self._table(file, options).rows()

    def _table(self, file: Source, options: ReadOptions) -> HelpdeskTable:
        key = str(file.path), repr(options.fields)
        self._read[key] = self._read.get(key) or HelpdeskTable(file, options)
        self.looks_ahead = bool(self._read[key].person_id)
        return self._read[key]


def columns_of(source: Source) -> list[str]:
    """Return the names of the columns of a CSV file; none where it is something else."""
    if not source.is_table or source.is_json:
        return []
    found = dict.fromkeys(name for record in first_records(source) for name in record)
    return list(found) if len(found) > 1 else []


def advice(source: Source) -> str:
    """Return which keys of a JSON file may be mapped, with an example that works where there is one; "": it has no records."""
    if not source.is_json:
        return ""
    groups = _groups([_TableRow(line, record) for line, record in records(source) if isinstance(record, dict)])
    guessed = {under: _guessed(found) for under, found in groups.items()}
    clear = [under for under in groups if {*_SAID} <= {*guessed[under].values()}]
    inner = [f"{under} ({len(groups[under])})" for under in groups if under]
    lists = f"its lists of objects are {', '.join(inner[:8])}; " if inner else ""
    if not clear:
        return lists
    best = max(clear, key=lambda under: len(groups[under]))
    maps = " ".join(_map(name, target) for name, target in guessed[best].items())
    return f"{lists}to read {best or 'its records'} as messages: {maps}; "


def _guessed(entries: Sequence[_TableRow]) -> dict[str, str]:
    columns = Layout.of(_names_in(entries), {}).columns
    return {columns[key]: key for key in (*_SAID, "channel") if key in columns}


def _names_in(entries: Sequence[_TableRow]) -> list[str]:
    """Return the keys of records; keys of inner objects follow the object's key and a dot."""
    looked = [item.record for item in entries[:_LOOKED_AT]]
    held = [(name, value) for record in looked for name, value in record.items() if value is not None]
    objects = {name for name, value in held if isinstance(value, dict)}
    objects -= {name for name, value in held if not isinstance(value, dict)}
    names = dict.fromkeys(name for record in looked for name in record if name not in objects)
    inner = (f"{name}.{key}" for record in looked for name in record for key in object_of(record[name]))
    return list(names | dict.fromkeys(inner))


def _groups(entries: Sequence[_TableRow]) -> dict[str, list[_TableRow]]:
    """Return records, and what they hold in lists, by the keys of the lists."""
    groups: dict[str, list[_TableRow]] = {"": list(entries)}
    for item in entries:
        for under, around, record in _objects_in(item.record):
            groups.setdefault(under, []).append(_TableRow(item.line, record, around))
    return groups


def _objects_in(
    value: Any, under: str = "", around: str = "", depth: int = _DEEPEST
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the objects in the lists of a JSON value, with the keys of the list and the name of the object around it."""
    if isinstance(value, dict) and depth:
        own = _own_name(value) or around
        for key, item in value.items():
            yield from _objects_in(item, f"{under}.{key}".lstrip("."), own, depth - 1)
    for item in list_of(value) if depth else ():
        if isinstance(item, dict):
            yield under, around, item
            yield from _objects_in(item, under, around, depth - 1)


def _own_name(record: Mapping[str, Any]) -> str:
    """Return the id or name of a conversation that an object is; "": it has none."""
    named = {_plain(key): item for key, item in record.items() if isinstance(item, str | int)}
    return str(
        next((named[word] for word in ("id", *words()["columns"]["channel"], "name", "title") if named.get(word)), "")
    )


def _beside(item: _TableRow, required: Sequence[str]) -> Iterator[_TableRow]:
    """Yield objects next to a list that have the form of its items, such as the first message, with the time of the whole."""
    shared = {key: item.record[key] for key in required if key in item.record}
    for value in item.record.values():
        if isinstance(value, dict):
            row = _TableRow(item.line, shared | value, _own_name(item.record))
            yield from [row] * all(_has(row, key) for key in required)


def _within(entries: Sequence[_TableRow], given: Mapping[str, str], source: Source) -> list[_TableRow]:
    """Return the records with the given keys: these records, or the items of a list in them."""
    required = [key for key, target in given.items() if target.partition(":")[0] in _SAID] or list(given)
    groups = _groups(entries)
    fitting = {
        under: found
        for under, found in groups.items()
        if any(all(_has(item, key) for key in required) for item in found)
    }
    if len(fitting) > 1 and "" not in fitting:
        said = f"these keys are in several lists ({', '.join(fitting)}); give keys that only one of them has"
        raise UnclearTableError(said, source, list(given))
    if "" in fitting or not fitting:
        return list(entries)
    return [*(row for item in entries for row in _beside(item, required)), *next(iter(fitting.values()))]


def _has(item: _TableRow, key: str) -> bool:
    return value_at(item.record, key) is not None


def _inline(parts: Sequence[Any]) -> str:
    """Return the text of parts: on one line where some are plain words, else a line each."""
    if not any(isinstance(part, str) for part in parts):
        return as_text("text", parts)
    texts = (part if isinstance(part, str) else part.get("text") if isinstance(part, dict) else "" for part in parts)
    return "".join(text for text in texts if isinstance(text, str))


def _map(name: str, target: str) -> str:
    return f"--map '{visible(name)}={target}'"


def listed(names: Iterable[str]) -> str:
    """Return names of columns or keys as they are shown."""
    return shortened(", ".join(map(visible, names)), _LONGEST)


def _parted(name: str) -> tuple[str, tzinfo | None]:
    """Return a column's name without the time zone in brackets behind it, and the zone."""
    match = _ZONE.search(name)
    zone = zone_of(match[1]) if match else None
    return (name[: match.start()], zone) if match and zone else (name, None)


def _plain(text: str) -> str:
    return plain_words(_CAMEL.sub(" ", text))
