"""Mirroring the world's message files into the store: what stands in them is in it, once, whichever file it stands in.

A file is read from where it was read last, as long as it begins as it did then, in batches each of which is written together with
how far it goes: whoever is killed in between loses nothing and doubles nothing.
"""

import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from persona_pipeline.base.database import tables
from persona_pipeline.base.database.engine import Store, exclusive, upsert
from persona_pipeline.base.documents.json import content_hash
from persona_pipeline.base.errors import ConfigError, Problem
from persona_pipeline.base.files import regular_digest
from persona_pipeline.world.messages.files import MessageFile, Row, parse_message, taken
from persona_pipeline.world.messages.revision import raise_revisions
from persona_pipeline.world.messages.store import (
    WriteResult,
    kept_out,
    known_rows,
    let_in,
    message_of,
    row_of,
    touched_moments,
    write_parents,
)
from persona_pipeline.world.models import Message
from persona_pipeline.world.names import Aliases
from persona_pipeline.world.runs import touch_windows

_TABLE = tables.run_messages
_SOURCES, _COPIES = tables.message_sources, tables.message_copies
_CHUNK = 5000


@dataclass(frozen=True)
class Reading:
    """A reading of a file from its start, maybe in several goes.

    ``source``: the file's name in the store; ``number``: tells this reading from those before. ``others``: files whose messages
    are left to them; ``gone``: files that are no more, whose messages are taken over.
    """

    source: str
    number: int
    others: Collection[str] = frozenset()
    gone: Collection[str] = frozenset()


@dataclass
class _Sorted:
    """What becomes of a batch: lines by message that are new or changed, and of those that stand where they stood."""

    inserted: dict[Message, int] = field(default_factory=dict)
    updated: dict[Message, int] = field(default_factory=dict)
    found: dict[Message, int] = field(default_factory=dict)
    copies: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def write_batch(
    connection: Connection, batch: Sequence[tuple[int, Message]], reading: Reading
) -> tuple[WriteResult, list[Problem]]:
    """Write messages with the lines they stand in, and return what was done and what is wrong with those that were not written.

    An id that is known is updated, unless it is taken by another message.
    """
    first: dict[str, tuple[int, Message]] = {}
    problems = []
    for line, message in batch:
        before = first.setdefault(message.id, (line, message))
        if before[1] != message:
            problems.append(Problem(taken(message.id, before[0]), reading.source, line))
    out = kept_out(connection, [message for _, message in first.values()])
    kept = [item for item in first.values() if item[1].id not in out]
    known = known_rows(connection, list(first))
    done = _sort(kept, known, reading)
    changed = done.inserted | done.updated
    write_parents(connection, list(changed))
    rows = [
        {**row_of(message, reading.source), "line": line, "reading": reading.number}
        for message, line in changed.items()
    ]
    upsert(connection, _TABLE, rows)
    _find(connection, done.found, reading)
    copies = [{"id": message_id, "path": reading.source} for message_id in done.copies]
    upsert(connection, _COPIES, copies, update=False)
    updated = [(message_of(known[message.id]), message) for message in done.updated]
    touch_windows(connection, touched_moments(done.inserted, updated))
    let_in(connection, list(done.inserted))
    unchanged = len(kept) - len(changed) - len(done.problems)
    written = WriteResult(len(done.inserted), len(done.updated), unchanged, 0, len(out))
    return written, [*problems, *done.problems]


def remove_unread(store: Store, reading: Reading) -> int:
    """Remove what an earlier reading of a file found and this one did not, and return how many messages that were.

    Files that hold a copy of one of them are to be read again.
    """
    lost = sa.and_(_TABLE.c.source == reading.source, sa.func.coalesce(_TABLE.c.reading, 0) != reading.number)
    removed = 0
    while True:
        with store.begin() as connection:
            query = sa.select(_TABLE.c.id, _TABLE.c.created_at, _TABLE.c.synthetic).where(lost).limit(_CHUNK)
            rows = connection.execute(query).all()
            if not rows:
                return removed
            ids = [row.id for row in rows]
            connection.execute(sa.delete(_TABLE).where(_TABLE.c.id.in_(ids)))
            touch_windows(connection, (row.created_at for row in rows if not row.synthetic))
            held = sa.select(_COPIES.c.path).where(_COPIES.c.id.in_(ids)).distinct()
            for path in connection.execute(held).scalars().all():
                read_again(connection, path)
            removed += len(rows)


def read_again(connection: Connection, path: str) -> None:
    """Forget how far a file was read."""
    sources = tables.message_sources
    again = {"size": 0, "lines": 0, "content_hash": "", "problems": [], "seen": None, "unfinished": True}
    connection.execute(sa.update(sources).where(sources.c.path == path).values(reading=sources.c.reading + 1, **again))
    connection.execute(sa.delete(_COPIES).where(_COPIES.c.path == path))


def _sort(batch: Sequence[tuple[int, Message]], known: dict[str, sa.Row], reading: Reading) -> _Sorted:
    done = _Sorted()
    for line, message in batch:
        row = known.get(message.id)
        if row is None:
            done.inserted[message] = line
            continue
        same = message_of(row) == message
        if row.source == reading.source and (row.reading or 0) == reading.number:
            if not same:
                done.problems.append(Problem(taken(message.id, row.line), reading.source, line))
        elif row.source in reading.others:
            done.copies.append(message.id)
            if not same:
                text = f"id {message.id!r} is taken in {row.source}; give this message its own"
                done.problems.append(Problem(text, reading.source, line))
        elif not same:
            done.updated[message] = line
        elif row.source == reading.source or row.source in reading.gone:
            done.found[message] = line
    return done


def _find(connection: Connection, found: dict[Message, int], reading: Reading) -> None:
    if found:
        at = sa.update(_TABLE).where(_TABLE.c.id == sa.bindparam("found_id"))
        values = at.values(source=reading.source, reading=reading.number, line=sa.bindparam("found_line"))
        connection.execute(values, [{"found_id": item.id, "found_line": line} for item, line in found.items()])


LEASE = "message files"
# What one transaction writes: so many lines, or so many characters.
BATCH_LINES, _BATCH_CHARACTERS = 5000, 8_000_000
_MOST_PROBLEMS, _ANY_SIZE = 1000, 2**62


@dataclass
class SyncResult:
    """What bringing files into the store did.

    ``problems``: lines of message files that were left out, of each file the first 1000; ``unnamed``: how many more.
    ``speakers``: whose messages were read, by agent id, or by name where nobody has a persona.
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
    return store.value(sa.select(_SOURCES.c.path).limit(1)) is not None


def mirror_files(store: Store, files: Mapping[str, Path], aliases: Aliases) -> SyncResult:
    """Mirror message files into the store; one that did not change is not opened, one that cannot be read stops no other.

    ``files``: all there are, by the name the store has for them.
    """
    written = WriteResult()
    if unread_files(store, files):
        with store.together(), exclusive(store, [LEASE]):
            # What went from one file may stand in another one too, which is then read again.
            while unread := unread_files(store, files):
                before = written
                size = sum(files[name].stat().st_size for name in unread.files if files[name].exists())
                # What is little is one transaction; of more each batch is.
                with store.begin() if size <= _BATCH_CHARACTERS else nullcontext():
                    for name, digest in unread.files.items():
                        reading = Reading(name, 0, files.keys() - {name}, unread.gone)
                        written += _mirror(store, files[name], digest, reading, aliases)
                for name in unread.gone:
                    written += WriteResult(removed=remove_unread(store, Reading(name, -1)))
                    with store.begin() as connection:
                        connection.execute(sa.delete(_COPIES).where(_COPIES.c.path == name))
                        connection.execute(sa.delete(_SOURCES).where(_SOURCES.c.path == name))
                if written.removed == before.removed:
                    break
        raise_revisions(store)
    result = SyncResult(written=written)
    kept = sa.select(_SOURCES.c.path, _SOURCES.c.problems).where(_SOURCES.c.problems.is_not(None))
    for row in sorted(store.rows(kept), key=lambda row: row.path):
        found = _loaded(row.problems)
        result.problems += found.problems
        result.unnamed += found.unnamed
    return result


def ingest_rows(
    store: Store, rows: Iterator[Row], came: Came, owned: Callable[[Message], Message], *, restore: bool = False
) -> SyncResult:
    """Add the messages of a file from anywhere; nothing is removed.

    ``owned``: makes a message its agent's. ``restore``: bring back those that were taken out of the store. Raises
    ``ConfigError``: the file cannot be read at all.
    """
    # No other reading has this number: an id that this one met is told from one that was there before.
    result, reading = SyncResult(), Reading(came.source, -2 - secrets.randbelow(2**31 - 2))
    speakers: set[str] = set()
    for lot in _batches(rows):
        read, *wrong = _split(lot, came.source, owned)
        with store.begin() as connection:
            if restore:
                let_in(connection, [message for _, message in read])
            done, refused = write_batch(connection, read, reading)
        problems = [*wrong[0], *wrong[1], *refused]
        result.name(replace(item, path=came.shown) for item in sorted(problems, key=lambda item: item.line or 0))
        result.written += done
        speakers.update(message.agent_id for _, message in read)
    raise_revisions(store)
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


def _mirror(store: Store, path: Path, digest: str, reading: Reading, aliases: Aliases) -> WriteResult:
    """Read a file from where it was read last to its end. ``digest``: of the file before: what comes meanwhile is another one."""
    written, open_end = WriteResult(), []
    try:
        with MessageFile(path) as file:
            reading = replace(reading, number=_place(store, file, reading.source))
            # An open end is read again.
            found = _loaded(store.value(_of(reading.source, _SOURCES.c.problems)), settled=True)
            file.require_text()
            for lot in _batches(file.rows(parse_message)):
                read, wrong, open_end = _split(lot, reading.source, aliases.owned)
                with store.begin() as connection:
                    done, refused = write_batch(connection, read, reading)
                    found.name(sorted([*wrong, *refused], key=lambda problem: problem.line or 0))
                    _note(connection, file, reading.source, problems=_dumped(found, open_end))
                written += done
    except ConfigError as error:
        # What was read of it before stays, and it is read again once it has changed.
        problems = [Problem(p.message, reading.source, p.line, p.column) for p in error.problems]
        with store.begin() as connection:
            row = {"path": reading.source, "content_hash": "", "size": 0}
            upsert(connection, _SOURCES, [row], update=False)
            known = connection.execute(_of(reading.source, _SOURCES.c.problems)).scalar()
            kept = _dumped(_loaded(known, settled=True), problems)
            _update(connection, reading.source, seen=digest, problems=kept)
        return written
    if store.value(_of(reading.source, _SOURCES.c.unfinished)):
        written += WriteResult(removed=remove_unread(store, reading))
    with store.begin() as connection:
        _note(connection, file, reading.source, seen=digest, unfinished=False, problems=_dumped(found, open_end))
    return written


def _place(store: Store, file: MessageFile, name: str) -> int:
    """Go to where a file was read to, or to its start where it does not begin as it did then; return the reading's number."""
    row = store.row(_of(name, _SOURCES))
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
            upsert(connection, _SOURCES, [state])
        return 1
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


def _of(name: str, what: Any) -> sa.Select[Any]:
    return sa.select(what).where(_SOURCES.c.path == name)


def _note(connection: Connection, file: MessageFile, name: str, **values: Any) -> None:
    _update(connection, name, size=file.end, lines=file.lines, content_hash=file.digest, **values)


def _update(connection: Connection, name: str, **values: Any) -> None:
    connection.execute(sa.update(_SOURCES).where(_SOURCES.c.path == name).values(**values))


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


@dataclass(frozen=True)
class Unread:
    """Message files that are not as they were read, each with its digest now, and those that are gone.

    ``renamed``: speakers are others by now.
    """

    files: Mapping[str, str] = field(default_factory=dict)
    gone: frozenset[str] = frozenset()
    renamed: bool = False

    def __bool__(self) -> bool:
        return bool(self.files or self.gone or self.renamed)

    @property
    def version(self) -> str:
        """A digest: the same until something is read, or changes again."""
        return content_hash([self.files, sorted(self.gone), self.renamed])[:16]


def unread_files(store: Store, files: Mapping[str, Path]) -> Unread:
    """Return which of all files must be read. ``files``: as for ``mirror_files``."""
    seen = {row.path: row.seen for row in store.rows(sa.select(_SOURCES.c.path, _SOURCES.c.seen))}
    now = {name: _digest(path) for name, path in files.items()}
    return Unread(
        {name: digest for name, digest in now.items() if digest != seen.get(name)}, frozenset(seen.keys() - files)
    )


def _digest(path: Path) -> str:
    """Return the digest of a file, or why it has none."""
    try:
        return regular_digest(str(path), path.stat(), _ANY_SIZE) or "not a regular file"
    except OSError as error:
        return f"unreadable-{error.errno}"
