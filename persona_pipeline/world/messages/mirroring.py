"""Mirror the world's message files into the store: each message once, whatever file it is in.

A file that still begins the same is read on from the last place, else from the start. Messages are written by id in batches; the
place is stored at the end, so a killed reading is repeated and doubles nothing.
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
    write_rows,
)
from persona_pipeline.world.models import Message
from persona_pipeline.world.names import Aliases

_TABLE = tables.run_messages
_SOURCES = tables.message_sources
_CHUNK = 5000


@dataclass(frozen=True)
class Reading:
    """A reading of a file.

    ``source``: the file's name in the store; ``number``: distinguishes it from earlier readings of other content. ``others``:
    files that keep their messages; ``gone``: deleted files, whose messages are taken over.
    """

    source: str
    number: int
    others: Collection[str] = frozenset()
    gone: Collection[str] = frozenset()


def write_batch(
    connection: Connection, batch: Sequence[tuple[int, Message]], reading: Reading
) -> tuple[WriteResult, list[Problem]]:
    """Write messages with their lines; return the result, and the problems of messages that were not written.

    A known id is updated, unless another message has taken it.
    """
    first: dict[str, tuple[int, Message]] = {}
    problems, refused = list[Problem](), 0
    for line, message in batch:
        before = first.setdefault(message.id, (line, message))
        if before[1] != message:
            problems.append(Problem(taken(message.id, before[0]), reading.source, line))
    out = kept_out(connection, [message for _, message in first.values()])
    kept = [item for item in first.values() if item[1].id not in out]
    known = known_rows(connection, list(first))
    inserted, updated, found = dict[Message, int](), dict[Message, int](), dict[Message, int]()
    for line, message in kept:
        row = known.get(message.id)
        if row is None:
            inserted[message] = line
        elif why := _taken(row, message, line, reading):
            problems.append(Problem(why, reading.source, line))
            refused += 1
        elif message_of(row) != message:
            updated[message] = line
        elif not _is_own(row, reading) and row.source in {reading.source, *reading.gone}:
            found[message] = line
    changed = inserted | updated
    place = {"reading": reading.number}
    rows = [{**row_of(message, reading.source), "line": line, **place} for message, line in changed.items()]
    write_rows(connection, rows, list(inserted))
    if found:
        at = sa.update(_TABLE).where(_TABLE.c.id == sa.bindparam("found_id"))
        moved = at.values(source=reading.source, reading=reading.number, line=sa.bindparam("found_line"))
        connection.execute(moved, [{"found_id": item.id, "found_line": line} for item, line in found.items()])
    unchanged = len(kept) - len(changed) - refused
    return WriteResult(len(inserted), len(updated), unchanged, 0, len(out)), problems


def _is_own(row: sa.Row, reading: Reading) -> bool:
    """Return whether this reading has stored the message before."""
    return row.source == reading.source and (row.reading or 0) == reading.number


def _taken(row: sa.Row, message: Message, line: int, reading: Reading) -> str:
    """Return the problem of an id that another message has; "": no other message has it."""
    if message_of(row) == message:
        return ""
    if _is_own(row, reading) and row.line != line:
        return taken(message.id, row.line)
    return (
        f"id {message.id!r} is taken in {row.source}; give this message its own" if row.source in reading.others else ""
    )


def remove_unread(store: Store, reading: Reading) -> list[str]:
    """Remove messages that an earlier reading of a file found and this one did not, and return their ids."""
    lost = sa.and_(_TABLE.c.source == reading.source, sa.func.coalesce(_TABLE.c.reading, 0) != reading.number)
    removed: list[str] = []
    while True:
        with store.begin() as connection:
            ids = connection.execute(sa.select(_TABLE.c.id).where(lost).limit(_CHUNK)).scalars().all()
            if not ids:
                return removed
            connection.execute(sa.delete(_TABLE).where(_TABLE.c.id.in_(ids)))
            removed += ids


LEASE = "message files"
# Limits of a transaction.
BATCH_LINES, _BATCH_CHARACTERS = 5000, 8_000_000
_MOST_PROBLEMS, _ANY_SIZE = 1000, 2**62


@dataclass
class SyncResult:
    """Result of bringing files into the store.

    ``problems``: skipped lines, the first 1000 of each file; ``unnamed``: the number of others. ``speakers``: agent ids, or names
    without a persona.
    """

    problems: list[Problem] = field(default_factory=list)
    written: WriteResult = field(default_factory=WriteResult)
    speakers: frozenset[str] = frozenset()
    unnamed: int = 0

    def add(self, other: "SyncResult") -> None:
        """Add the result of another file."""
        self.name(other.problems)
        self.unnamed += other.unnamed
        self.written += other.written
        self.speakers |= other.speakers

    def name(self, problems: Iterable[Problem]) -> None:
        """Add problems, up to the limit."""
        for problem in problems:
            if len(self.problems) < _MOST_PROBLEMS:
                self.problems.append(problem)
            else:
                self.unnamed += 1


def is_any_known(store: Store) -> bool:
    """Return whether any message file was ever read."""
    return store.value(sa.select(_SOURCES.c.path).limit(1)) is not None


def mirror_files(store: Store, files: Mapping[str, Path], aliases: Aliases) -> SyncResult:
    """Mirror message files into the store; unchanged files are not opened, an unreadable file stops no other.

    ``files``: all message files, by their name in the store.
    """
    result = SyncResult()
    if unread_files(store, files):
        with store.together(), exclusive(store, [LEASE]):
            # Another process may have read them meanwhile.
            unread = unread_files(store, files)
            result.written, lost = _mirror_all(store, files, unread, aliases)
            # A removed message may be in another file, too.
            others = files if len(files) > 1 or unread.gone else {}
            while held := {name: path for name, path in others.items() if lost and _holds(path, lost)}:
                again = Unread({name: _digest(path) for name, path in held.items()})
                written, lost = _mirror_all(store, files, again, aliases, whole=True)
                result.written += replace(written, unchanged=0)
    raise_revisions(store)
    kept = sa.select(_SOURCES.c.path, _SOURCES.c.problems).where(_SOURCES.c.problems.is_not(None))
    for row in sorted(store.rows(kept), key=lambda row: row.path):
        found = _loaded(row.problems)
        result.problems += found.problems
        result.unnamed += found.unnamed
    return result


def _holds(path: Path, ids: Collection[str]) -> bool:
    """Return whether a file has a message with one of these ids."""
    try:
        with MessageFile(path) as file:
            return any(isinstance(row.found, Message) and row.found.id in ids for row in file.rows(parse_message))
    except ConfigError:
        return False


def _mirror_all(
    store: Store, files: Mapping[str, Path], unread: "Unread", aliases: Aliases, *, whole: bool = False
) -> tuple[WriteResult, set[str]]:
    """Mirror unread files and return the result with the ids of removed messages."""
    written, lost = WriteResult(), set[str]()
    size = sum(files[name].stat().st_size for name in unread.files if files[name].exists())
    # Small files are one transaction; of larger ones each batch is.
    with store.begin() if size <= _BATCH_CHARACTERS else nullcontext():
        for name, digest in unread.files.items():
            reading = Reading(name, 0, files.keys() - {name}, unread.gone)
            done, removed = _mirror(store, files[name], digest, reading, aliases, whole=whole)
            written += done
            lost.update(removed)
    for name in unread.gone:
        lost.update(remove_unread(store, Reading(name, -1)))
        with store.begin() as connection:
            connection.execute(sa.delete(_SOURCES).where(_SOURCES.c.path == name))
    return replace(written, removed=len(lost)), lost


def ingest_rows(
    store: Store,
    rows: Iterator[Row],
    source: str,
    owned: Callable[[Message], Message],
    *,
    restore: bool = False,
    shown: str = "",
) -> SyncResult:
    """Add the messages of any file; nothing is removed.

    ``source``: its name in the store; ``shown``: its name for people. ``owned``: assigns a message to its agent. ``restore``: add
    messages again that were removed from the store. Raises ``ConfigError``: the file cannot be read.
    """
    # No other reading has this number, so ids of this file are distinguished from stored ones.
    result, reading = SyncResult(), Reading(source, -2 - secrets.randbelow(2**31 - 2))
    speakers: set[str] = set()
    for lot in _batches(rows):
        read, wrong = _split(lot, source, owned)
        with store.begin() as connection:
            if restore:
                let_in(connection, [message for _, message in read])
            done, refused = write_batch(connection, read, reading)
        problems = sorted([*wrong, *refused], key=lambda item: item.line or 0)
        result.name(replace(item, path=shown or source) for item in problems)
        result.written += done
        speakers.update(message.agent_id for _, message in read)
    raise_revisions(store)
    return replace(result, speakers=frozenset(speakers))


def _batches(rows: Iterator[Row]) -> Iterator[list[Row]]:
    """Yield rows in bounded lots; nothing is read ahead of a lot."""
    while lot := list(islice(rows, 1)):
        size = _characters(lot[0])
        while size < _BATCH_CHARACTERS and len(lot) < BATCH_LINES and (more := next(rows, None)):
            lot.append(more)
            size += _characters(more)
        yield lot


def _characters(row: Row) -> int:
    return len(row.found.text) if isinstance(row.found, Message) else 0


def _mirror(
    store: Store, path: Path, digest: str, reading: Reading, aliases: Aliases, *, whole: bool = False
) -> tuple[WriteResult, list[str]]:
    """Read a file to its end, on from the last place or from the start; ``whole``: from the start, for messages of other files.

    ``digest``: of the file before: it is read again if it changes meanwhile. Also returns the ids of removed messages.
    """
    name, written = reading.source, WriteResult()
    row = store.row(sa.select(_SOURCES).where(_SOURCES.c.path == name))
    number = row.reading if row else 0
    try:
        with MessageFile(path) as file:
            is_known, found = _resumed(file, row, whole=whole)
            file.require_text()
            reading = replace(reading, number=number if is_known else number + 1)
            # A reading that is killed begins again from the start.
            _note(store, name, reading=reading.number, size=0, content_hash="", seen=None)
            for lot in _batches(file.rows(parse_message)):
                read, wrong = _split(lot, name, aliases.owned)
                with store.begin() as connection:
                    done, refused = write_batch(connection, read, reading)
                found.name(sorted([*wrong, *refused], key=lambda problem: problem.line or 0))
                written += done
    except ConfigError as error:
        # Its messages stay, and it is read again once it has changed.
        problems = [Problem(p.message, name, p.line, p.column) for p in error.problems]
        _note(store, name, size=0, content_hash="", seen=digest, problems=_dumped(SyncResult(problems)))
        return written, []
    removed = [] if is_known else remove_unread(store, reading)
    _note(store, name, size=file.end, lines=file.lines, content_hash=file.digest, seen=digest, problems=_dumped(found))
    return written, removed


def _resumed(file: MessageFile, row: sa.Row | None, *, whole: bool) -> tuple[bool, SyncResult]:
    """Go to the last place of a file, with ``whole`` to its start; return whether it begins the same, and the problems so far."""
    if row is None or not row.size or not file.skip(row.size, row.lines, row.content_hash):
        return False, SyncResult()
    if whole:
        file.restart()
        return True, SyncResult()
    before = _loaded(row.problems)
    settled = [item for item in before.problems if item.line and item.line <= file.lines]
    return True, SyncResult(settled, unnamed=before.unnamed)


def _split(
    lot: Iterable[Row], name: str, owned: Callable[[Message], Message]
) -> tuple[list[tuple[int, Message]], list[Problem]]:
    """Return messages with their lines, and the problems of other lines."""
    read = [(row.line, owned(row.found)) for row in lot if isinstance(row.found, Message)]
    return read, [Problem(str(row.found), name, row.line) for row in lot if isinstance(row.found, ValueError)]


def _note(store: Store, name: str, **values: Any) -> None:
    with store.begin() as connection:
        upsert(connection, _SOURCES, [{"path": name, **values}])


def _dumped(found: SyncResult) -> list[dict[str, Any]]:
    return [*map(dict, map(vars, found.problems)), *([{"more": found.unnamed}] if found.unnamed else [])]


def _loaded(stored: Sequence[Mapping[str, Any]] | None) -> SyncResult:
    items = stored or ()
    problems = [
        Problem(**{key: value for key, value in item.items() if key != "open"}) for item in items if "more" not in item
    ]
    return SyncResult(problems, unnamed=sum(item.get("more", 0) for item in items))


@dataclass(frozen=True)
class Unread:
    """Changed message files with their current digests, and deleted ones. ``renamed``: names of speakers changed."""

    files: Mapping[str, str] = field(default_factory=dict)
    gone: frozenset[str] = frozenset()
    renamed: bool = False

    def __bool__(self) -> bool:
        return bool(self.files or self.gone or self.renamed)

    @property
    def version(self) -> str:
        """A digest that stays the same until a file is read or changes again."""
        return content_hash([self.files, sorted(self.gone), self.renamed])[:16]


def unread_files(store: Store, files: Mapping[str, Path]) -> Unread:
    """Return the files to read. ``files``: as for ``mirror_files``."""
    seen = {row.path: row.seen for row in store.rows(sa.select(_SOURCES.c.path, _SOURCES.c.seen))}
    now = {name: _digest(path) for name, path in files.items()}
    return Unread(
        {name: digest for name, digest in now.items() if digest != seen.get(name)}, frozenset(seen.keys() - files)
    )


def _digest(path: Path) -> str:
    """Return the digest of a file, or the reason why it has no digest."""
    try:
        return regular_digest(str(path), path.stat(), _ANY_SIZE) or "not a regular file"
    except OSError as error:
        return f"unreadable-{error.errno}"
