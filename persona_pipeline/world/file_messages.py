"""Writing what a file says, a bounded number of messages at a time: first come, first kept, in a file and among files."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from persona_pipeline.errors import Problem
from persona_pipeline.store import Store, tables, upsert
from persona_pipeline.world.evaluated_windows import touch_windows
from persona_pipeline.world.ingest import taken
from persona_pipeline.world.messages import WriteResult, message_of, row_of, touched_moments, write_parents
from persona_pipeline.world.models import Message
from persona_pipeline.world.removing import kept_out, let_in

_TABLE, _COPIES = tables.run_messages, tables.message_copies
_CHUNK = 5000


@dataclass(frozen=True)
class Reading:
    """A reading of a file from its start, maybe in several goes.

    Attributes:
        source: the file's name in the store; ``number``: tells this reading from those before.
        others: files whose messages are left to them; ``gone``: files that are no more, whose messages are taken over.
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
    store: Store, connection: Connection, batch: Sequence[tuple[int, Message]], reading: Reading
) -> tuple[WriteResult, list[Problem]]:
    """Write messages with the lines they stand in; an id that is known is updated, unless it is taken by another message.

    Returns:
        What was done, and what is wrong with messages that were not written.
    """
    first: dict[str, tuple[int, Message]] = {}
    problems = []
    for line, message in batch:
        before = first.setdefault(message.id, (line, message))
        if before[1] != message:
            problems.append(Problem(taken(message.id, before[0]), reading.source, line))
    out = kept_out(connection, [message for _, message in first.values()])
    kept = [item for item in first.values() if item[1].id not in out]
    known = _known(connection, list(first))
    done = _sort(kept, known, reading)
    changed = done.inserted | done.updated
    write_parents(store, connection, list(changed))
    rows = [
        {**row_of(message, reading.source), "line": line, "reading": reading.number}
        for message, line in changed.items()
    ]
    upsert(store, connection, _TABLE, rows)
    _find(connection, done.found, reading)
    copies = [{"id": message_id, "path": reading.source} for message_id in done.copies]
    upsert(store, connection, _COPIES, copies, update=False)
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


def _known(connection: Connection, ids: Sequence[str]) -> dict[str, sa.Row]:
    known: dict[str, sa.Row] = {}
    for start in range(0, len(ids), _CHUNK):
        rows = connection.execute(sa.select(_TABLE).where(_TABLE.c.id.in_(ids[start : start + _CHUNK])))
        known |= {row.id: row for row in rows}
    return known
