"""Mirroring the world's message files into the store: what stands in them is in it, once, whichever file it stands in."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import sqlalchemy as sa

from persona_pipeline.errors import ConfigError, Problem
from persona_pipeline.store import Store, tables, upsert
from persona_pipeline.world.aliases import Aliases
from persona_pipeline.world.ingest import parse_messages
from persona_pipeline.world.messages import WriteResult, adopt_messages, taken_ids, write_messages_in

_SOURCES = tables.message_sources


@dataclass
class SyncResult:
    """What bringing files into the store did.

    Attributes:
        problems: lines of message files that were left out.
        speakers: whose messages were read, by agent id, or by name where nobody has a persona.
    """

    problems: list[Problem] = field(default_factory=list)
    written: WriteResult = field(default_factory=WriteResult)
    speakers: frozenset[str] = frozenset()


def mirror_files(store: Store, files: Mapping[str, Path], aliases: Aliases) -> SyncResult:
    """Mirror message files into the store; one that did not change is not parsed again, one that cannot be read stops no other.

    Args:
        files: all there are, by the name the store has for them.
    """
    result = _mirror(store, files, aliases)
    if result.written.removed:
        # What went from one file may stand in another, which was not read because it did not change.
        with store.begin() as connection:
            connection.execute(sa.delete(_SOURCES))
        result = _mirror(store, files, aliases)
    return result


def _mirror(store: Store, files: Mapping[str, Path], aliases: Aliases) -> SyncResult:
    with store.connect() as connection:
        known = {row.path: row for row in connection.execute(sa.select(_SOURCES))}
    gone = known.keys() - files
    result, removed = SyncResult(), 0
    for name, path in files.items():
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        if name in known and known[name].content_hash == digest:
            result.problems += [Problem(**problem) for problem in known[name].problems or ()]
            continue
        try:
            parsed = parse_messages(path)
        except ConfigError as error:
            # What was read of it before stays, and it is read again next time.
            result.problems += [Problem(p.message, name, p.line, p.column) for p in error.problems]
            continue
        problems = [Problem(p.message, name, p.line, p.column) for p in parsed.problems]
        messages = [aliases.owned(message) for message in parsed.messages]
        with store.begin() as connection:
            adopt_messages(connection, messages, name, gone)
            taken = taken_ids(connection, messages, files.keys() - {name})
            problems += [
                Problem(f"id {i!r} is taken in {taken[i]}; give this message its own", name, parsed.lines[i])
                for i in taken
            ]
            messages = [message for message in messages if message.id not in taken]
            removed += write_messages_in(store, connection, messages, source=name, mirror=True).removed
            row = {"path": name, "content_hash": digest, "problems": [vars(problem) for problem in problems]}
            upsert(store, connection, _SOURCES, [row])
        result.problems += problems
    for name in gone:
        with store.begin() as connection:
            removed += write_messages_in(store, connection, [], source=name, mirror=True).removed
            connection.execute(sa.delete(_SOURCES).where(_SOURCES.c.path == name))
    result.written = WriteResult(removed=removed)
    return result
