"""Mirroring the world's message files into the store: what stands in them is in it, once, whichever file it stands in.

A file is read from where it was read last, as long as it begins as it did then, in batches each of which is written together with
how far it goes: whoever is killed in between loses nothing and doubles nothing.
"""

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from persona_pipeline.errors import ConfigError, Problem
from persona_pipeline.store import Store, tables, upsert
from persona_pipeline.store.leases import exclusive
from persona_pipeline.world.aliases import Aliases
from persona_pipeline.world.counting import count_messages
from persona_pipeline.world.file_messages import Reading, read_again, remove_unread, write_batch
from persona_pipeline.world.ingest import parse_message
from persona_pipeline.world.looking import is_fresh, look_at, seen_as, unread_files
from persona_pipeline.world.messages import WriteResult
from persona_pipeline.world.models import Message
from persona_pipeline.world.reading import MessageFile, Row
from persona_pipeline.world.removing import let_in

LEASE = "message files"
_SOURCES, _COPIES = tables.message_sources, tables.message_copies
# What one transaction writes: so many lines, or so many characters.
BATCH_LINES, _BATCH_CHARACTERS = 5000, 8_000_000
_MOST_PROBLEMS = 1000


@dataclass
class SyncResult:
    """What bringing files into the store did.

    Attributes:
        problems: lines of message files that were left out, of each file the first 1000; ``unnamed``: how many more.
        speakers: whose messages were read, by agent id, or by name where nobody has a persona.
    """

    problems: list[Problem] = field(default_factory=list)
    written: WriteResult = field(default_factory=WriteResult)
    speakers: frozenset[str] = frozenset()
    unnamed: int = 0

    def add(self, other: "SyncResult") -> None:
        """Take in what bringing another file in did."""
        self.name(other.problems)
        self.unnamed += other.unnamed
        self.written += other.written
        self.speakers |= other.speakers

    def name(self, problems: Iterable[Problem]) -> None:
        """Take problems in, as many as are named."""
        for problem in problems:
            if len(self.problems) < _MOST_PROBLEMS:
                self.problems.append(problem)
            else:
                self.unnamed += 1


@dataclass(frozen=True)
class Came:
    """Where messages came from: ``source`` is its name in the store, ``shown`` what people call it."""

    source: str
    shown: str


def is_any_known(store: Store) -> bool:
    """Return whether any message file was ever read."""
    with store.connect() as connection:
        return connection.execute(sa.select(_SOURCES.c.path).limit(1)).scalar() is not None


def mirror_files(store: Store, files: Mapping[str, Path], aliases: Aliases) -> SyncResult:
    """Mirror message files into the store; one that did not change is not opened, one that cannot be read stops no other.

    Args:
        files: all there are, by the name the store has for them.
    """
    written = WriteResult()
    if unread_files(store, files):
        with exclusive(store, [LEASE]):
            # What went from one file may stand in another one too, which is then read again.
            while unread := unread_files(store, files):
                before = written
                for name in unread.files:
                    reading = Reading(name, 0, files.keys() - {name}, unread.gone)
                    written += _mirror(store, files[name], reading, aliases)
                for name in unread.gone:
                    written += WriteResult(removed=remove_unread(store, Reading(name, -1)))
                    with store.begin() as connection:
                        connection.execute(sa.delete(_COPIES).where(_COPIES.c.path == name))
                        connection.execute(sa.delete(_SOURCES).where(_SOURCES.c.path == name))
                if written.removed == before.removed:
                    break
        count_messages(store)
    result = SyncResult(written=written)
    with store.connect() as connection:
        kept = sa.select(_SOURCES.c.path, _SOURCES.c.problems).where(_SOURCES.c.problems.is_not(None))
        for row in sorted(connection.execute(kept), key=lambda row: row.path):
            found = _loaded(row.problems)
            result.problems += found.problems
            result.unnamed += found.unnamed
    return result


def ingest_rows(
    store: Store, rows: Iterator[Row], came: Came, owned: Callable[[Message], Message], *, restore: bool = False
) -> SyncResult:
    """Add the messages of a file from anywhere; nothing is removed. The caller counts messages afterwards.

    Args:
        owned: makes a message its agent's.
        restore: bring back those that were taken out of the store.

    Raises:
        ConfigError: the file cannot be read at all.
    """
    # No other reading has this number: an id that this one met is told from one that was there before.
    result, reading = SyncResult(), Reading(came.source, -2 - secrets.randbelow(2**31 - 2))
    speakers: set[str] = set()
    for lot in _batches(rows):
        read, *wrong = _split(lot, came.source, owned)
        with store.begin() as connection:
            if restore:
                let_in(connection, [message for _, message in read])
            done, refused = write_batch(store, connection, read, reading)
        problems = [*wrong[0], *wrong[1], *refused]
        result.name(replace(item, path=came.shown) for item in sorted(problems, key=lambda item: item.line or 0))
        result.written += done
        speakers.update(message.agent_id for _, message in read)
    return replace(result, speakers=frozenset(speakers))


def _batches(rows: Iterator[Row]) -> Iterator[list[Row]]:
    """Yield rows in bounded lots; what is read goes no further than the last of a lot."""
    while lot := list(islice(rows, 1)):
        size = _characters(lot[0])
        while size < _BATCH_CHARACTERS and len(lot) < BATCH_LINES and (more := next(rows, None)):
            lot.append(more)
            size += _characters(more)
        yield lot


def _characters(row: Row) -> int:
    return len(row.found.text) if isinstance(row.found, Message) else 0


def _mirror(store: Store, path: Path, reading: Reading, aliases: Aliases) -> WriteResult:
    """Read a file from where it was read last to its end."""
    look, written, open_end = look_at(path), WriteResult(), []
    fresh = path.exists() and is_fresh(path.stat())
    try:
        with MessageFile(path) as file:
            reading = replace(reading, number=_place(store, file, reading.source, path))
            found = _problems(store, reading.source)
            file.require_text()
            for lot in _batches(file.rows(parse_message)):
                read, wrong, open_end = _split(lot, reading.source, aliases.owned)
                with store.begin() as connection:
                    done, refused = write_batch(store, connection, read, reading)
                    found.name(sorted([*wrong, *refused], key=lambda problem: problem.line or 0))
                    _note(connection, file, reading.source, problems=_dumped(found, open_end))
                written += done
    except ConfigError as error:
        # What was read of it before stays, and it is read again once it has changed.
        problems = [Problem(p.message, reading.source, p.line, p.column) for p in error.problems]
        with store.begin() as connection:
            row = {"path": reading.source, "content_hash": "", "size": 0}
            upsert(store, connection, _SOURCES, [row], update=False)
            kept = _dumped(_problems(store, reading.source, connection), problems)
            _update(connection, reading.source, seen=seen_as(path, look, fresh=fresh), problems=kept)
        return written
    if _row(store, reading.source).unfinished:
        written += WriteResult(removed=remove_unread(store, reading))
    # What may still be written at its end is part of how it looked.
    digest = file.digest if look.startswith(f"{file.end}-") else None
    seen = seen_as(path, look, digest, fresh=fresh)
    with store.begin() as connection:
        _note(connection, file, reading.source, seen=seen, unfinished=False, problems=_dumped(found, open_end))
    return written


def _place(store: Store, file: MessageFile, name: str, path: Path) -> int:
    """Go to where a file was read to, or to its start where it does not begin as it did then; return the reading's number."""
    row = _row(store, name)
    if row is None:
        with store.begin() as connection:
            stored = connection.execute(sa.select(1).where(tables.run_messages.c.source == name).limit(1)).scalar()
            state = {
                "path": name,
                "content_hash": file.digest,
                "size": 0,
                "reading": 1,
                "unfinished": stored is not None,
            }
            upsert(store, connection, _SOURCES, [state])
        return 1
    if row.size is None:
        # An earlier release read it whole or not at all.
        known = file.skip(path.stat().st_size, None, row.content_hash)
    else:
        known = file.skip(row.size, row.lines, row.content_hash) if row.size else row.unfinished
    with store.begin() as connection:
        if known:
            _update(connection, name, size=file.end, lines=file.lines, content_hash=file.digest, seen=None)
            return row.reading
        read_again(connection, name)
    return row.reading + 1


def _split(
    lot: list[Row], name: str, owned: Callable[[Message], Message]
) -> tuple[list[tuple[int, Message]], list[Problem], list[Problem]]:
    """Return messages with their lines, what is wrong with other lines, and with an end of the file that may still be written."""
    read = [(row.line, owned(row.found)) for row in lot if isinstance(row.found, Message)]
    wrong = [row for row in lot if isinstance(row.found, ValueError)]
    problems = [(row.settled, Problem(str(row.found), name, row.line)) for row in wrong]
    return read, [item for settled, item in problems if settled], [item for settled, item in problems if not settled]


def _row(store: Store, name: str) -> Any:
    with store.connect() as connection:
        return connection.execute(sa.select(_SOURCES).where(_SOURCES.c.path == name)).one_or_none()


def _note(connection: Connection, file: MessageFile, name: str, **values: Any) -> None:
    _update(connection, name, size=file.end, lines=file.lines, content_hash=file.digest, **values)


def _update(connection: Connection, name: str, **values: Any) -> None:
    connection.execute(sa.update(_SOURCES).where(_SOURCES.c.path == name).values(**values))


def _problems(store: Store, name: str, connection: Connection | None = None) -> SyncResult:
    """Return what is wrong with the lines of a file that were read; an open end is not among them."""
    query = sa.select(_SOURCES.c.problems).where(_SOURCES.c.path == name)
    if connection is not None:
        return _loaded(connection.execute(query).scalar(), settled=True)
    with store.connect() as opened:
        return _loaded(opened.execute(query).scalar(), settled=True)


def _dumped(found: SyncResult, open_end: Iterable[Problem]) -> list[dict[str, Any]]:
    """Return problems as they are stored: those of an end that may still be written are marked."""
    more = [{"more": found.unnamed}] if found.unnamed else []
    return [*map(dict, map(vars, found.problems)), *({**vars(problem), "open": True} for problem in open_end), *more]


def _loaded(stored: list[dict[str, Any]] | None, *, settled: bool = False) -> SyncResult:
    result = SyncResult()
    for item in stored or ():
        if "more" in item:
            result.unnamed += item["more"]
        elif not (settled and item.get("open")):
            result.problems.append(Problem(**{key: value for key, value in item.items() if key != "open"}))
    return result
